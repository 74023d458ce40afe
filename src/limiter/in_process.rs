//! Decisions that need no limiter of a worker: those of the in-process store, on any thread, and those of the configuration alone.

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::Admission;
use super::limits::Limits;
use super::reservation::refundable;
use super::status::{LimitStatuses, enforced};
use crate::limit::{Charge, DecidedCharge, Policy};
use crate::store::Memory;
use crate::telemetry::{Counts, DecisionSource, LimitOutcome};

/// Units that limits with `charge_on` have taken in the in-process store, until the final status of the request is known. All of
/// them stay charged if this is dropped before.
#[derive(Debug)]
pub struct InProcessUnits {
    memory: Arc<Memory>,
    policies: Arc<[Policy]>,
    held: SmallVec<[DecidedCharge; 2]>,
}

impl InProcessUnits {
    /// Refunds the units that a request with this final status is not charged; returns the decisions of their limits after
    /// that.
    #[must_use]
    pub fn finish(self: Box<Self>, status: u16) -> LimitStatuses {
        let Self { memory, policies, held } = *self;
        let is_refunded = |held: &&DecidedCharge| !policies[held.charge.policy].charge_on().contains(&status);
        let refunds: SmallVec<[Charge; 2]> =
            held.iter().filter(is_refunded).map(DecidedCharge::refund).collect();
        let decisions = memory.apply(&policies, &refunds);
        enforced(&policies, &DecidedCharge::join(&refunds, &decisions))
    }
}

/// Decides a request in the in-process store, as the limiter of a worker does, but on any thread; with the units that the request
/// holds. None if it would hold slots: these need a limiter.
#[must_use]
pub fn decide_in_process(
    memory: &Arc<Memory>,
    limits: &Limits,
    charges: &[Charge],
    counts: &Counts,
) -> Option<(Admission, Option<Box<InProcessUnits>>)> {
    if charges.iter().any(|charge| limits.policy(charge).has_slots()) {
        return None;
    }
    if let Some(denied) = deny_impossible(limits, charges, counts) {
        return Some((denied, None));
    }
    let decided = memory.decide(&limits.policies, charges);
    counts.record_decisions(&limits.policies, &decided, DecisionSource::Memory);
    let admission = Admission::new(&limits.policies, &decided, None);
    let held = if admission.verdict.is_ok() { refundable(limits, &decided) } else { SmallVec::new() };
    let units = (!held.is_empty()).then(|| {
        let (memory, policies) = (Arc::clone(memory), Arc::clone(&limits.policies));
        Box::new(InProcessUnits { memory, policies, held })
    });
    Some((admission, units))
}

/// Denies a request that costs more than a limit can ever allow.
pub(super) fn deny_impossible(limits: &Limits, charges: &[Charge], counts: &Counts) -> Option<Admission> {
    let denials = limits.impossible(charges)?;
    for status in &denials {
        counts.record_decision(status.policy, LimitOutcome::Denied, DecisionSource::Config);
    }
    Some(Admission::limited(denials))
}
