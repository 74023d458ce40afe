//! The scenario of a simulation: arrivals, the limits that they are played against, and their charges.

use std::sync::Arc;

use super::arrivals::{ArrivalCharge, SimulatedArrival};
use super::proxies::ProxySettings;
use crate::gate::{Cost, CostBasis, Gate, ReserveTerm, SettledCost};
use crate::limit::{Charge, DecidedCharge, DecidedCharges, Decision, DenyReason, Key, Policy, PolicyId};
use crate::store::{Store, StoreError};
use crate::time::Micros;

/// Arrivals, and the limits that they are played against.
#[derive(Debug)]
pub(super) struct Scenario<'a> {
    pub gate: &'a Gate,
    pub policies: &'a [Policy],
    /// The limits of each player.
    pub players: Vec<Vec<PolicyId>>,
    /// Whether each limit is played by itself.
    pub compare: bool,
    /// The proxies of limits with `ahead`.
    pub proxies: ProxySettings,
    pub arrivals: &'a [SimulatedArrival],
}

impl Scenario<'_> {
    /// Every key that the arrivals are charged to, without duplicates.
    pub fn keys(&self) -> Vec<(PolicyId, Key)> {
        let charges = self
            .players
            .iter()
            .flat_map(|limits| self.arrivals.iter().flat_map(|arrival| charges(self.gate, limits, arrival)));
        let mut keys: Vec<(PolicyId, Key)> = charges.map(|one| (one.charge.policy, one.charge.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// The charge of a limit, or of one of its tiers, for `arrival`. The arrival's key is the whole key, whatever parts the
/// limit's key has; the file's allow and block lists and overrides apply to it.
fn arrival_charge(gate: &Gate, limit: PolicyId, arrival: &SimulatedArrival) -> ArrivalCharge {
    let base = gate.limit_of(limit);
    let named = gate.keys(base).any(&arrival.key);
    let own_cost = match &gate.limit_rules[base].cost {
        Cost::Fixed(cost) => *cost,
        // A request without the header costs 1.
        Cost::Header { .. } => 1,
        Cost::Settled(cost) => constant_reserve(cost),
    };
    // An override takes precedence over a tier.
    let policy = if named.override_name.is_some() { named.policy } else { limit };
    let preset = match (named.is_blocked, named.is_allowed) {
        (true, _) => Some(blocked(gate, policy)),
        (false, true) => Some(unlimited(gate, policy)),
        (false, false) => None,
    };
    ArrivalCharge { charge: Charge::take(policy, named.key, arrival.cost.unwrap_or(own_cost)), preset }
}

/// What a request reserves of which nothing but its arrival is known: the constant parts, and at least 1.
fn constant_reserve(cost: &SettledCost) -> u64 {
    let constant = |term: &ReserveTerm| if let ReserveTerm::Units(units) = term { *units } else { 0 };
    let units = match &cost.basis {
        CostBasis::Parts { reserve, .. } => reserve.iter().map(constant).fold(0, u64::saturating_add),
        CostBasis::Llm(_) => 0,
    };
    units.clamp(1, cost.max_reserve.max(1))
}

/// The decision of a limit that allows an arrival without a count.
pub(super) fn unlimited(gate: &Gate, policy: PolicyId) -> Decision {
    let quota = &gate.limits.policies[policy].quota;
    Decision::allowed(quota.limit(), quota.usable(), Micros::ZERO)
}

/// The decision of a limit that denies an arrival without a count.
pub(super) fn blocked(gate: &Gate, policy: PolicyId) -> Decision {
    let allowed = unlimited(gate, policy);
    Decision { allowed: false, remaining: 0, retry_after: None, reason: DenyReason::Block, ..allowed }
}

/// The charges of these limits for `arrival`, in their order.
pub(super) fn charges(gate: &Gate, limits: &[PolicyId], arrival: &SimulatedArrival) -> Vec<ArrivalCharge> {
    let Some(planned) = &arrival.planned else {
        return limits.iter().map(|id| arrival_charge(gate, *id, arrival)).collect();
    };
    let planned_for =
        |limit: &PolicyId| planned.iter().find(|one| gate.limit_of(one.charge.policy) == *limit).copied();
    limits.iter().filter_map(planned_for).collect()
}

/// Whether a limit blocks the key of the arrival, whatever the counts are.
pub(super) fn is_blocked(policies: &[Policy], per_limit: &[ArrivalCharge]) -> bool {
    let denies = |one: &ArrivalCharge| one.preset.is_some_and(|preset| !preset.allowed);
    per_limit.iter().any(|one| denies(one) && !policies[one.charge.policy].shadow)
}

/// The decisions of the limits if nothing is charged.
pub(super) async fn peek(
    store: &Store,
    policies: &Arc<[Policy]>,
    per_limit: &[ArrivalCharge],
) -> Result<DecidedCharges, StoreError> {
    let peeks: Vec<Charge> = counted(per_limit).iter().map(|charge| charge.peek()).collect();
    Ok(merge(per_limit, store.apply(policies, &peeks).await?))
}

/// The charges that the store has to decide.
pub(super) fn counted(per_limit: &[ArrivalCharge]) -> Vec<Charge> {
    per_limit.iter().filter(|one| one.preset.is_none()).map(|one| one.charge).collect()
}

/// All decisions in the order of the limits: those of the store, and those that need no count.
pub(super) fn merge(
    per_limit: &[ArrivalCharge],
    counted: impl IntoIterator<Item = Decision>,
) -> DecidedCharges {
    let mut counted = counted.into_iter();
    let decided = |one: &ArrivalCharge| {
        let decision = one.preset.or_else(|| counted.next())?;
        Some(DecidedCharge { charge: one.charge, decision })
    };
    per_limit.iter().filter_map(decided).collect()
}
