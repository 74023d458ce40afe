//! Counters of requests.
//!
//! Each worker has its own counters on their own cache lines, so that cores do not contend for them. They are looked up
//! by name once, when a configuration is applied, and summed for each scrape. A limit or route keeps its counters across
//! reloads as long as the configuration has its name.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;

use super::counters::Counters;
use super::upstreams::{NamedUpstream, UpstreamCounts, UpstreamSums};
use crate::id_vec::IdVec;
use crate::limit::{Charge, Decision, DenyReason, Policy, PolicyId};
use crate::time::Micros;

/// The outcome of one limit for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Allowed. If another limit denied the request, nothing was charged.
    Allowed,
    /// Denied: the quota is used up.
    Denied,
    /// Denied: the key is banned.
    Banned,
    /// Denied: the key is blocked, by the configuration or by an operator.
    Blocked,
    /// Denied: a part of the key is missing.
    MissingKey,
    /// Allowed without a charge: the key is in the limit's `allow`.
    Exempt,
    /// Allowed by this process with its share, because the store was unavailable.
    LocalAllowed,
    /// Denied by this process with its share, because the store was unavailable.
    LocalDenied,
    /// Allowed because the store was unavailable, with `on_store_failure = "allow"`.
    StoreFailureAllowed,
    /// Denied because the store was unavailable, with `on_store_failure = "deny"`.
    StoreFailureDenied,
    /// Shadow mode: it would have been allowed.
    ShadowAllowed,
    /// Shadow mode: it would have been denied.
    ShadowDenied,
}

/// How a call to the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// With a reply.
    Replied,
    /// There was no connection.
    NotConnected,
    /// The connection closed before the reply.
    Lost,
    /// It timed out.
    Deadline,
    /// With an error reply.
    ErrorReply,
    /// With a malformed reply.
    Malformed,
    /// It was not sent: too many requests were queued.
    Unsent,
}

/// Classes of responses: the first digit of the status code, or none if the client disconnected first.
pub(super) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];
/// The number of classes.
pub(super) const CLASS_CELLS: usize = CLASSES.len();

/// The upper bounds of the buckets of a request's duration; longer durations have another bucket.
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

/// The number of counters of durations: the buckets, and the sum in microseconds.
pub(super) const DURATION_CELLS: usize = DURATIONS.len() + 2;

/// One worker's counters, by the indices of one configuration's limits and routes. The default counts nothing.
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

/// The sums of all workers' counters.
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
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 12] = [
        (Self::Allowed, "allowed"),
        (Self::Denied, "denied"),
        (Self::Banned, "banned"),
        (Self::Blocked, "blocked"),
        (Self::MissingKey, "missing_key"),
        (Self::Exempt, "exempt"),
        (Self::LocalAllowed, "store_failure_local_allowed"),
        (Self::LocalDenied, "store_failure_local_denied"),
        (Self::StoreFailureAllowed, "store_failure_allowed"),
        (Self::StoreFailureDenied, "store_failure_denied"),
        (Self::ShadowAllowed, "shadow_allowed"),
        (Self::ShadowDenied, "shadow_denied"),
    ];

    /// The outcome of a decision by the store.
    fn of(policy: &Policy, decision: &Decision) -> Self {
        match (policy.shadow, decision.allowed, decision.reason) {
            (false, true, _) => Self::Allowed,
            (false, false, DenyReason::Quota) => Self::Denied,
            (false, false, DenyReason::Ban) => Self::Banned,
            (false, false, DenyReason::Block) => Self::Blocked,
            (true, true, _) => Self::ShadowAllowed,
            (true, false, _) => Self::ShadowDenied,
        }
    }

    /// The outcome of a decision by this process while the store was unavailable.
    fn of_local(policy: &Policy, decision: &Decision) -> Self {
        match Self::of(policy, decision) {
            shadow @ (Self::ShadowAllowed | Self::ShadowDenied) => shadow,
            Self::Allowed => Self::LocalAllowed,
            _ => Self::LocalDenied,
        }
    }
}

impl StoreCall {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::Replied, "answered"),
        (Self::NotConnected, "away"),
        (Self::Lost, "lost"),
        (Self::Deadline, "deadline"),
        (Self::ErrorReply, "refused"),
        (Self::Malformed, "garbled"),
        (Self::Unsent, "busy"),
    ];
}

impl Counts {
    /// Counts a decision of a limit.
    pub fn record_decision(&self, policy: PolicyId, outcome: Outcome) {
        if let Some(limit) = self.limits.get(policy) {
            limit.add(outcome as usize, 1);
        }
    }

    /// Counts decisions of the store.
    pub fn record_store_decisions(&self, policies: &[Policy], charges: &[Charge], decisions: &[Decision]) {
        self.count_decisions(policies, charges, decisions, Outcome::of);
    }

    /// Counts cached denials, for which the store was not called.
    pub fn record_cached_denials<'a>(
        &self,
        policies: &[Policy],
        known: impl IntoIterator<Item = (PolicyId, &'a Decision)>,
    ) {
        for (id, decision) in known {
            self.record_decision(id, Outcome::of(&policies[id], decision));
        }
    }

    /// Counts decisions by this process while the store was unavailable.
    pub fn record_local_decisions(&self, policies: &[Policy], charges: &[Charge], decisions: &[Decision]) {
        self.count_decisions(policies, charges, decisions, Outcome::of_local);
    }

    fn count_decisions(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        outcome: impl Fn(&Policy, &Decision) -> Outcome,
    ) {
        for (charge, decision) in charges.iter().zip(decisions) {
            let policy = &policies[charge.policy];
            self.record_decision(policy.configured(charge.policy), outcome(policy, decision));
        }
    }

    /// Counts a response. `route` is the index of the matching route.
    pub fn record_response(&self, route: Option<usize>, status: StatusCode) {
        // Status codes from 600 are in no class.
        if let class @ 1..=5 = status.as_u16() / 100 {
            self.count_class(route, usize::from(class - 1));
        }
    }

    /// Counts a request whose client disconnected before the response.
    pub fn record_disconnect(&self, route: Option<usize>) {
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

    /// Counts the duration of a request, from its head to the end of its response.
    pub fn record_duration(&self, took: Duration) {
        let index = DURATIONS.iter().position(|bound| took <= *bound).unwrap_or(DURATIONS.len());
        self.durations.add(index, 1);
        self.durations.add(DURATION_CELLS - 1, Micros::from(took).0);
    }

    /// Counts a call to the store.
    pub fn record_store_call(&self, end: StoreCall) {
        self.store.add(end as usize, 1);
    }
}

impl Workers {
    /// The counters of one worker for these limits and routes. Policies of the same name share counters.
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

    /// Removes the counters of all other limits, routes and upstreams.
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

    /// The counters of one worker for an upstream with servers of these labels.
    pub fn upstream<'a>(
        &self,
        worker: usize,
        name: &str,
        servers: impl Iterator<Item = &'a str>,
    ) -> UpstreamCounts {
        let mut workers = self.0.lock();
        workers.entry(worker).or_default().upstreams.entry(name.into()).or_default().counts(servers)
    }

    /// Sums the counters of all workers.
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
