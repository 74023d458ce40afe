//! Records decisions in the access log and in traces.

use super::checked_request::CheckedRequest;
use super::decision::{ChargedDescriptor, DescriptorDecisions};
use crate::gate::{Descriptor, Gate};
use crate::limit::binding;
use crate::limiter::LimitStatus;
use crate::proxy::{DescriptorDenial, Proxy, ServiceRequest};

/// Records which limit has denied a request, and which in shadow mode would have.
pub(super) fn record(
    proxy: &Proxy,
    request: &mut ServiceRequest<'_>,
    checked: &CheckedRequest<'_>,
    decided: &DescriptorDecisions<'_>,
) {
    request.set_shadow_denials(&decided.shadow_denials);
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
