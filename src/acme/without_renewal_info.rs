//! In a build without the feature `acme`: no ACME server is asked.

#![expect(clippy::unused_async, reason = "the functions are those of the client with the feature")]

use std::sync::Arc;

use super::error::ObtainError;
use super::schedule::SuggestedWindow;
use super::shared::InstalledCertificates;
use crate::tls::Identity;

pub(super) enum RenewalInfo {}

impl RenewalInfo {
    pub async fn open(_: &Arc<InstalledCertificates>) -> Result<Option<Self>, ObtainError> {
        Ok(None)
    }

    pub async fn suggestion(&self, _: &Identity) -> Result<Option<SuggestedWindow>, ObtainError> {
        match *self {}
    }
}
