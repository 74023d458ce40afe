//! What happened in a span of time: the differences of the counters at its ends, with the gauges at its end.

mod admissions;
mod routes;
mod sums;

use std::sync::Arc;
use std::time::Duration;

pub use admissions::Refusals;
use serde::Serialize;
pub use sums::CounterSums;

use self::admissions::{AdmissionActivity, admissions};
use self::routes::{Responses, RouteActivity, UpstreamActivity, requested, upstreams};
use self::sums::{
    Cursor, DecisionSums, Latency, LimitTotals, SettledUnitSums, SharedName, SortedByName, largest, rounded,
};
use super::counts::{WorkerSums, counted_since};
use super::metrics::{GaugeValues, StoreValues};
use super::outcome::{ChargeBack, LimitOutcome, StoreRequest};
use crate::time::{Micros, Timestamp};

/// What happened in a span of time. It serializes to the `Frame` of docs/openapi.json.
#[derive(Clone, Debug, Serialize)]
pub struct Frame {
    time: f64,
    seconds: f64,
    requests: u64,
    responses: Responses,
    decisions: DecisionSums,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
    limits: Vec<LimitActivity>,
    limits_left_out: usize,
    routes: Vec<RouteActivity>,
    routes_left_out: usize,
    connections: usize,
    store: StoreActivity,
    upstreams: Vec<UpstreamActivity>,
    servers_left_out: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    admissions: Vec<AdmissionActivity>,
    certificates_missing: u64,
    certificates_failing: u64,
}

impl Frame {
    /// Adds what upstreams with `overload` have refused in it.
    pub fn add_refusals(&self, refusals: &mut Refusals) {
        self.admissions.iter().for_each(|admission| admission.add_to(refusals));
    }

    /// The time that it covers.
    #[must_use]
    pub fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// What happened between two readings of the counters. The later one was at `time`, and so were the gauges.
    #[must_use]
    pub fn between(
        earlier: &CounterSums,
        later: &CounterSums,
        gauges: &GaugeValues,
        time: Timestamp,
    ) -> Self {
        let (requested, decided) = (requested(earlier, later), decided(&earlier.limits, &later.limits));
        let (upstreams, servers_left_out) = upstreams(&earlier.servers, &later.servers, &gauges.upstreams);
        let seconds = later.at.saturating_duration_since(earlier.at).as_secs_f64();
        Self {
            time: rounded(Micros(time.0).as_secs_f64(), 1e3),
            seconds: rounded(seconds, 1e3),
            requests: requested.responses.total(),
            responses: requested.responses,
            decisions: decided.all,
            latency: requested.latency,
            limits: decided.limits,
            limits_left_out: decided.left_out,
            routes: requested.routes,
            routes_left_out: requested.left_out,
            connections: gauges.listeners.iter().map(|listener| listener.connections).sum(),
            store: StoreActivity::between(&earlier.workers, &later.workers, gauges.store.as_ref()),
            upstreams,
            servers_left_out,
            admissions: admissions(&earlier.refusals, &later.refusals, &gauges.upstreams),
            certificates_missing: gauges.acme.missing,
            certificates_failing: gauges.acme.failing,
        }
    }
}

/// The decisions of a limit.
#[derive(Clone, Debug, Serialize)]
struct LimitActivity {
    name: SharedName,
    decisions: DecisionSums,
    #[serde(skip_serializing_if = "SettledUnitSums::is_empty")]
    settled: SettledUnitSums,
}

/// The limits that decided, and the decisions of all limits.
struct LimitDecisions {
    pub all: DecisionSums,
    pub limits: Vec<LimitActivity>,
    pub left_out: usize,
}

const DENIALS: [LimitOutcome; 4] =
    [LimitOutcome::Denied, LimitOutcome::Banned, LimitOutcome::Blocked, LimitOutcome::MissingKey];

/// What limits decided between two readings of their counters.
fn decided(
    earlier: &SortedByName<Arc<str>, LimitTotals>,
    later: &SortedByName<Arc<str>, LimitTotals>,
) -> LimitDecisions {
    let mut known = Cursor::of(earlier);
    let mut all = DecisionSums::default();
    let mut active = Vec::new();
    for (name, later) in later {
        let counted = known.seek(name).map_or(*later, |earlier| later.since(earlier));
        all.0.iter_mut().zip(counted.decisions).for_each(|(sum, count)| *sum += count);
        if counted != LimitTotals::default() {
            active.push(LimitActivity {
                name: SharedName(Arc::clone(name)),
                decisions: DecisionSums(counted.decisions),
                settled: SettledUnitSums(counted.settled),
            });
        }
    }
    let rank = |LimitActivity { decisions, .. }: &LimitActivity| {
        let shadow_denials = decisions.count(&[LimitOutcome::ShadowDenied, LimitOutcome::Marked]);
        (decisions.count(&DENIALS), shadow_denials, decisions.0.iter().sum::<u64>())
    };
    let (limits, left_out) = largest(active, rank);
    LimitDecisions { all, limits, left_out }
}

/// The calls to the store, and its state at the end.
#[derive(Clone, Debug, Serialize)]
struct StoreActivity {
    kind: &'static str,
    state: &'static str,
    breakers_open: usize,
    calls: u64,
    requests: u64,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
    owed_keys: usize,
    owed_units: u64,
}

impl StoreActivity {
    /// The calls between two readings of the counters; `values` is none for the store in the process.
    pub fn between(earlier: &WorkerSums, later: &WorkerSums, values: Option<&StoreValues>) -> Self {
        let calls = later.store_calls.since(&earlier.store_calls);
        let requests = counted_since(&earlier.store_requests, &later.store_requests);
        let values = values.copied();
        let StoreValues { breakers_open, owed_keys, charge_back, .. } = values.unwrap_or_default();
        Self {
            kind: if values.is_some() { "redis" } else { "memory" },
            state: if breakers_open == 0 { "up" } else { "unreachable" },
            breakers_open,
            calls: calls.count(),
            requests: requests.iter().sum(),
            errors: requests.iter().sum::<u64>() - requests[StoreRequest::Replied as usize],
            latency: Latency::of(&calls),
            owed_keys,
            owed_units: if owed_keys == 0 { 0 } else { owed(charge_back) },
        }
    }
}

/// The units that are still to be charged.
fn owed(units: [u64; ChargeBack::COUNT]) -> u64 {
    let settled = [ChargeBack::Paid, ChargeBack::Lost, ChargeBack::Dropped];
    let settled = settled.iter().map(|outcome| units[*outcome as usize]).sum();
    units[ChargeBack::Owed as usize].saturating_sub(settled)
}

#[cfg(test)]
mod tests;
