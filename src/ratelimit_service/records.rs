//! Records requests: in the access log, and their descriptors by the keys under which limits decide them.

use super::checked_request::CheckedRequest;
use super::decision::{ChargedDescriptor, DescriptorDecisions};
use crate::gate::{Descriptor, Gate};
use crate::limit::{Key, PolicyId, binding};
use crate::limiter::LimitStatus;
use crate::proxy::{DescriptorDenial, Proxy, ServiceRequest};
use crate::telemetry::KeyEvent;

/// Records which limit has denied a request, and what limits note about it.
pub(super) fn record_access(
    proxy: &Proxy,
    request: &mut ServiceRequest<'_>,
    checked: &CheckedRequest<'_>,
    decided: &DescriptorDecisions<'_>,
) {
    request.add_notes(decided.notes(&proxy.gate().limits.policies));
    let mut denials =
        decided.descriptors.iter().zip(&checked.descriptors).filter_map(|(charged, (descriptor, _))| {
            denial(proxy.gate(), charged, descriptor, &decided.statuses)
        });
    // Of several descriptors that are over their limits the first is recorded.
    if let Some(denial) = denials.next() {
        request.set_denial(&denial);
    }
}

/// Why a descriptor is over a limit, if it is.
fn denial<'d>(
    gate: &Gate,
    charged: &ChargedDescriptor<'_>,
    descriptor: &'d Descriptor<'d>,
    statuses: &[LimitStatus],
) -> Option<DescriptorDenial<'d>> {
    let denied: Vec<&LimitStatus> =
        charged.statuses(statuses).filter(|status| !status.decision.allowed).collect();
    if let Some(index) = binding(denied.iter().map(|status| &status.decision)) {
        let LimitStatus { policy, key, .. } = *denied[index];
        return Some(DescriptorDenial { descriptor, limit: Some(policy), key: Some(key) });
    }
    if !charged.is_blocked() {
        return None;
    }
    if let Some(limit) = charged.plan.blocked_by.or(charged.plan.lacking_for) {
        let key = gate.descriptors().key_of(limit, descriptor);
        return Some(DescriptorDenial { descriptor, limit: Some(limit), key });
    }
    // The rule blocks it, or numbers were sent that allow nothing.
    let first = charged.charges.first();
    let (limit, key) = (first.map(|(limit, _)| *limit), first.map(|(_, charge)| charge.key));
    Some(DescriptorDenial { descriptor, limit, key })
}

/// Counts each descriptor for each of its limits that has decided it, or whose list blocks it.
pub(super) fn record_keys(proxy: &Proxy, request: &CheckedRequest<'_>, decided: &DescriptorDecisions<'_>) {
    let Some(top) = proxy.top_keys() else { return };
    let planner = proxy.gate().descriptors();
    for (charged, (descriptor, _)) in decided.descriptors.iter().zip(&request.descriptors) {
        let count = |limit: PolicyId, key: Key, is_denied: bool| {
            top.record(limit, KeyEvent { key, consumer: None, is_denied }, || {
                let base = proxy.gate().limit_of(limit);
                planner.with_subject(descriptor, |subject| proxy.gate().key_name_of(base, key, subject))
            });
        };
        for (limit, charge) in &charged.charges {
            let is_own = |policy| policy == *limit;
            let all = charged.statuses(&decided.statuses).chain(charged.statuses(&decided.shadow));
            let mut statuses = all.filter(|status| is_own(status.policy));
            if let Some(status) = statuses.next() {
                count(*limit, charge.key, !status.decision.allowed);
            }
        }
        // Without a key the address is blocked.
        if let Some(limit) = charged.plan.blocked_by
            && let Some(key) = planner.key_of(limit, descriptor)
        {
            count(limit, key, true);
        }
    }
}
