//! Decisions that need no limiter of a worker: those of the in-process store, on any thread, and those of the configuration alone.

mod respond;

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::Admission;
use super::limits::Limits;
use super::reservation::{Delivery, SettledUnits, StatusRule, reserving};
use super::status::{LimitStatuses, enforced};
use crate::limit::{Charge, DecidedCharge, Policy, PolicyId};
use crate::store::Memory;
use crate::telemetry::{Counts, DecisionSource, LimitOutcome};

/// Units that limits have taken in the in-process store, until the response has told what the request is charged: by its status
/// (`charge_on`) or by its cost. All of them stay charged if this is dropped before.
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
        let rule = |policy: &Policy| StatusRule::of(policy, status, Delivery::Answered);
        let refunded = self.held.iter().filter(|held| rule(self.policy(held)) == StatusRule::Refunded);
        self.apply(&refunded.map(DecidedCharge::refund).collect())
    }

    /// Settles the units by what the request has cost; returns what each limit is charged. `costs` has the cost for a limit, or
    /// `None` if it is unknown: then the reserved units stay charged.
    pub fn settle(self: Box<Self>, costs: impl Fn(PolicyId) -> Option<u64>) -> SmallVec<[SettledUnits; 2]> {
        let (mut changes, mut settled) = (Changes::new(), SmallVec::new());
        for held in self.held.iter().filter(|held| self.policy(held).settles()) {
            let Charge { policy: limit, cost: reserved, .. } = held.charge;
            let Some(cost) = costs(limit) else {
                settled.push(SettledUnits { policy: limit, reserved, charged: reserved, is_cut: false });
                continue;
            };
            let units = SettledUnits::of(limit, self.policy(held), reserved, cost);
            if units.charged < reserved {
                changes.push(Charge { cost: reserved - units.charged, ..held.refund() });
            } else if units.charged > reserved {
                changes.push(held.charge.extra(units.charged - reserved));
            }
            settled.push(units);
        }
        let _ = self.apply(&changes);
        settled
    }

    fn policy(&self, held: &DecidedCharge) -> &Policy {
        &self.policies[held.charge.policy]
    }

    /// Makes refunds and extra charges; returns the decisions of their limits after that.
    fn apply(&self, changes: &Changes) -> LimitStatuses {
        let decisions = self.memory.apply(&self.policies, changes);
        enforced(&self.policies, &DecidedCharge::join(changes, &decisions))
    }
}

/// Refunds and extra charges.
type Changes = SmallVec<[Charge; 2]>;

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
    let held = if admission.verdict.is_ok() { reserving(limits, &decided) } else { SmallVec::new() };
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
