//! Counts decisions on requests: by limit, by key, and how long they took.

use super::log_entry::PlannedRequest;
use super::own_limits::only_shows_limits;
use super::snapshot::Proxy;
use crate::gate::RequestPlan;
use crate::limit::PolicyId;
use crate::limiter::Admission;
use crate::telemetry::{Counts, DecisionSource, KeyEvent, LimitOutcome, TopRecorder};
use crate::time::Stopwatch;

/// Counts the limits that a request is exempt from, and how long the decision on it took.
#[inline]
pub(super) fn record(counts: &Counts, plan: &RequestPlan<'_>, stopwatch: Stopwatch) {
    for limit in &plan.exempt {
        counts.record_decision(*limit, LimitOutcome::Exempt, DecisionSource::Config);
    }
    if !plan.charges.is_empty() {
        // A decision in this process takes about a microsecond, and nothing is awaited for it: it counts as no time.
        counts.record_decision_duration(stopwatch.elapsed());
    }
}

/// Counts a request among those of its key in each of its limits, unless it only reads them.
#[inline]
pub(super) fn record_keys(proxy: &Proxy, request: &PlannedRequest<'_>, admission: &Admission) {
    if let Some(top) = &proxy.top
        && !only_shows_limits(&proxy.snapshot, request.plan)
    {
        record_charges(top, request, admission);
    }
}

fn record_charges(top: &TopRecorder, request: &PlannedRequest<'_>, admission: &Admission) {
    let PlannedRequest { gate, client, head, plan } = *request;
    let consumer = plan.identity.name();
    for charge in &plan.charges {
        let event = KeyEvent { key: charge.key, consumer, is_denied: is_denied(admission, charge.policy) };
        top.record(charge.policy, event, || gate.key_name(client.identity(), head, plan, charge));
    }
}

/// Whether the limit of a policy denies the request, or would deny it in shadow mode. A denial for lack of the store does
/// not count.
fn is_denied(admission: &Admission, policy: PolicyId) -> bool {
    if admission.verdict.is_ok() && admission.shadow.is_empty() {
        return false;
    }
    let denies = admission.statuses.iter().any(|it| it.policy == policy && !it.decision.allowed);
    denies || admission.shadow_denials().any(|limit| limit == policy)
}
