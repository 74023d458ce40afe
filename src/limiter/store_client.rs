//! Access to the store: records whether it replies, refunds, and pays debts.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;

use super::debt_payment::pay;
use super::limits::Limits;
use super::local_fallback::LocalFallback;
use super::status::{LimitStatuses, enforced};
use crate::limit::{Charge, Decision};
use crate::store::{Store, StoreError};
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

    /// Refunds units that were taken in the store; returns the decisions of their limits after that. What the store does
    /// not refund stays charged.
    pub async fn refund(&self, limits: &Limits, refunds: &[Charge]) -> LimitStatuses {
        if self.fallback.breaker.is_open() {
            return LimitStatuses::new();
        }
        match &self.store {
            // The nodes of a cluster fail independently.
            Store::Redis(redis) if redis.may_roll_back() => {
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
                self.seed_fallback(limits, refunds, &decisions);
                enforced(&limits.policies, refunds, &decisions)
            }
            Err(error) => {
                self.record_failure(&error);
                LimitStatuses::new()
            }
        }
    }

    /// Stores decisions for when the store becomes unavailable, which the memory store can't.
    pub fn seed_fallback(&self, limits: &Limits, charges: &[Charge], decisions: &[Decision]) {
        if let Store::Redis(_) = self.store {
            self.fallback.seed(limits, charges, decisions);
        }
    }

    /// Pays debts as soon as the store replies, and periodically.
    pub async fn run_payments(&self) {
        loop {
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
