//! In a build without the feature `acme`: no certificate can be obtained, which the configuration says before, and no ACME server
//! is asked when to renew one.

#![expect(clippy::unused_async, reason = "the functions are those of the client with the feature")]

use std::sync::Arc;

use super::schedule::SuggestedWindow;
use super::shared::InstalledCertificates;
use super::status::ObtainError;
use super::storage::Lock;
use crate::tls::Identity;

pub(super) enum AcmeClient {}

impl AcmeClient {
    pub async fn open(_: &Arc<InstalledCertificates>, _: &Lock) -> Result<Self, ObtainError> {
        Err(ObtainError::rejected("this build has no ACME (the feature `acme`)"))
    }

    pub async fn obtain(&self, _: &str, _: Option<&Identity>) -> Result<String, ObtainError> {
        match *self {}
    }
}

pub(super) enum RenewalInfo {}

impl RenewalInfo {
    pub async fn open(_: &Arc<InstalledCertificates>) -> Result<Option<Self>, ObtainError> {
        Ok(None)
    }

    pub async fn suggestion(&self, _: &Identity) -> Result<Option<SuggestedWindow>, ObtainError> {
        match *self {}
    }
}
