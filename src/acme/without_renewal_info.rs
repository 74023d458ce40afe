//! In a build without the feature `acme`: no ACME server is asked.

#![expect(clippy::unused_async, reason = "the functions are those of the client with the feature")]

use std::sync::Arc;

use super::error::ObtainError;
use super::schedule::Suggestion;
use super::shared::Shared;
use crate::tls::Identity;

pub(super) enum RenewalInfo {}

impl RenewalInfo {
    pub async fn open(_: &Arc<Shared>) -> Result<Option<Self>, ObtainError> {
        Ok(None)
    }

    pub async fn suggestion(&self, _: &Identity) -> Result<Option<Suggestion>, ObtainError> {
        match *self {}
    }
}
