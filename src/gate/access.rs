//! Which consumers a route serves, and whom a request is identified as.

use std::sync::Arc;

use crate::consumers::{Consumer, ConsumerError};

/// The consumer of a request: none where it is served without one, or why it is rejected.
pub type Identity = Result<Option<Arc<Consumer>>, ConsumerError>;

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
    ///
    /// # Errors
    /// [`ConsumerError::Tier`].
    pub(super) fn check(&self, consumer: &Consumer) -> Result<(), ConsumerError> {
        match (self, &consumer.tier) {
            (Self::Tiers(tiers), Some(tier)) if tiers.contains(tier) => Ok(()),
            (Self::Tiers(_), _) => Err(ConsumerError::Tier),
            (Self::Default | Self::Public, _) => Ok(()),
        }
    }
}
