//! Questions about the time of renewals (ARI, RFC 9773). They need no lock of the storage, since they change nothing in it.

use std::sync::Arc;

use instant_acme::{Account, CertificateIdentifier, Error};

use super::account::{StoredAccount, http};
use super::error::ObtainError;
use super::http::Http;
use super::problem::failure;
use super::schedule::SuggestedWindow;
use super::shared::InstalledCertificates;
use crate::time::{Micros, Timestamp};
use crate::tls::Identity;

/// The renewal information of an ACME server.
pub(super) struct RenewalInfo {
    account: Account,
    http: Http,
    shared: Arc<InstalledCertificates>,
}

impl RenewalInfo {
    /// That of the server of the stored account; none if there is no account.
    pub async fn open(shared: &Arc<InstalledCertificates>) -> Result<Option<Self>, ObtainError> {
        let Some(stored) = StoredAccount::read(shared).await? else { return Ok(None) };
        let http = http(&shared.spec).await?;
        let builder = Account::builder_with_http(Box::new(http.clone()));
        // This only requests the directory.
        let account = builder.from_credentials(stored.credentials).await;
        let account = account.map_err(|error| failure(&shared.spec, &http, error))?;
        Ok(Some(Self { account, http, shared: Arc::clone(shared) }))
    }

    /// When the ACME server suggests to renew a certificate; none if it makes no suggestions.
    pub async fn suggestion(&self, certificate: &Identity) -> Result<Option<SuggestedWindow>, ObtainError> {
        let Some(id) = identifier(certificate) else { return Ok(None) };
        match self.account.renewal_info(&id).await {
            Ok((info, ask_again)) => {
                let time = |seconds: i64| {
                    Timestamp(u64::try_from(seconds).unwrap_or(0).saturating_mul(Micros::SECOND.0))
                };
                let window = info.suggested_window;
                let window = (time(window.start.unix_timestamp()), time(window.end.unix_timestamp()));
                Ok(Some(SuggestedWindow { window, ask_again }))
            }
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(failure(&self.shared.spec, &self.http, error)),
        }
    }
}

/// The identifier of a certificate for the ACME server; none if the certificate does not name the key of its authority.
pub(super) fn identifier(certificate: &Identity) -> Option<CertificateIdentifier<'static>> {
    let id = CertificateIdentifier::try_from(certificate.certificate()?).ok()?;
    Some(id.into_owned())
}
