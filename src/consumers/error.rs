//! Why a request is not served as a consumer's.

/// Why a request is not served as a consumer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ConsumerError {
    /// There is no credential.
    #[error("the request has no credential")]
    Missing,
    /// There are several credentials that differ: the server may read another one than the proxy.
    #[error("the request has several credentials that differ")]
    Differing,
    /// The credential belongs to no consumer.
    #[error("the credential of the request is not known")]
    Unknown,
    /// The credential is no longer valid.
    #[error("the credential of the request has expired")]
    Expired,
    /// The consumer is blocked.
    #[error("this consumer is blocked")]
    Blocked,
    /// The route is for consumers of other tiers.
    #[error("the tier of this consumer may not use this route")]
    Tier,
}

impl ConsumerError {
    /// Whether another credential could help (401), rather than none (403).
    #[must_use]
    pub fn is_unauthorized(self) -> bool {
        !matches!(self, Self::Blocked | Self::Tier)
    }
}
