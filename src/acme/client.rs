//! The protocol: the account, orders for certificates with the answers to challenges, and questions about the time of renewals.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier,
    ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
    RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde::{Deserialize, Serialize};

use super::files::{blocking, read};
use super::http::{Http, asks_to_wait, describe, failure, is_temporary};
use super::http_challenges::{self, HttpChallenges};
use super::schedule::SuggestedWindow;
use super::shared::InstalledCertificates;
use super::spec::{AcmeSpec, ChallengeKind};
use super::status::ObtainError;
use super::storage::Lock;
use crate::time::{Micros, Timestamp};
use crate::tls::{ClientTls, ClientTlsSpec, Identity};

/// How long an ACME server may take to validate a name, and then to issue a certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().backoff(1.5).timeout(Duration::from_mins(2));

/// An account with an ACME server, to order certificates. It holds the lock of the storage.
pub(super) struct AcmeClient {
    account: Account,
    http: Http,
    shared: Arc<InstalledCertificates>,
    lock: Lock,
}

impl AcmeClient {
    /// Opens the account in the storage, or registers one.
    pub async fn open(shared: &Arc<InstalledCertificates>, lock: &Lock) -> Result<Self, ObtainError> {
        let (spec, stored) = (&shared.spec, StoredAccount::read(shared).await?);
        let http = http(spec).await?;
        let (account, changed) =
            account(spec, &http, stored).await.map_err(|error| failure(spec, &http, error))?;
        if let Some(stored) = changed {
            let text = serde_json::to_vec_pretty(&stored).map_err(|error| broken(shared, error))?;
            let written = lock.write(shared.storage.account(), text).await;
            written.map_err(|error| broken(shared, error))?;
        }
        Ok(Self { account, http, shared: Arc::clone(shared), lock: lock.clone() })
    }

    /// Obtains a certificate for a name, in place of `replaced` if there is one; returns its key and its chain as PEM.
    pub async fn obtain(&self, name: &str, replaced: Option<&Identity>) -> Result<String, ObtainError> {
        let mut order = self.order(name, replaced).await?;
        let validated = self.validate(&mut order, name).await;
        if let Err(error) = self.lock.remove_answers().await {
            // They are harmless, and removed before the next order.
            tracing::debug!("can't remove the answers to challenges: {error}");
        }
        validated?;
        let key = order.finalize().await.map_err(|error| self.failure(error))?;
        let chain = order.poll_certificate(&PATIENCE).await.map_err(|error| self.failure(error))?;
        Ok(key + &chain)
    }

    async fn order(&self, name: &str, replaced: Option<&Identity>) -> Result<Order, ObtainError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        if let Some(id) = replaced.and_then(identifier) {
            match self.account.new_order(&NewOrder::new(&identifiers).replaces(id)).await {
                Ok(order) => return Ok(order),
                Err(Error::Unsupported(_)) => {}
                Err(Error::Api(problem)) if asks_to_wait(&problem) => {
                    return Err(self.failure(Error::Api(problem)));
                }
                // Such as a certificate of another account, or a server that takes no notice of the member: it can be renewed
                // all the same.
                Err(error) => tracing::debug!("the order for {name} is repeated without `replaces`: {error}"),
            }
        }
        let order = self.account.new_order(&NewOrder::new(&identifiers)).await;
        order.map_err(|error| self.failure(error))
    }

    /// Proves the control of the name of an order.
    async fn validate(&self, order: &mut Order, name: &str) -> Result<(), ObtainError> {
        let _answers = self.answer(order, name).await?;
        match order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Ready) => Ok(()),
            result => Err(self.reason(order, name, result.err()).await),
        }
    }

    /// Answers the challenges of an order, and has the ACME server validate them.
    async fn answer(&self, order: &mut Order, name: &str) -> Result<Vec<Answer>, ObtainError> {
        let mut answers = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.failure(error))?;
            // The ACME server may remember an earlier validation.
            if authorization.status != AuthorizationStatus::Valid {
                answers.push(self.answer_one(&mut authorization, name).await?);
            }
        }
        Ok(answers)
    }

    async fn answer_one<'a>(
        &self,
        authorization: &'a mut AuthorizationHandle<'a>,
        name: &str,
    ) -> Result<Answer, ObtainError> {
        let kind = self.shared.spec.challenge;
        let offered: Vec<String> =
            authorization.challenges.iter().map(|challenge| format!("{:?}", challenge.r#type)).collect();
        let wanted = match kind {
            ChallengeKind::Http01 => ChallengeType::Http01,
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let Some(mut challenge) = authorization.challenge(wanted) else {
            let (kind, offered) = (kind.name(), offered.join(", "));
            return Err(ObtainError::rejected(format!(
                "the ACME server does not offer {kind} for {name}, only: {offered}"
            )));
        };
        let authorization = challenge.key_authorization();
        let answer = match kind {
            ChallengeKind::Http01 => {
                let (token, text) = (&challenge.token, authorization.as_str());
                Answer::http(&self.shared, &self.lock, token, text).await?
            }
            ChallengeKind::TlsAlpn01 => Answer::tls(&self.shared, name, authorization.digest().as_ref())?,
        };
        match challenge.set_ready().await {
            // The ACME server has validated the name already.
            Err(Error::Api(problem)) if !is_temporary(&problem) => Err(self.validation_failure(&problem)),
            result => result.map(|()| answer).map_err(|error| self.failure(error)),
        }
    }

    /// Why an order did not become ready: what the ACME server says of the challenge, or else of the order.
    async fn reason(&self, order: &mut Order, name: &str, error: Option<Error>) -> ObtainError {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if let Ok(state) = authorization.refresh().await
                && let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref())
            {
                return self.validation_failure(problem);
            }
        }
        match error {
            Some(Error::Timeout(_)) => {
                ObtainError::rejected(format!("the ACME server has not validated {name} in time"))
            }
            Some(error) => self.failure(error),
            None => ObtainError::rejected("the ACME server has declared the order invalid"),
        }
    }

    fn validation_failure(&self, problem: &Problem) -> ObtainError {
        let kind = self.shared.spec.challenge.name();
        let message = format!("the validation by {kind} failed: {}", describe(problem));
        ObtainError { retry_after: self.http.retry_after(), ..ObtainError::rejected(message) }
    }

    fn failure(&self, error: Error) -> ObtainError {
        failure(&self.shared.spec, &self.http, error)
    }
}

/// The renewal information of an ACME server.
pub(super) struct RenewalInfo {
    account: Account,
    http: Http,
    shared: Arc<InstalledCertificates>,
}

impl RenewalInfo {
    /// Opens the stored account; none if there is no account.
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

/// The file of the account.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
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
fn broken(shared: &InstalledCertificates, error: impl fmt::Display) -> ObtainError {
    ObtainError::unavailable(format!("the account in {}: {error}", shared.storage.account().display()))
}

/// The HTTP client of an account.
async fn http(spec: &AcmeSpec) -> Result<Http, ObtainError> {
    let tls = ClientTlsSpec { authorities: spec.authorities.clone(), ..ClientTlsSpec::default() };
    // The authorities that the system trusts are read from files.
    let tls = blocking(move || Ok(ClientTls::new(tls))).await.map_err(ObtainError::unavailable)?;
    Ok(Http::new(tls.map_err(ObtainError::unavailable)?))
}

/// The stored account, or a new one; with the account to store, if that has changed.
async fn account(
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

/// The answer to a challenge, which this process gives until this is dropped.
#[derive(Debug)]
struct Answer {
    shared: Arc<InstalledCertificates>,
    to: Question,
}

#[derive(Debug)]
enum Question {
    /// A request with this token.
    Http(String),
    /// A handshake for this name.
    Tls(String),
}

impl Answer {
    /// Answers requests with this token (HTTP-01), also those that other processes get: these read the answer from the storage.
    /// Fails if the token can't be the name of a file, or the file can't be written.
    pub async fn http(
        shared: &Arc<InstalledCertificates>,
        lock: &Lock,
        token: &str,
        authorization: &str,
    ) -> Result<Self, ObtainError> {
        // The token comes from the ACME server, and names a file.
        if !HttpChallenges::is_token(token) {
            return Err(ObtainError::rejected(format!("the ACME server sent an invalid token: {token:?}")));
        }
        let path = shared.storage.challenges().join(token);
        shared.http.insert(token, authorization);
        let answer = Self { shared: Arc::clone(shared), to: Question::Http(token.to_owned()) };
        let written = lock.write(path.clone(), authorization.into()).await;
        written
            .map_err(|error| ObtainError::unavailable(format!("can't write {}: {error}", path.display())))?;
        // Then every process that shares the storage has forgotten what it read before.
        tokio::time::sleep(http_challenges::LIFETIME).await;
        Ok(answer)
    }

    /// Answers handshakes for this name (TLS-ALPN-01) with a certificate that has the hash of the key authorization
    /// (RFC 8737 §3).
    pub fn tls(shared: &Arc<InstalledCertificates>, name: &str, hash: &[u8]) -> Result<Self, ObtainError> {
        let failed = |error: rcgen::Error| ObtainError::unavailable(error);
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash)];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let identity = Identity::for_validation(certificate, key).map_err(ObtainError::unavailable)?;
        shared.set_validation(name, identity);
        Ok(Self { shared: Arc::clone(shared), to: Question::Tls(name.to_owned()) })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        match &self.to {
            // Its file is removed with the others, when the lock is taken or the validation has ended.
            Question::Http(token) => self.shared.http.remove(token),
            Question::Tls(name) => self.shared.remove_validation(name),
        }
    }
}
