//! Why a request is not served as a consumer's.

use http::StatusCode;

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
    /// The consumer is to be read from Redis first.
    #[error("the consumer of this credential is in Redis, if there is one")]
    NotFetched,
    /// Redis can't be read, so it is not known whose the credential is.
    #[error("credentials can't be checked at the moment")]
    Unavailable,
}

impl ConsumerError {
    /// The status of the response: 401 if another credential could help, 403 if none could, 503 if none can be checked.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Missing | Self::Differing | Self::Unknown | Self::Expired => StatusCode::UNAUTHORIZED,
            Self::Blocked | Self::Tier => StatusCode::FORBIDDEN,
            Self::NotFetched | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
