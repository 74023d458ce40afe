//! Why a request is not served as a consumer's.

use http::StatusCode;

/// Why a request is not served as a consumer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ConsumerError {
    /// There is no credential.
    #[error("the request has no credential")]
    Missing,
    /// A header or token has several values that differ, or there are more credentials than are looked up: the server may read
    /// another one than the proxy.
    #[error("the request has several credentials that differ")]
    Differing,
    /// Several credentials belong to no consumer, or to several.
    #[error("the credentials of the request are not those of one consumer")]
    Ambiguous,
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
    /// The client has too many credentials that are being looked up.
    #[error("too many credentials of this client are being looked up; try again in a second")]
    TooManyLookups,
    /// Redis can't be read, so it is not known whose the credential is.
    #[error("credentials can't be checked at the moment")]
    Unavailable,
}

impl ConsumerError {
    /// The status of the response: 400 if no credential was looked up, 401 if another one could help, 403 if none could, 429 if
    /// the client has too many at once, 503 if none can be checked.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Differing => StatusCode::BAD_REQUEST,
            Self::Missing | Self::Ambiguous | Self::Unknown | Self::Expired => StatusCode::UNAUTHORIZED,
            Self::Blocked | Self::Tier => StatusCode::FORBIDDEN,
            Self::TooManyLookups => StatusCode::TOO_MANY_REQUESTS,
            Self::NotFetched | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
