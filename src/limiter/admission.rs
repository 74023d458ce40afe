//! What the limiter says to a request.

use std::rc::Rc;

use smallvec::SmallVec;

use super::reservation::Reservation;
use super::slots::SlotSet;
use crate::limit::{Charge, Decision, Policy, PolicyId};
use crate::time::Micros;

/// Leave to go on, given by every limit of a request. Only the limiter makes one, nothing is forwarded
/// without it, and it rides along until the last byte of the answer: then the slots that the request has are
/// given back.
#[derive(Debug)]
pub struct Permit {
    slots: Option<Rc<SlotSet>>,
}

/// The slots of a request in its concurrency limits. They are given back when its [`Permit`] and all of these are dropped.
#[derive(Clone, Debug)]
pub struct HeldSlots {
    _slots: Rc<SlotSet>,
}

impl Permit {
    /// Its slots, for work that goes on when the request's client has disconnected; none if no concurrency limit counts
    /// the request.
    #[must_use]
    pub fn slots(&self) -> Option<HeldSlots> {
        self.slots.as_ref().map(|slots| HeldSlots { _slots: Rc::clone(slots) })
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// By at least one limit.
    Limited,
    /// The store can't be asked, and a limit says that then nothing passes.
    Unavailable {
        /// When to try again.
        retry_after: Micros,
    },
}

/// What the limiter says to a request.
#[derive(Debug)]
pub struct Admission {
    /// Whether it may pass.
    pub verdict: Result<Permit, Denial>,
    /// Units that it holds until its final status is known.
    pub reservation: Option<Box<Reservation>>,
    /// How long to hold it before it goes on.
    pub delay: Micros,
    /// Where it stands with the limits that enforce, in the order of the route.
    pub standings: LimitStatuses,
    /// The limits that only watch, and would have refused it.
    pub shadow_denials: SmallVec<[PolicyId; 2]>,
}

/// Where a request stands with one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// Which limit.
    pub policy: PolicyId,
    /// What it says.
    pub decision: Decision,
}

/// Where a request stands with all its limits.
pub type LimitStatuses = SmallVec<[LimitStatus; 2]>;

impl Admission {
    /// What these decisions on these charges come to.
    pub(super) fn of(
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        slots: Option<SlotSet>,
    ) -> Self {
        let shadow = |charge: &Charge| policies[charge.policy].shadow;
        let standings: LimitStatuses = charges
            .iter()
            .zip(decisions)
            .filter(|(charge, _)| !shadow(charge))
            .map(|(charge, decision)| LimitStatus { policy: charge.policy, decision: *decision })
            .collect();
        let shadow_denials = charges
            .iter()
            .zip(decisions)
            .filter(|(charge, decision)| shadow(charge) && !decision.allowed)
            .map(|(charge, _)| charge.policy)
            .collect();
        let passes = standings.iter().all(|standing| standing.decision.allowed);
        let slots = slots.and_then(|slots| slots.granted(charges, decisions, passes));
        if !passes {
            return Self { shadow_denials, ..Self::refuse(standings) };
        }
        let delay = standings.iter().map(|standing| standing.decision.delay).max().unwrap_or_default();
        let verdict = Ok(Permit { slots: slots.map(Rc::new) });
        Self { verdict, reservation: None, delay, standings, shadow_denials }
    }

    /// The ruling with the units that a request which passes holds until its final status is known.
    pub(super) fn reserving(self, reservation: impl FnOnce() -> Option<Box<Reservation>>) -> Self {
        let reservation = self.verdict.is_ok().then(reservation).flatten();
        Self { reservation, ..self }
    }

    pub(super) fn pass() -> Self {
        let permit = Permit { slots: None };
        Self {
            verdict: Ok(permit),
            reservation: None,
            delay: Micros::ZERO,
            standings: LimitStatuses::new(),
            shadow_denials: SmallVec::new(),
        }
    }

    pub(super) fn refuse(standings: LimitStatuses) -> Self {
        Self { verdict: Err(Denial::Limited), standings, ..Self::pass() }
    }
}
