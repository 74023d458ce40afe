//! Decisions that need no limiter of a worker: those of the in-process store, on any thread, and those of the configuration alone.

use super::admission::Admission;
use super::limits::Limits;
use crate::limit::Charge;
use crate::store::Memory;
use crate::telemetry::{Counts, DecisionSource, Outcome};

/// Decides a request in the in-process store, as the limiter of a worker does, but on any thread. None if the
/// request would hold slots, or units until its final status is known: these need a limiter.
#[must_use]
pub fn decide_in_process(
    memory: &Memory,
    limits: &Limits,
    charges: &[Charge],
    counts: &Counts,
) -> Option<Admission> {
    let is_held = |charge: &Charge| {
        let policy = limits.policy(charge);
        policy.has_slots() || policy.charges_by_status()
    };
    if charges.iter().any(is_held) {
        return None;
    }
    if let Some(denied) = deny_impossible(limits, charges, counts) {
        return Some(denied);
    }
    let decisions = memory.take(&limits.policies, charges);
    counts.record_decisions(&limits.policies, charges, &decisions, DecisionSource::Memory);
    Some(Admission::new(&limits.policies, charges, &decisions, None))
}

/// Denies a request that costs more than a limit can ever allow.
pub(super) fn deny_impossible(limits: &Limits, charges: &[Charge], counts: &Counts) -> Option<Admission> {
    let denials = limits.impossible(charges)?;
    for status in &denials {
        counts.record_decision(status.policy, Outcome::Denied, DecisionSource::Config);
    }
    Some(Admission::limited(denials))
}
