//! Units taken on arrival by limits with `charge_on`, until the final status of the request is known.
//!
//! A request under way holds its units, so a burst of parallel requests is bounded by the limit, and a client that
//! disconnects before its response has paid.

use smallvec::SmallVec;

use super::{Limiter, Limits, Standings};
use crate::limit::{Charge, Decision, Manner, Policy};
use crate::store::StoreError;

/// Units that a request holds. [`Reservation::settle`] gives back those that its final status does not charge; all of
/// them stay charged if it is dropped before.
#[derive(Debug)]
pub struct Reservation {
    limiter: Limiter,
    limits: Limits,
    held: SmallVec<[Held; 2]>,
    origin: Origin,
}

/// Where units were taken, and so where they are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the store.
    Store,
    /// In this process, while the store was unavailable.
    Fallback {
        /// Whether the store is to be charged afterwards: not where it may have been charged by a call whose reply was
        /// lost.
        is_owed: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Held {
    charge: Charge,
    decision: Decision,
}

impl Origin {
    /// In this process, after `error` or without a call to the store.
    pub fn fallback(error: Option<&StoreError>) -> Self {
        Self::Fallback { is_owed: error.is_none_or(StoreError::charges_nothing) }
    }
}

impl Reservation {
    /// The units that `charges` have taken and that a status may give back; most requests have none.
    pub(super) fn of(
        limiter: &Limiter,
        limits: &Limits,
        charges: &[Charge],
        decisions: &[Decision],
        origin: Origin,
    ) -> Option<Box<Self>> {
        if !charges.iter().any(|charge| limits.policy(charge).charges_by_status()) {
            return None;
        }
        let all = charges
            .iter()
            .zip(decisions)
            .map(|(charge, decision)| Held { charge: *charge, decision: *decision });
        let held: SmallVec<[Held; 2]> = all.filter(|held| held.is_taken(limits)).collect();
        let (limiter, limits) = (limiter.clone(), limits.clone());
        (!held.is_empty()).then(|| Box::new(Self { limiter, limits, held, origin }))
    }

    /// Gives back the units that a request with this final status does not pay; says what its limits have left then.
    pub async fn settle(mut self: Box<Self>, status: u16) -> Standings {
        let held = std::mem::take(&mut self.held);
        let is_charged = |held: &Held| self.limits.policy(&held.charge).charge_on.contains(&status);
        let (charged, returned): (SmallVec<[Held; 2]>, SmallVec<[Held; 2]>) =
            held.into_iter().partition(is_charged);
        self.held = charged;
        if returned.is_empty() {
            return Standings::new();
        }
        let refunds: Vec<Charge> = returned.iter().map(Held::refund).collect();
        match self.origin {
            Origin::Store => self.limiter.refund(&self.limits, &refunds).await,
            Origin::Fallback { .. } => self.limiter.refund_alone(&self.limits, &refunds),
        }
    }
}

impl Drop for Reservation {
    /// What stays charged is owed to the store if it was taken here.
    fn drop(&mut self) {
        if let Origin::Fallback { is_owed } = self.origin {
            for Held { charge, decision } in &self.held {
                self.limiter.write_down(&self.limits, charge, decision, is_owed);
            }
        }
    }
}

impl Held {
    /// Whether a status may give it back. A limit that only watches takes as well if it would have let pass.
    fn is_taken(&self, limits: &Limits) -> bool {
        let policy: &Policy = limits.policy(&self.charge);
        let takes = self.charge.manner == Manner::Take && self.charge.cost > 0;
        policy.charges_by_status() && takes && self.decision.allowed
    }

    fn refund(&self) -> Charge {
        self.charge.refund(self.decision.at)
    }
}
