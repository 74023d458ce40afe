//! What is counted on the way of a request.
//!
//! Each worker has counters of its own, on cache lines of their own, so that to count is an addition that no
//! other core takes part in. They are found once, when a configuration is taken up, and summed when somebody
//! reads them. A limit or route keeps its counters under its name for as long as the configuration has it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;

use super::upstreams::{NamedUpstream, UpstreamCounts, UpstreamSums};
use crate::id_vec::IdVec;
use crate::limit::{Charge, Decision, DenyReason, Policy, PolicyId};
use crate::time::Micros;

/// What came of one limit for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It let the request pass; another limit may have refused it, and then nothing was charged.
    Allowed,
    /// Its quota was used up.
    Denied,
    /// The key is banned.
    Banned,
    /// The key is blocked, by the file or by hand.
    Blocked,
    /// A part of the key was missing, and the limit refuses such requests.
    MissingKey,
    /// The key is in the limit's `allow`.
    Exempt,
    /// The store was away; this process decided with its share, and let the request pass.
    LocalAllowed,
    /// The store was away; this process decided with its share, and refused.
    LocalDenied,
    /// The store was away, and the limit says that then everything passes.
    UnaskedAllowed,
    /// The store was away, and the limit says that then nothing passes.
    UnaskedDenied,
    /// A limit in shadow mode would have let it pass.
    ShadowAllowed,
    /// A limit in shadow mode would have refused it.
    ShadowDenied,
}

/// How a call to the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// With an answer.
    Answered,
    /// There was no connection.
    Away,
    /// The connection ended before the answer.
    Lost,
    /// No answer came in time.
    Deadline,
    /// With an error.
    Refused,
    /// With an answer that makes no sense.
    Garbled,
    /// It was not made: too many requests waited for it.
    Busy,
}

/// What is counted of answers: the first digits of their status codes, from 1xx to 5xx, and that there was none.
pub(super) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];
/// The cells of [`CLASSES`].
pub(super) const CLASS_CELLS: usize = CLASSES.len();

/// The upper bounds of the buckets that a request's duration falls into; what is longer has one more.
pub(super) const DURATIONS: [Duration; 15] = [
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// How many of each duration, and at the end their sum in microseconds.
pub(super) const DURATION_CELLS: usize = DURATIONS.len() + 2;

/// Counters that are written together; processors fetch cache lines in pairs of 64 bytes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counters<const N: usize>([AtomicU64; N]);

/// One worker's counters, in the places of one configuration's limits and routes. The default counts nothing.
#[derive(Debug, Default)]
pub struct Counts {
    limits: IdVec<PolicyId, Arc<ByOutcome>>,
    routes: Box<[Arc<ByClass>]>,
    unrouted: Arc<ByClass>,
    durations: Arc<Counters<DURATION_CELLS>>,
    store: Arc<Counters<{ StoreCall::ALL.len() }>>,
}

type ByOutcome = Counters<{ Outcome::ALL.len() }>;
type ByClass = Counters<CLASS_CELLS>;

/// Every worker's counters, by name.
#[derive(Debug, Default)]
pub(super) struct Workers(Mutex<BTreeMap<usize, Named>>);

/// One worker's counters, by name.
#[derive(Debug, Default)]
struct Named {
    limits: BTreeMap<Box<str>, Arc<ByOutcome>>,
    routes: BTreeMap<Box<str>, Arc<ByClass>>,
    unrouted: Arc<ByClass>,
    durations: Arc<Counters<DURATION_CELLS>>,
    store: Arc<Counters<{ StoreCall::ALL.len() }>>,
    upstreams: BTreeMap<Box<str>, NamedUpstream>,
}

/// What all workers have counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub limits: BTreeMap<Box<str>, [u64; Outcome::ALL.len()]>,
    pub routes: BTreeMap<Box<str>, [u64; CLASS_CELLS]>,
    pub unrouted: [u64; CLASS_CELLS],
    pub durations: [u64; DURATION_CELLS],
    pub store: [u64; StoreCall::ALL.len()],
    pub upstreams: BTreeMap<Box<str>, UpstreamSums>,
}

impl Outcome {
    /// Every outcome, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 12] = [
        (Self::Allowed, "allowed"),
        (Self::Denied, "denied"),
        (Self::Banned, "banned"),
        (Self::Blocked, "blocked"),
        (Self::MissingKey, "missing_key"),
        (Self::Exempt, "exempt"),
        (Self::LocalAllowed, "store_failure_local_allowed"),
        (Self::LocalDenied, "store_failure_local_denied"),
        (Self::UnaskedAllowed, "store_failure_allowed"),
        (Self::UnaskedDenied, "store_failure_denied"),
        (Self::ShadowAllowed, "shadow_allowed"),
        (Self::ShadowDenied, "shadow_denied"),
    ];

    /// What a decision of the store comes to.
    fn of(policy: &Policy, decision: &Decision) -> Self {
        match (policy.shadow, decision.allowed, decision.cause) {
            (false, true, _) => Self::Allowed,
            (false, false, DenyReason::Quota) => Self::Denied,
            (false, false, DenyReason::Ban) => Self::Banned,
            (false, false, DenyReason::Block) => Self::Blocked,
            (true, true, _) => Self::ShadowAllowed,
            (true, false, _) => Self::ShadowDenied,
        }
    }

    /// What a decision comes to that this process made by itself while the store was away.
    fn of_local(policy: &Policy, decision: &Decision) -> Self {
        match Self::of(policy, decision) {
            shadow @ (Self::ShadowAllowed | Self::ShadowDenied) => shadow,
            Self::Allowed => Self::LocalAllowed,
            _ => Self::LocalDenied,
        }
    }
}

impl StoreCall {
    /// Every end, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::Answered, "answered"),
        (Self::Away, "away"),
        (Self::Lost, "lost"),
        (Self::Deadline, "deadline"),
        (Self::Refused, "refused"),
        (Self::Garbled, "garbled"),
        (Self::Busy, "busy"),
    ];
}

impl<const N: usize> Counters<N> {
    /// Adds to one counter; nothing is ordered by it.
    pub fn add(&self, place: usize, more: u64) {
        if let Some(counter) = self.0.get(place) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub fn sum_into(&self, sums: &mut [u64; N]) {
        for (sum, counter) in sums.iter_mut().zip(&self.0) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counts {
    /// A limit has said something.
    pub fn decided(&self, policy: PolicyId, outcome: Outcome) {
        if let Some(limit) = self.limits.get(policy) {
            limit.add(outcome as usize, 1);
        }
    }

    /// The store has decided these charges.
    pub fn asked(&self, policies: &[Policy], charges: &[Charge], decisions: &[Decision]) {
        self.all(policies, charges, decisions, Outcome::of);
    }

    /// These limits are known to refuse; the store was not asked.
    pub fn refused<'a>(
        &self,
        policies: &[Policy],
        known: impl IntoIterator<Item = (PolicyId, &'a Decision)>,
    ) {
        for (id, decision) in known {
            self.decided(id, Outcome::of(&policies[id], decision));
        }
    }

    /// This process has decided them by itself, because the store was away.
    pub fn decided_alone(&self, policies: &[Policy], charges: &[Charge], decisions: &[Decision]) {
        self.all(policies, charges, decisions, Outcome::of_local);
    }

    fn all(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        outcome: impl Fn(&Policy, &Decision) -> Outcome,
    ) {
        for (charge, decision) in charges.iter().zip(decisions) {
            self.decided(charge.policy, outcome(&policies[charge.policy], decision));
        }
    }

    /// A request has its answer; `route` is the place of the route that it matched.
    pub fn answered(&self, route: Option<usize>, status: StatusCode) {
        // Those beyond 5xx are of no class.
        if let class @ 1..=5 = status.as_u16() / 100 {
            self.count_class(route, usize::from(class - 1));
        }
    }

    /// A request got no answer, since its client has gone away before.
    pub fn unanswered(&self, route: Option<usize>) {
        self.count_class(route, CLASS_CELLS - 1);
    }

    fn count_class(&self, route: Option<usize>, class: usize) {
        let counters = match route {
            Some(route) => self.routes.get(route),
            None => Some(&self.unrouted),
        };
        if let Some(counters) = counters {
            counters.add(class, 1);
        }
    }

    /// A request took so long, from its head to the end of its answer.
    pub fn took(&self, took: Duration) {
        let place = DURATIONS.iter().position(|bound| took <= *bound).unwrap_or(DURATIONS.len());
        self.durations.add(place, 1);
        self.durations.add(DURATION_CELLS - 1, Micros::from(took).0);
    }

    /// The store was called.
    pub fn called_store(&self, end: StoreCall) {
        self.store.add(end as usize, 1);
    }
}

impl Workers {
    /// The counters of one worker for these limits and routes. Policies of one name share them.
    pub fn counts<'a>(
        &self,
        worker: usize,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
    ) -> Counts {
        let mut workers = self.0.lock();
        let named = workers.entry(worker).or_default();
        let limit = |policy: &Policy| Arc::clone(named.limits.entry(policy.name.clone()).or_default());
        let limits = policies.iter().map(limit).collect();
        let routes = routes.map(|name| Arc::clone(named.routes.entry(name.into()).or_default())).collect();
        Counts {
            limits,
            routes,
            unrouted: Arc::clone(&named.unrouted),
            durations: Arc::clone(&named.durations),
            store: Arc::clone(&named.store),
        }
    }

    /// Forgets the counters of limits, routes and upstreams that are no more.
    pub fn retain<'a>(
        &self,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
        upstreams: impl Iterator<Item = &'a str>,
    ) {
        let limits: HashSet<&str> = policies.iter().map(|policy| &*policy.name).collect();
        let (routes, upstreams): (HashSet<&str>, HashSet<&str>) = (routes.collect(), upstreams.collect());
        for named in self.0.lock().values_mut() {
            named.limits.retain(|name, _| limits.contains(&**name));
            named.routes.retain(|name, _| routes.contains(&**name));
            named.upstreams.retain(|name, _| upstreams.contains(&**name));
        }
    }

    /// The counters of one worker for an upstream with servers of these labels, in their places.
    pub fn upstream<'a>(
        &self,
        worker: usize,
        name: &str,
        urls: impl Iterator<Item = &'a str>,
    ) -> UpstreamCounts {
        let mut workers = self.0.lock();
        workers.entry(worker).or_default().upstreams.entry(name.into()).or_default().counts(urls)
    }

    /// What all workers have counted so far.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for named in self.0.lock().values() {
            for (name, counters) in &named.limits {
                counters.sum_into(sums.limits.entry(name.clone()).or_default());
            }
            for (name, counters) in &named.routes {
                counters.sum_into(sums.routes.entry(name.clone()).or_default());
            }
            named.unrouted.sum_into(&mut sums.unrouted);
            named.durations.sum_into(&mut sums.durations);
            named.store.sum_into(&mut sums.store);
            for (name, upstream) in &named.upstreams {
                upstream.sum_into(sums.upstreams.entry(name.clone()).or_default());
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests;
