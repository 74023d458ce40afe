//! From the key that an arrival spells to what a limit charges it.

use super::arrivals::Arrival;
use crate::gate::{Cost, Gate};
use crate::limit::{Charge, Decision, DenyReason, PolicyId};
use crate::time::Micros;

/// What a limit charges an arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub charge: Charge,
    /// What the limit says without a look at any count: to a key that the file lets off or turns away.
    pub ruled: Option<Decision>,
}

/// What `arrival` is charged by a limit, or by one of its tiers. The key stands for the whole key, whatever parts
/// the limit's has; what the file has for it by name holds.
pub(super) fn asked(gate: &Gate, limit: PolicyId, arrival: &Arrival) -> Asked {
    let base = gate.limit_of(limit);
    let named = gate.keys(base).any(&arrival.key);
    let constant = match &gate.limit_rules[base].cost {
        Cost::Fixed(cost) => *cost,
        // What a header does not say is one.
        Cost::Header { .. } => 1,
    };
    // An override goes before a tier.
    let policy = if named.override_name.is_some() { named.policy } else { limit };
    let most = gate.limits.policies[policy].quota.limit();
    let passes = Decision::allowed(most, most, Micros::ZERO);
    let ruled = match (named.is_blocked, named.is_allowed) {
        (true, _) => Some(Decision {
            allowed: false,
            remaining: 0,
            retry_after: None,
            cause: DenyReason::Block,
            ..passes
        }),
        (false, true) => Some(passes),
        (false, false) => None,
    };
    Asked { charge: Charge::take(policy, named.key, arrival.cost.unwrap_or(constant)), ruled }
}
