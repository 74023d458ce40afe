//! Access to the store: records whether it replies, refunds, and pays debts.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::debt_payment::pay;
use super::denial_cache::DenialCache;
use super::limits::Limits;
use super::local_fallback::LocalFallback;
use super::slots::SlotSet;
use super::status::{LimitStatuses, enforced};
use crate::limit::{Charge, DecidedCharge, DecidedCharges, GrantRequest};
use crate::store::{Granted, Grants, Store, StoreError};
use crate::telemetry::StoreRequest;
use crate::time::monotonic;

/// How often debts are paid that other workers, or single failures, have left.
const PAYMENT_INTERVAL: Duration = Duration::from_millis(500);
/// The pause between two payments.
const PAYMENT_PAUSE: Duration = Duration::from_millis(10);

/// One worker's access to the store. A clone uses the same connection.
#[derive(Clone, Debug)]
pub(super) struct StoreClient {
    pub store: Store,
    pub fallback: LocalFallback,
    /// Wakes `run_payments` when the store replies and is owed something.
    pub payable: Rc<Notify>,
}

impl StoreClient {
    pub fn record_success(&self) {
        if let Store::Redis(_) = self.store {
            self.fallback.counts.record_store_request(StoreRequest::Replied);
        }
        self.fallback.breaker.record_success();
        if !self.fallback.ledger.is_empty() {
            self.payable.notify_one();
        }
    }

    pub fn record_failure(&self, error: &StoreError) {
        self.fallback.counts.record_store_request(match error {
            StoreError::NotConnected(_) => StoreRequest::NotConnected,
            StoreError::Lost => StoreRequest::Lost,
            StoreError::Deadline => StoreRequest::Deadline,
            StoreError::ErrorReply(_) | StoreError::SlotMoving => StoreRequest::ErrorReply,
            StoreError::Malformed(_) => StoreRequest::Malformed,
            StoreError::QueueFull | StoreError::Unsent => StoreRequest::Unsent,
        });
        self.fallback.breaker.record_failure(error);
    }

    /// The fields of a consumer's record; see `Limiter::consumer_record`.
    pub async fn consumer_record(&self, hash: &str) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let Store::Redis(redis) = &self.store else { return Ok(Vec::new()) };
        if self.fallback.breaker.is_open() {
            return Err(StoreError::NotConnected("the circuit breaker is open".to_owned()));
        }
        let read = redis.consumer_record(hash).await;
        match &read {
            Ok(_) => self.record_success(),
            // A missing permission for this command says nothing about the calls of limits.
            Err(StoreError::ErrorReply(_)) => {}
            Err(error) => self.record_failure(error),
        }
        read
    }

    /// The decisions and grants of the store, and the decisions on kept slots, which need no call.
    ///
    /// # Errors
    /// If the store is unavailable.
    pub async fn take(
        &self,
        limits: &Limits,
        charges: &[Charge],
        requests: &[GrantRequest],
        slots: Option<&SlotSet>,
    ) -> Result<(DecidedCharges, Grants), StoreError> {
        let missing = slots.map_or(Cow::Borrowed(charges), |slots| slots.missing(charges));
        let mut granted = Granted::default();
        if !missing.is_empty() {
            granted = self.store.take_with_grants(&limits.policies, &missing, requests).await?;
            self.record_success();
        }
        let Granted { decisions, grants } = granted;
        let decided = match slots {
            Some(slots) => slots.join(charges, decisions),
            None => DecidedCharge::join(charges, &decisions),
        };
        Ok((decided, grants))
    }

    /// Refunds units that were taken in the store; returns the decisions of their limits after that. What the store does
    /// not refund stays charged.
    pub async fn refund(&self, limits: &Limits, refunds: &[Charge]) -> LimitStatuses {
        if self.fallback.breaker.is_open() {
            return LimitStatuses::new();
        }
        match &self.store {
            // The nodes of a cluster fail independently.
            Store::Redis(redis) if redis.has_several_nodes() => {
                let tags = refunds.chunk_by(|one, next| one.key == next.key);
                let refunded = join_all(tags.map(|tag| self.refund_in_one_call(limits, tag))).await;
                refunded.into_iter().flatten().collect()
            }
            _ => self.refund_in_one_call(limits, refunds).await,
        }
    }

    async fn refund_in_one_call(&self, limits: &Limits, refunds: &[Charge]) -> LimitStatuses {
        match self.store.apply(&limits.policies, refunds).await {
            Ok(decisions) => {
                self.record_success();
                let decided = DecidedCharge::join(refunds, &decisions);
                self.seed_fallback(limits, &decided);
                enforced(&limits.policies, &decided)
            }
            Err(error) => {
                self.record_failure(&error);
                LimitStatuses::new()
            }
        }
    }

    /// Stores decisions for when the store becomes unavailable, which the memory store can't.
    pub fn seed_fallback(&self, limits: &Limits, decided: &[DecidedCharge]) {
        if let Store::Redis(_) = self.store {
            self.fallback.seed(limits, decided);
        }
    }

    /// Waits for failures of the store, and each time until it is available again; never returns.
    pub async fn run_probes(&self, denials: &DenialCache) {
        let StoreClient { store, fallback, .. } = self;
        if let Store::Memory(_) = store {
            // It is always available.
            return std::future::pending().await;
        }
        let LocalFallback { memory, breaker, slots, .. } = fallback;
        loop {
            breaker.wait_until_open(store).await;
            slots.count_locally(memory);
            breaker.wait_until_recovered(store).await;
            // Paid before the breaker closes, so that the store's next decisions count what was admitted meanwhile.
            while !self.pay_debts().await {
                breaker.wait_until_recovered(store).await;
            }
            slots.restore(store).await;
            // The store may have lost its state, or be another one.
            denials.clear();
            breaker.close();
        }
    }

    /// Pays debts as soon as the store replies, and periodically while there are some; never returns.
    pub async fn run_payments(&self) {
        loop {
            self.fallback.ledger.owes().await;
            let _ = tokio::time::timeout(PAYMENT_INTERVAL, self.payable.notified()).await;
            // Refreshes the thread's cached time after the wait.
            let _ = monotonic();
            if !self.fallback.breaker.is_open() {
                self.pay_debts().await;
                // Other workers may add debts with each request.
                tokio::time::sleep(PAYMENT_PAUSE).await;
            }
        }
    }

    /// Pays debts for two seconds at most; returns whether the store replied.
    pub async fn pay_debts(&self) -> bool {
        match &self.store {
            Store::Redis(redis) => pay(redis, &self.fallback.ledger, &self.fallback.memory).await,
            Store::Memory(_) => true,
        }
    }
}
