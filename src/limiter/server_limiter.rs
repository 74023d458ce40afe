//! Decides the charges on the keys of one server of the store, for one worker.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::admission::Admission;
use super::breaker::Breaker;
use super::denial_cache::{CacheLookup, DenialCache};
use super::grants::{self, GrantTable, SplitCharges, TakenUnits};
use super::in_process::deny_impossible;
use super::kept_slots::SlotOwner;
use super::limits::Limits;
use super::local_fallback::LocalFallback;
use super::pending_admission::PendingAdmission;
use super::raises::{RaisedLimits, Raises};
use super::reservation::{Origin, Reservation};
use super::reserved_units::ReservedUnits;
use super::settlement::SettlementContext;
use super::shared_state::{self, SharedState};
use super::slots::WorkerSlots;
use super::store_client::StoreClient;
use crate::limit::{Charge, DecidedCharge};
use crate::store::{Memory, Redis, Store};
use crate::telemetry::{Counts, DecisionSource};
use crate::time::{BootTime, cached_now, periodic};

/// One worker's limiter for the keys of one server: checks limits in the store, and applies `on_store_failure` while the store is
/// unavailable. A clone uses the same connection.
#[derive(Clone, Debug)]
pub(super) struct ServerLimiter {
    pub client: StoreClient,
    /// Denials of Redis; not used with the memory store, which decides as fast.
    pub denials: Arc<DenialCache>,
    /// Units of limits with `ahead` that can be spent without a call to Redis.
    pub grants: Arc<GrantTable>,
    /// Units of requests in flight, of limits that settle costs.
    pub reserved: Arc<ReservedUnits>,
    raises: Arc<Raises>,
    pub raised: Rc<RaisedLimits>,
    users: Users,
}

/// How long after an outage charges are also taken from the shares, if there are other proxies. In this time they notice that
/// the store is available again, and pay: at most half a second until they are connected, and as long until they probe it.
const TRIAL: Duration = Duration::from_millis(1_500);

impl ServerLimiter {
    /// One worker's limiter over its connection to the store.
    pub fn new(store: Store, shared: SharedState) -> Self {
        let SharedState {
            fallback: memory,
            breakers,
            denials,
            grants,
            ledger,
            kept_slots,
            reserved,
            raises,
            instances,
        } = shared;
        let trial = if instances == NonZeroU64::MIN { Duration::ZERO } else { TRIAL };
        let has_several_nodes = matches!(&store, Store::Redis(redis) if redis.has_several_nodes());
        let breaker = Rc::new(Breaker::new(&breakers, trial, has_several_nodes));
        let (slots, counts) = (Arc::new(WorkerSlots::new(&kept_slots)), Arc::default());
        let fallback = LocalFallback { memory, ledger, breaker, slots, counts };
        let raised = Rc::new(RaisedLimits::new(Arc::clone(&raises)));
        Self {
            client: StoreClient { store, fallback, payable: Rc::default() },
            denials,
            grants,
            reserved,
            raises,
            raised,
            users: Users::default(),
        }
    }

    /// This limiter, with `counts` as the counters of its decisions.
    pub fn with_counts(&self, counts: Arc<Counts>) -> Self {
        let mut limiter = self.clone();
        limiter.client.fallback.counts = counts;
        limiter
    }

    /// Whether the limiter uses the store that `shared` is about.
    pub fn uses_same_store(&self, shared: &SharedState) -> bool {
        Arc::ptr_eq(&self.denials, &shared.denials)
    }

    /// Whether the circuit breaker is closed, so that calls are made.
    pub fn is_available(&self) -> bool {
        !self.client.fallback.breaker.is_open()
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
        self.decide_charges(limits, charges).await
    }

    /// Decides a request after a call to the server has failed: by what this process knows, without another call.
    pub fn decide_locally(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        let raised = self.raised.apply(limits, charges, cached_now());
        let (limits, charges) = match &raised {
            Some(raised) => (&*raised.limits, &raised.charges[..]),
            None => (limits, charges),
        };
        if !limits.grant_units(charges) {
            return PendingAdmission::new(self, limits, None).fail(charges, None);
        }
        match self.decide_from_grants(limits, charges) {
            Ok(admission) => admission,
            Err(split) => PendingAdmission::new(self, limits, Some(split.taken)).fail(&split.missing, None),
        }
    }

    /// Decides the charges of a request by these numbers, whatever raises there are.
    pub async fn decide_charges(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        let StoreClient { store, fallback, .. } = &self.client;
        if let Some(denied) = deny_impossible(limits, charges, &fallback.counts) {
            return denied;
        }
        let redis = match store {
            Store::Memory(memory) => return self.decide_in_memory(memory, limits, charges),
            Store::Redis(redis) => redis,
        };
        if !limits.grant_units(charges) {
            return self.decide_missing(redis, limits, charges, None).await;
        }
        match self.decide_from_grants(limits, charges) {
            Ok(admission) => admission,
            Err(split) => {
                // Boxed like the Redis path.
                Box::pin(async {
                    let SplitCharges { taken, missing, .. } = *split;
                    self.decide_missing(redis, limits, &missing, Some(taken)).await
                })
                .await
            }
        }
    }

    /// Decides charges that held grants can't decide; `taken` are the others of the request.
    async fn decide_missing(
        &self,
        redis: &Redis,
        limits: &Limits,
        charges: &[Charge],
        taken: Option<TakenUnits>,
    ) -> Admission {
        let fallback = &self.client.fallback;
        if fallback.breaker.is_open() {
            return PendingAdmission::new(self, limits, taken).fail(charges, None);
        }
        if let Some(mut known) = self.denials.check(&limits.policies, charges, cached_now()) {
            if let Some(taken) = taken {
                known = taken.deny(&limits.policies, known, BootTime::now());
            }
            fallback.record_denials(&limits.policies, &known, DecisionSource::Cache);
            return Admission::limited(known);
        }
        // Boxed so that the Redis path does not enlarge every request's future.
        Box::pin(async move { PendingAdmission::new(self, limits, taken).decide(redis, charges).await }).await
    }

    /// Decides a request whose charges held grants decide, or one of whose charges a paced grant denies.
    ///
    /// # Errors
    /// The charges that the store must decide.
    fn decide_from_grants(
        &self,
        limits: &Limits,
        charges: &[Charge],
    ) -> Result<Admission, Box<SplitCharges>> {
        let counts = &self.client.fallback.counts;
        let unsettled = self.client.fallback.unless_settled(limits, charges);
        let split = grants::take_units(&self.grants, limits, charges, unsettled, BootTime::now());
        for charge in &split.low {
            grants::refill(&self.grants, &self.client, limits, charge);
        }
        if split.taken.denies(&limits.policies) {
            let others = self.denials.shown(&limits.policies, &split.missing, cached_now());
            let statuses = split.taken.deny(&limits.policies, others, BootTime::now());
            self.client.fallback.record_denials(&limits.policies, &statuses, DecisionSource::Ahead);
            return Ok(Admission::limited(statuses));
        }
        if !split.missing.is_empty() {
            return Err(Box::new(split));
        }
        let decided = split.taken.decided();
        counts.record_decisions(&limits.policies, &decided, DecisionSource::Ahead);
        let mut admission = Admission::new(&limits.policies, &decided, None);
        admission.pass_taken(|| self.settlement_context(), limits, Some(split.taken));
        Ok(admission)
    }

    /// Where the reservation of a request is settled.
    pub fn settlement_context(&self) -> SettlementContext {
        SettlementContext {
            client: self.client.clone(),
            denials: Arc::clone(&self.denials),
            reserved: Arc::clone(&self.reserved),
        }
    }

    #[inline]
    fn decide_in_memory(&self, memory: &Arc<Memory>, limits: &Limits, charges: &[Charge]) -> Admission {
        let fallback = &self.client.fallback;
        let owner = || SlotOwner::local(memory, &limits.policies);
        let (charges, slots) = fallback.slots.request(limits, owner, charges);
        let decided = memory.decide(&limits.policies, &charges);
        self.client.record_success();
        fallback.counts.record_decisions(&limits.policies, &decided, DecisionSource::Memory);
        let mut admission = Admission::new(&limits.policies, &decided, slots);
        let origin = Origin::Store(Vec::new());
        admission.reserve(|| Reservation::new(|| self.settlement_context(), limits, &decided, origin));
        admission
    }

    /// Records the decisions of Redis, for requests that are decided without it.
    pub fn record_reply(
        &self,
        redis: &Redis,
        limits: &Limits,
        decided: &[DecidedCharge],
        lookup: CacheLookup,
    ) {
        // If Redis fails, the limits continue from its last decisions and not from empty counts. These do not count units
        // that are held: they can be spent besides.
        self.client.fallback.seed(limits, decided);
        // On a cluster the charges of a denied request are refunded, so that a denial by them may soon be outdated.
        if !redis.may_roll_back() {
            self.denials.record(&limits.policies, decided, lookup);
        }
    }

    /// Waits for the first connection to the store and probes it, for half a second at most.
    pub async fn connect(&self) {
        self.client.fallback.breaker.connect(&self.client.store).await;
        if !self.client.fallback.breaker.is_open() {
            // What can't be read now is read by the main thread.
            let _ = shared_state::update(&self.client.store, &self.raises).await;
        }
    }

    /// Runs the background work for as long as the limiter has another clone or a slot: releases slots, renews their leases,
    /// returns grants that would lapse, probes a store that does not reply or is idle, and pays debts.
    pub async fn run_maintenance(mut self) {
        self.users.leave();
        tokio::select! {
            () = self.client.fallback.slots.run_maintenance(&self.client.store) => {}
            () = self.client.fallback.slots.run_sweeps() => {}
            () = self.client.run_probes(&self.denials) => {}
            () = self.client.run_payments() => {}
            () = grants::run_returns(&self.client, &self.grants) => {}
            () = self.wait_until_unused() => self.release_slots().await,
        }
    }

    async fn wait_until_unused(&self) {
        let LocalFallback { breaker, slots, .. } = &self.client.fallback;
        // The last requests may still have slots and reservations.
        self.users.gone(|| Rc::strong_count(breaker) == 1 && slots.is_empty()).await;
    }

    /// Releases the slots of a worker's last requests in the store, returns the grants of the process, and pays debts.
    pub async fn release_slots(&self) {
        let StoreClient { store, fallback, .. } = &self.client;
        fallback.slots.release_last(store).await;
        if !fallback.breaker.is_open() {
            grants::return_all(&self.client, &self.grants).await;
            let _ = self.client.pay_debts().await;
        }
    }
}

/// How often it is checked whether the last requests have ended.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One of the clones of a limiter.
#[derive(Clone, Debug)]
struct Users {
    unused: Rc<Notify>,
    /// None in the background work.
    in_use: Option<Rc<InUse>>,
}

/// Dropped with the last clone.
#[derive(Debug)]
struct InUse(Rc<Notify>);

impl Default for Users {
    fn default() -> Self {
        let unused = Rc::<Notify>::default();
        Self { in_use: Some(Rc::new(InUse(Rc::clone(&unused)))), unused }
    }
}

impl Users {
    /// This clone is that of the background work.
    pub fn leave(&mut self) {
        self.in_use = None;
    }

    /// Waits until the others are dropped, and then until `is_unused`.
    pub async fn gone(&self, is_unused: impl Fn() -> bool) {
        self.unused.notified().await;
        let mut check = periodic(CHECK_INTERVAL);
        while !is_unused() {
            check.tick().await;
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
