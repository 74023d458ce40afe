//! Counts descriptors by the keys under which limits decide them.

use super::checked_request::CheckedRequest;
use super::decision::DescriptorDecisions;
use crate::proxy::Proxy;
use crate::telemetry::KeyEvent;

/// Counts each descriptor for each of its limits that has decided it.
pub(super) fn record(proxy: &Proxy, request: &CheckedRequest<'_>, decided: &DescriptorDecisions<'_>) {
    let Some(top) = proxy.top_keys() else { return };
    let gate = proxy.gate();
    for (charged, (descriptor, _)) in decided.descriptors.iter().zip(&request.descriptors) {
        for (limit, charge) in &charged.charges {
            let is_own = |policy| policy == *limit;
            let mut statuses = charged.statuses(&decided.statuses).filter(|status| is_own(status.policy));
            let Some(status) = statuses.next() else { continue };
            let event = KeyEvent { key: charge.key, consumer: None, is_denied: !status.decision.allowed };
            top.record(*limit, event, || {
                gate.descriptors().with_subject(descriptor, |subject| {
                    gate.key_name_of(gate.limit_of(*limit), charge.key, subject)
                })
            });
        }
    }
}
