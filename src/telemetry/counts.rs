//! Counters of requests and of the decisions on them.
//!
//! Each worker has its own counters. They are looked up by name once, when a configuration is applied, and summed for each
//! scrape ([`super::registry`]). A limit or route keeps its counters across reloads as long as the configuration has its
//! name.
//!
//! They are on cache lines of their own, so that cores do not contend for them: the types that hold counters are aligned to
//! 128 bytes, since processors fetch cache lines in pairs of 64 bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;

use super::histogram::{BucketExemplars, DurationSums, Durations, Exemplar, Exemplars, SizeSums, Sizes};
use super::outcome::{
    DECISION_CELLS, DecisionSource, INTERFACE_CELLS, Interface, LimitOutcome, SettledOutcome, StoreRequest,
    Verdict,
};
use super::trace::TraceId;
use crate::id_vec::IdVec;
use crate::limit::{DecidedCharge, Policy, PolicyId};
use crate::time::{Clock, Nanos};
use crate::usage::Unknown;

/// Classes of responses: the first digit of the status code, 429 apart, or none if the client disconnected first.
pub(super) const CLASSES: [&str; 7] = ["1xx", "2xx", "3xx", "4xx", "5xx", "429", "none"];
/// The index of the class of 5xx.
pub(super) const SERVER_ERROR: usize = 4;
/// The index of the class of 429.
pub(super) const TOO_MANY_REQUESTS: usize = 5;
/// The index of the class of requests without a response.
const NO_RESPONSE: usize = 6;

/// One worker's counters, by the indices of one configuration's limits and routes. The default counts nothing that is
/// shown.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) limits: IdVec<PolicyId, Arc<LimitCounters>>,
    pub(super) routes: Box<[RequestCounts]>,
    /// The counters of requests without a route.
    pub(super) unrouted: RequestCounts,
    pub(super) worker: Arc<WorkerCounters>,
}

/// One worker's counters of the requests of a route, or of requests without a route. The default counts nothing that is shown.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts(pub(super) Arc<OnDemand<RouteCounters>>);

/// One worker's counters of its calls to the store. The default counts nothing that is shown.
#[derive(Clone, Debug, Default)]
pub struct StoreCounts(Arc<WorkerCounters>);

/// One worker's counters of a limit.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct LimitCounters {
    decisions: Counters<DECISION_CELLS>,
    settlement: OnDemand<SettlementCounters>,
}

/// One worker's counters of a limit that settles costs by responses.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SettlementCounters {
    units: Counters<{ SettledOutcome::COUNT }>,
    unknown: Counters<{ Unknown::ALL.len() }>,
}

/// One worker's counters of a route.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct RouteCounters {
    classes: Counters<{ CLASSES.len() }>,
    durations: Durations,
    exemplars: OnDemand<Exemplars>,
}

/// One worker's counters that belong to no limit and no route.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WorkerCounters {
    requests: Counters<INTERFACE_CELLS>,
    decisions: Durations,
    delays: Durations,
    pauses: Durations,
    store_requests: Counters<{ StoreRequest::ALL.len() }>,
    store_waits: Durations,
    store_calls: Durations,
    store_batches: Sizes,
}

/// The sums of a limit's counters.
pub(super) type LimitSums = [u64; DECISION_CELLS];

/// The sums of the counters of a limit that settles costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SettlementSums {
    /// Units, in the order of [`SettledOutcome`].
    pub units: [u64; SettledOutcome::COUNT],
    /// Responses of unknown cost, in the order of [`Unknown`].
    pub unknown: [u64; Unknown::ALL.len()],
}

/// The sums of a route's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteSums {
    pub classes: [u64; CLASSES.len()],
    pub durations: DurationSums,
    /// None without traced requests.
    pub exemplars: Option<Box<BucketExemplars>>,
}

/// The sums of the counters that belong to no limit and no route.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerSums {
    pub requests: [u64; INTERFACE_CELLS],
    pub decisions: DurationSums,
    pub delays: DurationSums,
    pub pauses: DurationSums,
    pub store_requests: [u64; StoreRequest::ALL.len()],
    pub store_waits: DurationSums,
    pub store_calls: DurationSums,
    pub store_batches: SizeSums,
}

impl Counts {
    /// Counts a decision of a limit.
    pub fn record_decision(&self, policy: PolicyId, outcome: LimitOutcome, source: DecisionSource) {
        if let Some(limit) = self.limits.get(policy) {
            limit.decisions.add(outcome.cell(source), 1);
        }
    }

    /// Counts the decisions on these charges.
    pub fn record_decisions(&self, policies: &[Policy], decided: &[DecidedCharge], source: DecisionSource) {
        for DecidedCharge { charge, decision } in decided {
            let policy = &policies[charge.policy];
            let id = policy.configured(charge.policy);
            self.record_decision(id, LimitOutcome::of(policy, decision), source);
        }
    }

    /// Counts units that a request has reserved, or that were settled by its response.
    pub fn record_settled(&self, limit: PolicyId, outcome: SettledOutcome, units: u64) {
        if units > 0
            && let Some(limit) = self.limits.get(limit)
        {
            limit.settlement.get().units.add(outcome as usize, units);
        }
    }

    /// Counts a response whose cost is unknown, so that what was reserved for it stays charged.
    pub fn record_settle_unknown(&self, limit: PolicyId, reason: Unknown) {
        if let Some(limit) = self.limits.get(limit) {
            limit.settlement.get().unknown.add(reason as usize, 1);
        }
    }

    /// Counts a request that was decided.
    pub fn record_request(&self, interface: Interface, verdict: Verdict) {
        self.worker.requests.add(interface.cell(verdict), 1);
    }

    /// Counts how long the decision on a request took.
    pub fn record_decision_duration(&self, took: impl Into<Nanos>) {
        self.worker.decisions.record(took);
    }

    /// Counts how long a limit delays a request.
    pub fn record_delay(&self, delay: Duration) {
        self.worker.delays.record(delay);
    }

    /// Counts how long a connection is not read after a refused request, since the worker is saturated.
    pub fn record_pause(&self, pause: Duration) {
        self.worker.pauses.record(pause);
    }

    /// The counters of the requests of the route with this index, or of those without a route.
    #[must_use]
    pub fn requests(&self, route: Option<usize>) -> &RequestCounts {
        route.and_then(|route| self.routes.get(route)).unwrap_or(&self.unrouted)
    }

    /// Counts a request to the store.
    pub fn record_store_request(&self, end: StoreRequest) {
        self.worker.store_requests.add(end as usize, 1);
    }

    /// The counters of calls to the store.
    #[must_use]
    pub fn store(&self) -> StoreCounts {
        StoreCounts(Arc::clone(&self.worker))
    }
}

impl RequestCounts {
    /// Counts a response.
    pub fn record_response(&self, status: StatusCode) {
        let class = match status.as_u16() {
            429 => TOO_MANY_REQUESTS,
            status @ 100..=599 => usize::from(status / 100 - 1),
            // Status codes from 600 are in no class.
            _ => return,
        };
        self.0.get().classes.add(class, 1);
    }

    /// Counts a request whose client disconnected before the response.
    pub fn record_disconnect(&self) {
        self.0.get().classes.add(NO_RESPONSE, 1);
    }

    /// Counts the duration of a request, from its head to the end of its response. If it is part of a trace that is
    /// recorded, it becomes an exemplar of its bucket.
    pub fn record_duration(&self, took: impl Into<Nanos>, trace: Option<TraceId>) {
        let (route, took) = (self.0.get(), took.into());
        route.durations.record(took);
        if let Some(trace) = trace {
            route.exemplars.get().record(Exemplar { trace, took, at: Clock::System.now() });
        }
    }
}

impl StoreCounts {
    /// Counts how long a request waited for its call.
    pub fn record_wait(&self, waited: Duration) {
        self.0.store_waits.record(waited);
    }

    /// Counts how many requests a call has.
    pub fn record_batch(&self, requests: usize) {
        self.0.store_batches.record(requests);
    }

    /// Counts a call that has ended, with a reply or without.
    pub fn record_call(&self, took: Duration) {
        self.0.store_calls.record(took);
    }
}

impl LimitCounters {
    pub fn sum_into(&self, sums: &mut LimitSums) {
        self.decisions.sum_into(sums);
    }

    /// Adds what was settled.
    pub fn settlement_into(&self, sums: &mut SettlementSums) {
        if let Some(settlement) = self.settlement.used() {
            settlement.units.sum_into(&mut sums.units);
            settlement.unknown.sum_into(&mut sums.unknown);
        }
    }
}

impl RouteCounters {
    /// Adds all but the exemplars.
    pub fn counts_into(&self, sums: &mut RouteSums) {
        self.classes.sum_into(&mut sums.classes);
        self.durations.sum_into(&mut sums.durations);
    }

    pub fn sum_into(&self, sums: &mut RouteSums) {
        self.counts_into(sums);
        if let Some(exemplars) = self.exemplars.used() {
            exemplars.merge_into(sums.exemplars.get_or_insert_default());
        }
    }
}

impl WorkerCounters {
    pub fn sum_into(&self, sums: &mut WorkerSums) {
        self.requests.sum_into(&mut sums.requests);
        self.decisions.sum_into(&mut sums.decisions);
        self.delays.sum_into(&mut sums.delays);
        self.pauses.sum_into(&mut sums.pauses);
        self.store_requests.sum_into(&mut sums.store_requests);
        self.store_waits.sum_into(&mut sums.store_waits);
        self.store_calls.sum_into(&mut sums.store_calls);
        self.store_batches.sum_into(&mut sums.store_batches);
    }
}

/// Counters of one worker.
#[derive(Debug)]
pub(super) struct Counters<const N: usize>([AtomicU64; N]);

/// The counters of each worker, by its number.
#[derive(Debug)]
pub(super) struct PerWorker<T>(Vec<Arc<T>>);

/// Counters that take memory only when something was counted: of many routes and servers, few have requests.
#[derive(Debug)]
pub(super) struct OnDemand<T>(OnceLock<Box<T>>);

/// What was counted between two sums of the same counters; all of the later one if the counters have started again in
/// between, since a limit or route with their name was removed and added again.
pub(super) fn counted_since<const N: usize>(earlier: &[u64; N], later: &[u64; N]) -> [u64; N] {
    let has_restarted = earlier.iter().zip(later).any(|(earlier, later)| later < earlier);
    if has_restarted { *later } else { std::array::from_fn(|index| later[index] - earlier[index]) }
}

impl<const N: usize> Counters<N> {
    /// Adds to one counter. Only the thread of its worker adds, so that it needs no locked instruction; other threads read.
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Adds the values of all counters to `sums`.
    pub fn sum_into(&self, sums: &mut [u64; N]) {
        for (sum, counter) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
        }
    }
}

impl<T: Default> PerWorker<T> {
    /// The counters of a worker.
    pub fn of(&mut self, worker: usize) -> Arc<T> {
        if self.0.len() <= worker {
            self.0.resize_with(worker + 1, Arc::default);
        }
        Arc::clone(&self.0[worker])
    }

    /// The counters of all workers.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|counters| &**counters)
    }
}

impl<T: Default> OnDemand<T> {
    /// The counters, to count something.
    #[inline]
    pub fn get(&self) -> &T {
        self.0.get_or_init(Box::default)
    }

    /// The counters; none if nothing was counted.
    pub fn used(&self) -> Option<&T> {
        self.0.get().map(|counters| &**counters)
    }
}

impl<T: Default> PerWorker<OnDemand<T>> {
    /// The counters of all workers that have counted something.
    pub fn used(&self) -> impl Iterator<Item = &T> {
        self.all().filter_map(OnDemand::used)
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<T> Default for PerWorker<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}
