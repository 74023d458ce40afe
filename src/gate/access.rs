//! Which consumers a route serves, and whom a request is identified as.

use std::sync::Arc;

use http::StatusCode;

use super::value_pattern::ValuePattern;
use crate::consumers::{Consumer, ConsumerError};
use crate::jwt::{Token, TokenError};

/// The consumer of a request, and whether the request is rejected for it or for the lack of it.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The consumer, if it is known, also where its requests are rejected.
    pub consumer: Option<Arc<Consumer>>,
    /// Why the request is rejected, if it is.
    pub error: Option<ConsumerError>,
}

impl Identity {
    /// The name of the consumer.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.consumer.as_ref().map(|consumer| &*consumer.name)
    }
}

impl From<Arc<Consumer>> for Identity {
    fn from(consumer: Arc<Consumer>) -> Self {
        Self { consumer: Some(consumer), error: None }
    }
}

impl From<ConsumerError> for Identity {
    /// A request without a known consumer.
    fn from(error: ConsumerError) -> Self {
        Self { consumer: None, error: Some(error) }
    }
}

/// Which consumers a route serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Those that `[consumers]` lets in: all, and with `unknown = "anonymous"` also requests without one.
    #[default]
    Default,
    /// Consumers of these tiers.
    Tiers(Vec<Box<str>>),
    /// Everybody, also requests without a consumer.
    Public,
}

impl Access {
    /// Whether the route serves requests without a consumer; `is_default` says whether `[consumers]` does.
    pub(super) fn is_anonymous(&self, is_default: bool) -> bool {
        match self {
            Self::Default => is_default,
            Self::Tiers(_) => false,
            Self::Public => true,
        }
    }

    /// Checks that the route serves the tier of a consumer.
    pub(super) fn check(&self, consumer: &Consumer) -> Result<(), ConsumerError> {
        match (self, &consumer.tier) {
            (Self::Tiers(tiers), Some(tier)) if tiers.contains(tier) => Ok(()),
            (Self::Tiers(_), _) => Err(ConsumerError::Tier),
            (Self::Default | Self::Public, _) => Ok(()),
        }
    }
}

/// What a route requires of the token of a request: that it is valid, and perhaps that a claim has one of some values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRule {
    /// The claim, and the patterns of its values.
    pub claim: Option<(Box<str>, Box<[ValuePattern]>)>,
}

/// Why a route refuses a request for its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// There is no valid token.
    #[error("{0}")]
    Invalid(TokenError),
    /// The token is valid, and lacks what the route requires.
    #[error("the token does not have the claim that this route requires")]
    Claim,
}

impl TokenRule {
    /// Checks the token of a request.
    pub(super) fn check(&self, token: &Token<'_>) -> Result<(), TokenRefusal> {
        let claims = token.claims().map_err(TokenRefusal::Invalid)?;
        self.check_claim(|name, test| claims.has(name, test))
    }

    /// Checks the claims of a valid token: `has` says whether a claim has a value that passes a test.
    pub(super) fn check_claim(
        &self,
        has: impl FnOnce(&str, &dyn Fn(&str) -> bool) -> bool,
    ) -> Result<(), TokenRefusal> {
        let Some((name, patterns)) = &self.claim else { return Ok(()) };
        let test = |value: &str| patterns.iter().any(|pattern| pattern.matches(value.as_bytes()));
        if has(name, &test) { Ok(()) } else { Err(TokenRefusal::Claim) }
    }
}

impl TokenRefusal {
    /// The status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid(TokenError::NoKeys) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid(_) => StatusCode::UNAUTHORIZED,
            Self::Claim => StatusCode::FORBIDDEN,
        }
    }

    /// The value of WWW-Authenticate (RFC 6750 §3.1); none if the keys are not known.
    #[must_use]
    pub fn challenge(self) -> Option<&'static str> {
        match self {
            Self::Invalid(TokenError::NoKeys) => None,
            Self::Invalid(TokenError::Absent) => Some("Bearer"),
            Self::Invalid(_) => Some("Bearer error=\"invalid_token\""),
            Self::Claim => Some("Bearer error=\"insufficient_scope\""),
        }
    }
}
