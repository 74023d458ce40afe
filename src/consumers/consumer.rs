//! A consumer, and whether its requests are served.

use super::error::ConsumerError;
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
