//! Access to the store: records whether it replies, refunds, and pays debts.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::denial_cache::DenialCache;
use super::limits::Limits;
use super::local_fallback::LocalFallback;
use super::outage_ledger::{DebtEntry, OutageLedger};
use super::slots::SlotSet;
use super::status::{LimitStatuses, enforced};
use crate::limit::{Charge, DecidedCharge, DecidedCharges, GrantRequest, Policy};
use crate::store::{Granted, Grants, Memory, Redis, Store, StoreError};
use crate::telemetry::{ChargeBack, StoreRequest};
use crate::time::{Timestamp, monotonic};

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

    /// Refunds units that were taken in the store, and makes extra charges; returns the decisions of their limits after that. If
    /// the store is unavailable, what it does not refund stays charged, and it is owed the extra charges. Charges of the same key
    /// must follow each other.
    pub async fn settle(&self, limits: &Limits, charges: &[Charge]) -> LimitStatuses {
        if self.fallback.breaker.is_open() {
            self.fallback.record_extra(limits, charges, true);
            return LimitStatuses::new();
        }
        match &self.store {
            // The nodes of a cluster fail independently.
            Store::Redis(redis) if redis.has_several_nodes() => {
                let tags = charges.chunk_by(|one, next| one.key == next.key);
                let settled = join_all(tags.map(|tag| self.settle_in_one_call(limits, tag))).await;
                settled.into_iter().flatten().collect()
            }
            _ => self.settle_in_one_call(limits, charges).await,
        }
    }

    async fn settle_in_one_call(&self, limits: &Limits, charges: &[Charge]) -> LimitStatuses {
        match self.store.apply(&limits.policies, charges).await {
            Ok(decisions) => {
                self.record_success();
                let decided = DecidedCharge::join(charges, &decisions);
                self.seed_fallback(limits, &decided);
                enforced(&limits.policies, &decided)
            }
            Err(error) => {
                self.record_failure(&error);
                self.fallback.record_extra(limits, charges, error.is_uncharged());
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

/// How many keys are paid at once, and how many charges one call has: it must not block the server for long.
const MAX_CHARGES: usize = 128;
/// The most calls in flight at once: on a cluster each key has its own.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The longest that a worker pays debts before it serves requests from the store again.
const MAX_DURATION: Duration = Duration::from_secs(2);
/// After so many keys with error replies a worker tries the others later: one node of a cluster may fail for all of its
/// keys.
const MAX_FAILED: usize = 1_024;
/// A debt is dropped after so many error replies, which takes minutes.
const MAX_ATTEMPTS: u16 = 1_000;

/// The late charges of one call, and the debts that they pay.
pub(super) struct Payment {
    pub policies: Arc<[Policy]>,
    pub debts: Vec<DebtEntry>,
    pub charges: Vec<Charge>,
}

/// How a payment ended.
enum Paid {
    /// The store has replied; with an error for these debts.
    Replied(Vec<DebtEntry>),
    /// There was no reply.
    Unavailable,
}

/// Pays debts for two seconds at most; returns whether the store replied. Debts that get an error reply are kept, and do
/// not prevent the others from being paid.
pub(super) async fn pay(redis: &Redis, ledger: &OutageLedger, shares: &Memory) -> bool {
    let end = monotonic() + MAX_DURATION;
    let (mut guards, mut failed) = (Vec::new(), Vec::new());
    let replied = loop {
        let (debts, guard) = ledger.take(MAX_CHARGES);
        if debts.is_empty() {
            break true;
        }
        guards.push(guard);
        let mut replied = true;
        let mut payments =
            payments(debts, redis.has_several_nodes(), shares.clock().now()).into_iter().peekable();
        while replied && payments.peek().is_some() {
            let batch: Vec<Payment> = payments.by_ref().take(MAX_CONCURRENT_CALLS).collect();
            for paid in join_all(batch.into_iter().map(|payment| send(redis, ledger, shares, payment))).await
            {
                match paid {
                    Paid::Replied(debts) => failed.extend(debts),
                    Paid::Unavailable => replied = false,
                }
            }
        }
        payments.flat_map(|payment| payment.debts).for_each(|debt| ledger.restore(debt));
        if !replied || failed.len() >= MAX_FAILED || monotonic() >= end {
            break replied;
        }
    };
    for debt in failed {
        ledger.restore(debt);
    }
    replied
}

/// Groups debts by the call that pays them: one for each key if they are on `several_nodes`.
pub(super) fn payments(debts: Vec<DebtEntry>, several_nodes: bool, now: Timestamp) -> Vec<Payment> {
    let mut payments: Vec<Payment> = Vec::new();
    for debt in debts {
        let charges: Vec<Charge> = debt.charges(now).collect();
        let fits = |payment: &&mut Payment| {
            !several_nodes
                && Arc::ptr_eq(&payment.policies, &debt.policies)
                && payment.charges.len() + charges.len() <= MAX_CHARGES
        };
        match payments.last_mut().filter(fits) {
            // All of it has come back by now.
            _ if charges.is_empty() => {}
            Some(payment) => {
                payment.charges.extend(charges);
                payment.debts.push(debt);
            }
            None => {
                let policies = Arc::clone(&debt.policies);
                payments.push(Payment { policies, debts: vec![debt], charges });
            }
        }
    }
    payments
}

/// Sends a payment. If its reply is lost it is not sent again, since it may have been charged.
async fn send(redis: &Redis, ledger: &OutageLedger, shares: &Memory, payment: Payment) -> Paid {
    let Payment { policies, mut debts, charges } = payment;
    let units = charges.iter().map(|charge| charge.cost).sum();
    match redis.apply(&policies, &charges).await {
        Ok(decisions) => {
            ledger.count(ChargeBack::Paid, units);
            for debt in &debts {
                let own = |charge: &Charge| (charge.policy, charge.key) == (debt.policy, debt.key);
                // The last decision on a key counts all of its charges.
                if let Some(decision) = charges.iter().rposition(own).and_then(|last| decisions.get(last)) {
                    debt.seed_share(shares, decision);
                }
            }
            Paid::Replied(Vec::new())
        }
        Err(StoreError::ErrorReply(_)) => {
            for debt in &mut debts {
                debt.error_replies += 1;
            }
            let (given_up, kept): (Vec<DebtEntry>, Vec<DebtEntry>) =
                debts.into_iter().partition(|debt| debt.error_replies >= MAX_ATTEMPTS);
            ledger.count(ChargeBack::Dropped, given_up.iter().map(DebtEntry::units).sum());
            Paid::Replied(kept)
        }
        Err(error) if error.is_uncharged() => {
            for debt in debts {
                ledger.restore(debt);
            }
            Paid::Unavailable
        }
        Err(_) => {
            ledger.count(ChargeBack::Lost, units);
            Paid::Unavailable
        }
    }
}
