//! Checks the limits of requests: charges in, a [`Permit`] or a [`Denial`] out, never an error.

mod admission;
mod breaker;
mod debt_payment;
mod denial_cache;
mod limits;
mod local_fallback;
mod outage_ledger;
mod peek;
mod raise_reader;
mod raised_limits;
mod raises;
mod reservation;
mod slots;
mod status;
mod store_client;

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use self::admission::{Admission, Denial, HeldSlots, Permit};
pub use self::breaker::Breakers;
pub use self::denial_cache::DenialCache;
pub use self::limits::{Limits, OnStoreFailure};
pub use self::outage_ledger::OutageLedger;
pub use self::raises::{ActiveRaise, Raises};
pub use self::reservation::Reservation;
pub use self::status::{LimitStatus, LimitStatuses, StatusSource};

use self::breaker::Breaker;
use self::local_fallback::{LocalDecisions, LocalFallback, ShareRefunds};
use self::raised_limits::RaisedLimits;
use self::reservation::Origin;
use self::slots::SlotOwner;
use self::store_client::StoreClient;
use crate::limit::Charge;
use crate::store::{Memory, Redis, Store, StoreError};
use crate::telemetry::{Counts, DecisionSource, Outcome};
use crate::time::cached_now;

/// One worker's limiter: checks limits in the store, and applies `on_store_failure` while the store is unavailable. A clone
/// uses the same connection.
#[derive(Clone, Debug)]
pub struct Limiter {
    client: StoreClient,
    /// Denials of Redis; not used with the memory store, which decides as fast.
    denials: Arc<DenialCache>,
    raises: Arc<Raises>,
    raised: Rc<RaisedLimits>,
}

/// The state of a store that all workers share.
#[derive(Clone, Debug)]
pub struct SharedState {
    /// Counts by the shares of this process while the store is unavailable.
    pub fallback: Arc<Memory>,
    /// The circuit breakers of all workers.
    pub breakers: Arc<Breakers>,
    /// Cached denials; must be cleared when something is reset or refunded by hand.
    pub denials: Arc<DenialCache>,
    /// The charges admitted while the store was unavailable, and not paid yet.
    pub ledger: Arc<OutageLedger>,
    /// The raised numbers of single keys.
    pub raises: Arc<Raises>,
    /// How many proxies share the store.
    pub instances: NonZeroU64,
}

impl SharedState {
    /// The state for a store that was not used yet.
    #[must_use]
    pub fn new(fallback: Arc<Memory>, instances: NonZeroU64) -> Self {
        let (breakers, denials, ledger) = (Arc::default(), Arc::<DenialCache>::default(), Arc::default());
        let raises = Arc::new(Raises::new(Arc::clone(&denials)));
        Self { fallback, breakers, denials, ledger, raises, instances }
    }
}

/// How long after an outage charges are also taken from the shares, if there are other proxies. In this time they notice that
/// the store is available again, and pay: at most half a second until they are connected, and as long until they probe it.
const TRIAL: Duration = Duration::from_millis(1_500);
/// How often a limiter checks whether it is still used.
const UNUSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Limiter {
    /// One worker's limiter over its connection to the store.
    #[must_use]
    pub fn new(store: Store, shared: SharedState) -> Self {
        let SharedState { fallback: memory, breakers, denials, ledger, raises, instances } = shared;
        let trial = if instances == NonZeroU64::MIN { Duration::ZERO } else { TRIAL };
        let breaker = Rc::new(Breaker::new(&breakers, trial));
        let (slots, counts) = (Arc::default(), Arc::default());
        let fallback = LocalFallback { memory, ledger, breaker, slots, counts };
        let raised = Rc::new(RaisedLimits::new(Arc::clone(&raises)));
        Self { client: StoreClient { store, fallback, payable: Rc::default() }, denials, raises, raised }
    }

    /// The same limiter, which records its decisions in `counts`.
    #[must_use]
    pub fn with_counts(&self, counts: Arc<Counts>) -> Self {
        let mut limiter = self.clone();
        limiter.client.fallback.counts = counts;
        limiter
    }

    /// Whether the limiter uses the store that `shared` is about.
    #[must_use]
    pub fn uses_same_store(&self, shared: &SharedState) -> bool {
        Arc::ptr_eq(&self.denials, &shared.denials)
    }

    /// The fields of a consumer's record in Redis; none if there is no such record. It is named by the hash of a credential.
    ///
    /// # Errors
    /// If the store is unavailable, or keeps nothing but counts.
    pub async fn consumer_record(&self, hash: &str) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let StoreClient { store, fallback, .. } = &self.client;
        let Store::Redis(redis) = store else { return Ok(Vec::new()) };
        if fallback.breaker.is_open() {
            return Err(StoreError::NotConnected("the circuit breaker is open".to_owned()));
        }
        let read = redis.consumer_record(hash).await;
        match &read {
            Ok(_) => self.client.record_success(),
            // A missing permission for this command says nothing about the calls of limits.
            Err(StoreError::ErrorReply(_)) => {}
            Err(error) => self.client.record_failure(error),
        }
        read
    }

    /// Decides a request: all of its charges are made, or none.
    pub async fn decide(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        if charges.is_empty() {
            return Admission::unlimited();
        }
        let raised = self.raised.apply(limits, charges, cached_now());
        let (limits, charges) = match &raised {
            Some(raised) => (&*raised.limits, &raised.charges[..]),
            None => (limits, charges),
        };
        let StoreClient { store, fallback, .. } = &self.client;
        if let Some(denials) = limits.impossible(charges) {
            for status in &denials {
                fallback.counts.record_decision(status.policy, Outcome::Denied, DecisionSource::Config);
            }
            return Admission::limited(denials);
        }
        let redis = match store {
            Store::Memory(memory) => return self.decide_in_memory(memory, limits, charges),
            Store::Redis(redis) => redis,
        };
        if fallback.breaker.is_open() {
            return self.decide_locally(limits, charges, None);
        }
        if let Some(known) = self.denials.check(&limits.policies, charges, cached_now()) {
            fallback.record_cached_denials(&limits.policies, &known);
            return Admission::limited(known);
        }
        // Boxed so that the Redis path does not enlarge every request's future.
        Box::pin(self.decide_in_redis(redis, limits, charges)).await
    }

    /// Reads the state of each limit that `charges` name, without a charge.
    pub async fn peek(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        match self.raised.apply(limits, charges, cached_now()) {
            Some(raised) => peek::peek(&self.client, &raised.limits, &raised.charges).await,
            None => peek::peek(&self.client, limits, charges).await,
        }
    }

    #[inline]
    fn decide_in_memory(&self, memory: &Arc<Memory>, limits: &Limits, charges: &[Charge]) -> Admission {
        let fallback = &self.client.fallback;
        let owner = || SlotOwner::local(memory, &limits.policies);
        let (charges, slots) = fallback.slots.request(limits, owner, charges);
        let decisions = memory.take(&limits.policies, &charges);
        self.client.record_success();
        fallback.counts.record_decisions(&limits.policies, &charges, &decisions, DecisionSource::Memory);
        let mut admission = Admission::new(&limits.policies, &charges, &decisions, slots);
        admission.reserve(|| {
            Reservation::new(&self.client, limits, &charges, &decisions, Origin::Store(Vec::new()))
        });
        admission
    }

    async fn decide_in_redis(&self, redis: &Redis, limits: &Limits, charges: &[Charge]) -> Admission {
        let fallback = &self.client.fallback;
        // After an outage Redis does not know all charges until every proxy has paid its debts. Until then a request must
        // also fit the share of this process, or several proxies could admit more than the limit.
        let shares = if fallback.is_settled(limits, charges) {
            ShareRefunds::new()
        } else {
            match fallback.take_shares(limits, charges) {
                Ok(shares) => shares,
                Err(denied) => {
                    // Redis is not called: the request is denied whatever its decision would be.
                    let LocalDecisions { charges, decisions, slots } = *denied;
                    return Admission::new(&limits.shares, &charges, &decisions, slots);
                }
            }
        };
        // Requested before the call: if the client disconnects during it, the store may have given the slots.
        let (requested, slots) = fallback.slots.request(limits, SlotOwner::store, charges);
        // Before the call, so that no denial outlives its `retry_after`, or a reset that clears the cache during the call.
        let lookup = self.denials.lookup(cached_now());
        match redis.take(&limits.policies, &requested).await {
            Ok(decisions) => {
                self.client.record_success();
                let source = DecisionSource::Store;
                fallback.counts.record_decisions(&limits.policies, &requested, &decisions, source);
                let mut admission = Admission::new(&limits.policies, &requested, &decisions, slots);
                // All charges of a request are made or none, also in the shares.
                if admission.verdict.is_err() {
                    fallback.refund_shares(limits, &shares);
                }
                // If Redis fails, the limits continue from its last decisions and not from empty counts.
                fallback.seed(limits, &requested, &decisions);
                // On a cluster the charges of a denied request are refunded, so that a denial by them may soon be outdated.
                if !redis.may_roll_back() {
                    self.denials.record(&limits.policies, &requested, &decisions, lookup);
                }
                let origin = || Origin::Store(shares.into_vec());
                admission
                    .reserve(|| Reservation::new(&self.client, limits, &requested, &decisions, origin()));
                admission
            }
            Err(error) => {
                self.client.record_failure(&error);
                // `decide_locally` charges the shares itself.
                fallback.refund_shares(limits, &shares);
                self.decide_locally(limits, charges, Some(&error))
            }
        }
    }

    /// Decides without the store, after `error` or without a call to it. A limit that denies because the store is unavailable
    /// takes precedence over one whose share is used up.
    fn decide_locally(&self, limits: &Limits, charges: &[Charge], error: Option<&StoreError>) -> Admission {
        let fallback = &self.client.fallback;
        // Before the shares are charged: a request that such a limit denies must not use them up.
        if fallback.denies(limits, charges) {
            // A retry before the next probe of the store would be denied as well.
            return Admission::unavailable(fallback.breaker.until_probe());
        }
        let LocalDecisions { charges, decisions, slots } = fallback.decide(limits, charges, error);
        let mut admission = Admission::new(&limits.shares, &charges, &decisions, slots);
        admission.source = StatusSource::Local;
        admission.reserve(|| {
            Reservation::new(&self.client, limits, &charges, &decisions, Origin::fallback(error))
        });
        admission
    }

    /// Waits for the first connection to the store and probes it, for half a second at most.
    pub async fn connect(&self) {
        self.client.fallback.breaker.connect(&self.client.store).await;
        raise_reader::update(&self.client, &self.raises).await;
    }

    /// Runs the background work for as long as the limiter has another clone or a slot: releases slots, renews their leases,
    /// probes a store that does not reply or is idle, and pays debts.
    pub async fn run_maintenance(self) {
        tokio::select! {
            () = self.client.fallback.slots.run_maintenance(&self.client.store) => {}
            () = self.run_probes() => {}
            () = self.client.run_payments() => {}
            () = raise_reader::run(&self.client, &self.raises) => {}
            () = self.wait_until_unused() => self.release_slots().await,
        }
    }

    async fn wait_until_unused(&self) {
        let LocalFallback { breaker, slots, .. } = &self.client.fallback;
        let mut interval = tokio::time::interval(UNUSED_CHECK_INTERVAL);
        while Rc::strong_count(breaker) > 1 || !slots.is_empty() {
            interval.tick().await;
        }
    }

    async fn run_probes(&self) {
        let StoreClient { store, fallback, .. } = &self.client;
        let LocalFallback { memory, breaker, slots, .. } = fallback;
        loop {
            breaker.wait_until_open(store).await;
            slots.count_locally(memory);
            breaker.wait_until_recovered(store).await;
            // Paid before the breaker closes, so that the store's next decisions count what was admitted meanwhile.
            while !self.client.pay_debts().await {
                breaker.wait_until_recovered(store).await;
            }
            slots.restore(store).await;
            // The store may have lost its state, or be another one.
            self.denials.clear();
            breaker.close();
        }
    }

    /// Releases the slots of a worker's last requests in the store, and pays debts.
    pub async fn release_slots(&self) {
        let StoreClient { store, fallback, .. } = &self.client;
        // There is no other attempt: slots that the store does not release now expire with their leases.
        let _ = fallback.slots.release(store).await;
        if !fallback.breaker.is_open() {
            let _ = self.client.pay_debts().await;
        }
    }
}

#[cfg(test)]
mod tests;
