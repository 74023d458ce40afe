//! Counts descriptors by the keys under which limits decide them.

use super::checked_request::CheckedRequest;
use super::decision::DescriptorDecisions;
use crate::limit::{Key, PolicyId};
use crate::proxy::Proxy;
use crate::telemetry::KeyEvent;

/// Counts each descriptor for each of its limits that has decided it, or whose list blocks it.
pub(super) fn record(proxy: &Proxy, request: &CheckedRequest<'_>, decided: &DescriptorDecisions<'_>) {
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
            let mut statuses = charged.statuses(&decided.statuses).filter(|status| is_own(status.policy));
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
