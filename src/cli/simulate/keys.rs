//! From the key that an arrival spells to what is charged.

use super::arrivals::Arrival;
use crate::gate::Gate;
use crate::limit::{Charge, PartKind, Parts, PolicyId};

/// What `arrival` is charged by a limit. Its key stands for the whole key, whatever parts the limit's has.
pub(super) fn charge(gate: &Gate, limit: PolicyId, arrival: &Arrival) -> Charge {
    let mut parts = Parts::default();
    parts.push(PartKind::Global, arrival.key.as_bytes());
    let constant = gate.terms.get(limit.0 as usize).map_or(1, |terms| terms.cost);
    Charge::take(limit, gate.hasher.key(&parts), arrival.cost.unwrap_or(constant))
}
