//! The limiter's verdict on a request.

use std::rc::Rc;

use super::grants::TakenUnits;
use super::limits::Limits;
use super::reservation::Reservation;
use super::settlement::SettlementContext;
use super::slots::SlotSet;
use super::status::{LimitStatus, LimitStatuses, StatusSource, enforced, in_shadow, limit_notes};
use crate::limit::{DecidedCharge, Policy, PolicyId};
use crate::telemetry::LimitNote;
use crate::time::Micros;

/// The least `retry_after` while the store is unavailable.
const RETRY_AFTER: Micros = Micros::SECOND;

/// Permission to forward a request, given by all of its limits. Only the limiter makes one, nothing is forwarded
/// without one, and the request holds it until the last byte of the response: then its slots are released.
#[derive(Debug)]
pub struct Permit {
    slots: Option<Rc<SlotSet>>,
}

/// The slots of a request in its concurrency limits. They are released when its [`Permit`] and all of these are dropped.
#[derive(Clone, Debug)]
pub struct HeldSlots {
    _slots: Rc<SlotSet>,
}

impl Permit {
    /// The permit of a request that no limit counts.
    pub(super) fn unlimited() -> Self {
        Self { slots: None }
    }

    /// Adds the slots of limits on another server.
    fn join(&mut self, other: Self) {
        let Some(mut more) = other.slots else { return };
        #[expect(clippy::expect_used, reason = "no other value has the slots of a new permit")]
        let slots = Rc::get_mut(&mut more).expect("the slots are not shared yet");
        slots.add_server(self.slots.take());
        self.slots = Some(more);
    }

    /// The request's slots, for work that continues when its client has disconnected; `None` if no concurrency limit counts
    /// the request.
    #[must_use]
    pub fn slots(&self) -> Option<HeldSlots> {
        self.slots.as_ref().map(|slots| HeldSlots { _slots: Rc::clone(slots) })
    }
}

/// Why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// At least one limit denies it.
    Limited,
    /// The store is unavailable, and a limit has `on_store_failure = "deny"`.
    Unavailable {
        /// When to try again.
        retry_after: Micros,
    },
}

/// The limiter's verdict on a request.
#[derive(Debug)]
pub struct Admission {
    /// Whether the request may pass.
    pub verdict: Result<Permit, Denial>,
    /// Units that the request holds until its response has told what it is charged.
    pub reservation: Option<Box<Reservation>>,
    /// How long to delay the request before it is forwarded.
    pub delay: Micros,
    /// The decisions of the limits that are not in shadow mode, in the order of the route.
    pub statuses: LimitStatuses,
    /// The decisions of the limits in shadow mode, which deny nothing.
    pub shadow: Vec<LimitStatus>,
    /// Where the decisions come from.
    pub source: StatusSource,
}

impl Admission {
    /// The verdict of these decisions; `slots` are those that the charges request.
    pub(super) fn new(policies: &[Policy], decided: &[DecidedCharge], slots: Option<SlotSet>) -> Self {
        let statuses = enforced(policies, decided);
        // Few requests have limits in shadow mode.
        let shadow = if statuses.len() == decided.len() { Vec::new() } else { in_shadow(policies, decided) };
        let passes = statuses.iter().all(|status| status.decision.allowed);
        let slots = slots.and_then(|slots| slots.granted(decided, passes));
        let (verdict, delay) = if passes {
            // Each limit spaces requests by itself: after the longest delay all of them are satisfied.
            let delays = statuses.iter().map(|status| status.decision.delay);
            (Ok(Permit { slots: slots.map(Rc::new) }), delays.max().unwrap_or_default())
        } else {
            (Err(Denial::Limited), Micros::ZERO)
        };
        Self { verdict, reservation: None, delay, statuses, shadow, source: StatusSource::Store }
    }

    /// Adds the units that a request which passes holds until its response has told what it is charged.
    pub(super) fn reserve(&mut self, reservation: impl FnOnce() -> Option<Box<Reservation>>) {
        if self.verdict.is_ok() {
            self.reservation = reservation();
        }
    }

    /// Spends what a request that passes has taken from grants; otherwise that is put back.
    pub(super) fn pass_taken(
        &mut self,
        context: impl FnOnce() -> SettlementContext,
        limits: &Limits,
        taken: Option<TakenUnits>,
    ) {
        if self.verdict.is_ok()
            && let Some(reserved) = taken.and_then(|taken| taken.pass(limits))
        {
            let known = self.reservation.take();
            self.reservation = Some(Reservation::with_taken(known, (context(), limits), reserved));
        }
    }

    /// A request without limits.
    pub(super) fn unlimited() -> Self {
        Self {
            verdict: Ok(Permit::unlimited()),
            reservation: None,
            delay: Micros::ZERO,
            statuses: LimitStatuses::new(),
            shadow: Vec::new(),
            source: StatusSource::Store,
        }
    }

    /// A request that only reads the states of its limits.
    pub(super) fn peeked(policies: &[Policy], decided: &[DecidedCharge]) -> Self {
        let (statuses, shadow) = (enforced(policies, decided), in_shadow(policies, decided));
        Self { statuses, shadow, ..Self::unlimited() }
    }

    /// Adds the admission of the other part of a request, whose limits are on another server. Both parts have passed.
    pub(super) fn join(&mut self, other: Self) {
        if let (Ok(permit), Ok(more)) = (&mut self.verdict, other.verdict) {
            permit.join(more);
        }
        self.reservation = match (self.reservation.take(), other.reservation) {
            (Some(mut own), Some(more)) => {
                own.add_server(*more);
                Some(own)
            }
            (own, more) => own.or(more),
        };
        self.delay = self.delay.max(other.delay);
        self.statuses.extend(other.statuses);
        self.shadow.extend(other.shadow);
        if other.source == StatusSource::Local {
            self.source = StatusSource::Local;
        }
    }

    /// What limits note about the request; `policies` are those of the configuration.
    pub fn notes<'s>(
        &'s self,
        policies: &'s [Policy],
    ) -> impl Iterator<Item = (LimitNote, PolicyId)> + use<'s> {
        limit_notes(policies, &self.statuses, &self.shadow, self.verdict.is_ok())
    }

    /// The limits in shadow mode that would have denied it.
    pub fn shadow_denials(&self) -> impl Iterator<Item = PolicyId> {
        self.shadow.iter().filter(|status| !status.decision.allowed).map(|status| status.policy)
    }

    /// A request that limits deny.
    pub(super) fn limited(statuses: LimitStatuses) -> Self {
        Self { verdict: Err(Denial::Limited), statuses, ..Self::unlimited() }
    }

    /// A request that is denied since the store is unavailable, which is probed again after `until_probe`.
    pub(super) fn unavailable(until_probe: Micros) -> Self {
        // Before the probe the store is not asked, so an earlier retry would be denied again.
        let retry_after = until_probe.max(RETRY_AFTER);
        Self { verdict: Err(Denial::Unavailable { retry_after }), ..Self::unlimited() }
    }
}
