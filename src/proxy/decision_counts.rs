//! Counts the decisions on a request that its plan has made, and how long the limiter took.

use crate::gate::RequestPlan;
use crate::telemetry::{Counts, DecisionSource, Outcome};
use crate::time::Stopwatch;

/// Counts the limits that a request is exempt from, and how long the decision on it took.
#[inline]
pub(super) fn record(counts: &Counts, plan: &RequestPlan<'_>, stopwatch: Stopwatch) {
    for limit in &plan.exempt {
        counts.record_decision(*limit, Outcome::Exempt, DecisionSource::Config);
    }
    if !plan.charges.is_empty() {
        // A decision in this process takes about a microsecond, and nothing is awaited for it: it counts as no time.
        counts.record_decision_duration(stopwatch.elapsed());
    }
}
