//! In a build without the feature `acme`: no certificate can be obtained. The configuration says so before.

#![expect(clippy::unused_async, reason = "the functions are those of the client with the feature")]

use std::sync::Arc;

use super::error::ObtainError;
use super::shared::InstalledCertificates;
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
