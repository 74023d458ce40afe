//! The account with the ACME server.

use std::fmt;

use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};

use super::error::ObtainError;
use super::files::{blocking, read};
use super::http::Http;
use super::shared::InstalledCertificates;
use super::spec::AcmeSpec;
use crate::tls::{ClientTls, ClientTlsSpec};

/// The file of the account.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredAccount {
    /// The address that the ACME server knows.
    pub email: Option<String>,
    pub credentials: AccountCredentials,
}

impl StoredAccount {
    /// Reads the account in the storage; none if there is none.
    pub async fn read(shared: &InstalledCertificates) -> Result<Option<Self>, ObtainError> {
        let path = shared.storage.account();
        let text = blocking(move || read(&path)).await.map_err(|error| broken(shared, error))?;
        text.map(|text| serde_json::from_slice(&text)).transpose().map_err(|error| broken(shared, error))
    }
}

/// An error of the file of the account.
pub(super) fn broken(shared: &InstalledCertificates, error: impl fmt::Display) -> ObtainError {
    ObtainError::unavailable(format!("the account in {}: {error}", shared.storage.account().display()))
}

/// What makes the requests of an account.
pub(super) async fn http(spec: &AcmeSpec) -> Result<Http, ObtainError> {
    let tls = ClientTlsSpec { authorities: spec.authorities.clone(), ..ClientTlsSpec::default() };
    // The authorities that the system trusts are read from files.
    let tls = blocking(move || Ok(ClientTls::new(tls))).await.map_err(ObtainError::unavailable)?;
    Ok(Http::new(tls.map_err(ObtainError::unavailable)?))
}

/// The stored account, or a new one; with the account to store, if that has changed.
pub(super) async fn account(
    spec: &AcmeSpec,
    http: &Http,
    stored: Option<StoredAccount>,
) -> Result<(Account, Option<StoredAccount>), Error> {
    let builder = Account::builder_with_http(Box::new(http.clone()));
    let contact: Vec<String> = spec.email.iter().map(|email| format!("mailto:{email}")).collect();
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let email = spec.email.clone();
    if let Some(stored) = stored {
        // The library takes the credentials and does not give them back.
        let copy = serde_json::from_value(serde_json::to_value(&stored.credentials)?)?;
        let account = builder.from_credentials(stored.credentials).await?;
        if stored.email == email {
            return Ok((account, None));
        }
        account.update_contacts(&contact).await?;
        return Ok((account, Some(StoredAccount { email, credentials: copy })));
    }
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let binding = spec.external_account.as_ref();
    let binding = binding.map(|own| ExternalAccountKey::new(own.key_id.clone(), &own.key));
    let (account, credentials) = builder.create(&new, spec.directory.to_string(), binding.as_ref()).await?;
    tracing::info!("an account is registered with the ACME server {}", spec.server());
    Ok((account, Some(StoredAccount { email, credentials })))
}
