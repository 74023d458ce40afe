//! A span of time, as the admin interface shows it.

use serde::Serialize;

use super::limits::{LimitActivity, decided};
use super::routes::{Responses, RouteActivity, requested};
use super::servers::{UpstreamActivity, upstreams};
use super::store::StoreActivity;
use super::sums::CounterSums;
use super::values::{DecisionSums, Latency, rounded};
use crate::telemetry::metrics::GaugeValues;
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
    certificates_missing: u64,
    certificates_failing: u64,
}

impl Frame {
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
            certificates_missing: gauges.acme.missing,
            certificates_failing: gauges.acme.failing,
        }
    }
}
