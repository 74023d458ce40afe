//! A consumer, its name and tier, and why a request is not served as that of a consumer.

use http::StatusCode;

use crate::time::{Clock, Timestamp};

/// A named client of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Box<str>,
    /// Its tier, if it has one.
    pub tier: Option<Box<str>>,
    /// Whether its requests are rejected.
    pub is_blocked: bool,
    /// When its credentials stop to be valid, if they do.
    pub expires: Option<Timestamp>,
}

impl Consumer {
    /// A consumer of this name: without a tier, not blocked, valid for ever.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), tier: None, is_blocked: false, expires: None }
    }

    /// Checks that the consumer may send requests now. The clock is read only if the consumer expires.
    ///
    /// # Errors
    /// [`ConsumerError::Blocked`] or [`ConsumerError::Expired`].
    pub fn check(&self, clock: &Clock) -> Result<(), ConsumerError> {
        if self.is_blocked {
            return Err(ConsumerError::Blocked);
        }
        if self.expires.is_some_and(|end| clock.now() >= end) {
            return Err(ConsumerError::Expired);
        }
        Ok(())
    }
}

/// The most characters of a consumer's name: it is logged, and sent to upstreams.
const MAX_CONSUMER: usize = 128;
const MAX_TIER: usize = 64;

/// Whether a text can be the name of a consumer: 1 to 128 characters, no control characters, spaces only inside.
#[must_use]
pub fn is_consumer_name(name: &str) -> bool {
    (1..=MAX_CONSUMER).contains(&name.chars().count())
        && !name.contains(char::is_control)
        && name.trim() == name
}

/// Whether a text can be the name of a tier: 1 to 64 characters from A-Z, a-z, 0-9, _, - and `.`.
#[must_use]
pub fn is_tier_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_TIER).contains(&name.len()) && name.bytes().all(is_allowed)
}

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

/// The treatment of a request whose credential is missing or belongs to no consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownConsumer {
    /// The request is rejected with 401.
    #[default]
    Reject,
    /// The request is served without a consumer.
    Anonymous,
}
