//! The charge of a limit for an arrival.

use super::arrivals::Arrival;
use crate::gate::{Cost, Gate};
use crate::limit::{Charge, Decision, DenyReason, PolicyId};
use crate::time::Micros;

/// The charge of a limit for an arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalCharge {
    pub charge: Charge,
    /// The decision on a key that the file allows or blocks, which needs no count.
    pub preset: Option<Decision>,
}

/// The charge of a limit, or of one of its tiers, for `arrival`. The arrival's key is the whole key, whatever parts the
/// limit's key has; the file's allow and block lists and overrides apply to it.
pub(super) fn arrival_charge(gate: &Gate, limit: PolicyId, arrival: &Arrival) -> ArrivalCharge {
    let base = gate.limit_of(limit);
    let named = gate.keys(base).any(&arrival.key);
    let own_cost = match &gate.limit_rules[base].cost {
        Cost::Fixed(cost) => *cost,
        // A request without the header costs 1.
        Cost::Header { .. } => 1,
    };
    // An override takes precedence over a tier.
    let policy = if named.override_name.is_some() { named.policy } else { limit };
    let most = gate.limits.policies[policy].quota.limit();
    let passes = Decision::allowed(most, most, Micros::ZERO);
    let preset = match (named.is_blocked, named.is_allowed) {
        (true, _) => Some(Decision {
            allowed: false,
            remaining: 0,
            retry_after: None,
            reason: DenyReason::Block,
            ..passes
        }),
        (false, true) => Some(passes),
        (false, false) => None,
    };
    ArrivalCharge { charge: Charge::take(policy, named.key, arrival.cost.unwrap_or(own_cost)), preset }
}
