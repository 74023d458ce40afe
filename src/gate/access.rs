//! Which consumers a route serves, and whom a request is identified as.

use std::sync::Arc;

use crate::consumers::{Consumer, ConsumerError};

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
