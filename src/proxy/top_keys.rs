//! Counts requests by the keys under which limits decide them.

use super::log_entry::PlannedRequest;
use super::own_limits::only_shows_limits;
use super::snapshot::Proxy;
use crate::limit::PolicyId;
use crate::limiter::Admission;
use crate::telemetry::{KeyEvent, TopRecorder};

/// Counts a request for each of its limits, unless it only reads them.
#[inline]
pub(super) fn record(proxy: &Proxy, request: &PlannedRequest<'_>, admission: &Admission) {
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
    if admission.verdict.is_ok() && admission.shadow_denials.is_empty() {
        return false;
    }
    let denies = admission.statuses.iter().any(|it| it.policy == policy && !it.decision.allowed);
    denies || admission.shadow_denials.contains(&policy)
}
