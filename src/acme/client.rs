//! The protocol: an account with an ACME server, and orders for certificates.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier,
    ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
    RetryPolicy,
};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::error::{ErrorKind, ObtainError};
use super::http::Http;
use super::shared::Shared;
use super::spec::{AcmeSpec, ChallengeKind};
use super::storage::{read, write};
use crate::time::{Micros, Timestamp};
use crate::tls::{ClientTls, ClientTlsSpec, Identity};

/// How long an ACME server may take to validate a name, and then to issue a certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().backoff(1.5).timeout(Duration::from_mins(2));
/// The begin of the types of errors of the protocol (RFC 8555 §6.7).
const ERROR: &str = "urn:ietf:params:acme:error:";

/// An account with an ACME server.
pub(super) struct Client {
    account: Account,
    http: Http,
    shared: Arc<Shared>,
}

/// When an ACME server suggests to renew a certificate (ARI, RFC 9773).
pub(super) struct Suggestion {
    pub window: (Timestamp, Timestamp),
    /// When to ask again.
    pub ask_again: Duration,
}

/// The file of the account.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    /// The address that the ACME server knows.
    email: Option<String>,
    credentials: AccountCredentials,
}

impl Client {
    /// Opens the account in the storage, or registers one.
    pub async fn open(shared: &Arc<Shared>) -> Result<Self, ObtainError> {
        let (spec, path) = (&shared.spec, shared.storage.account());
        let tls = ClientTlsSpec { authorities: spec.authorities.clone(), ..ClientTlsSpec::default() };
        let http = Http::new(ClientTls::new(tls).map_err(ObtainError::unavailable)?);
        let broken = |error: &dyn std::fmt::Display| {
            ObtainError::unavailable(format!("the account in {}: {error}", path.display()))
        };
        let stored = match read(&path).map_err(|error| broken(&error))? {
            None => None,
            Some(text) => Some(serde_json::from_slice(&text).map_err(|error| broken(&error))?),
        };
        let (account, changed) =
            account(spec, &http, stored).await.map_err(|error| failure(shared, &http, error))?;
        if let Some(stored) = changed {
            let text = serde_json::to_vec_pretty(&stored).map_err(|error| broken(&error))?;
            write(&path, &text).map_err(|error| broken(&error))?;
        }
        Ok(Self { account, http, shared: Arc::clone(shared) })
    }

    /// Obtains a certificate for a name, in place of `replaced` if there is one; returns its key and its chain as PEM.
    pub async fn obtain(&self, name: &str, replaced: Option<&Identity>) -> Result<String, ObtainError> {
        let mut order = self.order(name, replaced).await?;
        let answers = self.answer(&mut order, name).await?;
        match order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Ready) => {}
            result => return Err(self.reason(&mut order, name, result.err()).await),
        }
        drop(answers);
        let key = order.finalize().await.map_err(|error| self.failure(error))?;
        let chain = order.poll_certificate(&PATIENCE).await.map_err(|error| self.failure(error))?;
        Ok(key + &chain)
    }

    /// When the ACME server suggests to renew a certificate; none if it makes no suggestions.
    pub async fn suggestion(&self, certificate: &Identity) -> Result<Option<Suggestion>, ObtainError> {
        let Some(id) = identifier(certificate) else { return Ok(None) };
        match self.account.renewal_info(&id).await {
            Ok((info, ask_again)) => {
                let time = |seconds: i64| {
                    Timestamp(u64::try_from(seconds).unwrap_or(0).saturating_mul(Micros::SECOND.0))
                };
                let window = info.suggested_window;
                let window = (time(window.start.unix_timestamp()), time(window.end.unix_timestamp()));
                Ok(Some(Suggestion { window, ask_again }))
            }
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    async fn order(&self, name: &str, replaced: Option<&Identity>) -> Result<Order, ObtainError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        if let Some(id) = replaced.and_then(identifier) {
            match self.account.new_order(&NewOrder::new(&identifiers).replaces(id)).await {
                Ok(order) => return Ok(order),
                Err(Error::Unsupported(_)) => {}
                // Such as a certificate of another account: it can be renewed all the same.
                Err(error) => tracing::debug!("the order for {name} is repeated without `replaces`: {error}"),
            }
        }
        let order = self.account.new_order(&NewOrder::new(&identifiers)).await;
        order.map_err(|error| self.failure(error))
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
            ChallengeKind::Http01 => Answer::http(&self.shared, &challenge.token, authorization.as_str())?,
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
        failure(&self.shared, &self.http, error)
    }
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

/// The identifier of a certificate for the ACME server; none if the certificate does not name the key of its authority.
fn identifier(certificate: &Identity) -> Option<CertificateIdentifier<'static>> {
    let id = CertificateIdentifier::try_from(certificate.certificate()?).ok()?;
    Some(id.into_owned())
}

fn failure(shared: &Shared, http: &Http, error: Error) -> ObtainError {
    let server = shared.spec.server();
    let (kind, message) = match error {
        Error::Api(problem) if kind_of(&problem) == "accountDoesNotExist" => {
            // Such as that of a test server that has started anew. The next attempt registers another one.
            let _ = std::fs::remove_file(shared.storage.account());
            let message = "the ACME server does not know the account: another one is registered";
            (ErrorKind::Unavailable, message.to_owned())
        }
        Error::Api(problem) => {
            let message = format!("the ACME server {server} refuses: {}", describe(&problem));
            let kind = if is_temporary(&problem) { ErrorKind::Unavailable } else { ErrorKind::Rejected };
            (kind, message)
        }
        error => (ErrorKind::Unavailable, format!("the ACME server {server} is unavailable: {error}")),
    };
    ObtainError { kind, message, retry_after: http.retry_after() }
}

/// The text of the ACME server.
fn describe(problem: &Problem) -> String {
    let kind = kind_of(problem);
    let detail = problem.detail.as_deref().unwrap_or_default();
    let parts = problem.subproblems.iter().filter_map(|part| part.detail.as_deref());
    let all: Vec<&str> = [detail].into_iter().chain(parts).filter(|text| !text.is_empty()).collect();
    match (all.is_empty(), kind) {
        (true, kind) => kind.to_owned(),
        (false, "") => all.join("; "),
        (false, kind) => format!("{} ({kind})", all.join("; ")),
    }
}

/// The type of an error without its namespace.
fn kind_of(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix(ERROR).unwrap_or(kind)
}

/// Whether the ACME server has a problem that may be gone soon.
fn is_temporary(problem: &Problem) -> bool {
    problem.status.is_some_and(|status| status >= 500) || kind_of(problem) == "badNonce"
}
