//! The use of the store in a span of time.

use serde::Serialize;

use super::values::Latency;
use crate::telemetry::charge_back::ChargeBack;
use crate::telemetry::counters::counted_since;
use crate::telemetry::counts::WorkerSums;
use crate::telemetry::metrics::StoreValues;
use crate::telemetry::outcome::StoreRequest;

/// The calls to the store, and its state at the end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StoreActivity {
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
