//! The protocol: orders for certificates.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus, Problem, RetryPolicy,
};

use super::account::{StoredAccount, account, broken, http};
use super::answer::Answer;
use super::error::ObtainError;
use super::http::Http;
use super::problem::{asks_to_wait, describe, failure, is_temporary};
use super::renewal_info::identifier;
use super::shared::InstalledCertificates;
use super::spec::ChallengeKind;
use super::storage::Lock;
use crate::tls::Identity;

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
