//! Units taken on arrival by limits with `charge_on`, until the final status of the request is known.
//!
//! A request under way holds its units, so a burst of parallel requests is bounded by the limit, and a client that
//! disconnects before its response has paid.

use smallvec::SmallVec;

use super::local_fallback::SharesTaken;
use super::{LimitStatuses, Limiter, Limits};
use crate::limit::{Charge, ChargeKind, Decision, Policy};
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
#[derive(Debug)]
pub(super) enum Origin {
    /// In the store, and these refunds say what was taken from the shares of this process as well.
    Store(Vec<Charge>),
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
        if held.is_empty() {
            return None;
        }
        if let Origin::Fallback { .. } = origin {
            held.iter()
                .for_each(|held| limiter.ledger.reserved(limits.policy(&held.charge), held.charge.key));
        }
        let (limiter, limits) = (limiter.clone(), limits.clone());
        Some(Box::new(Self { limiter, limits, held, origin }))
    }

    /// Gives back the units that a request with this final status does not pay; says what its limits have left then.
    pub async fn settle(mut self: Box<Self>, status: u16) -> LimitStatuses {
        let held = std::mem::take(&mut self.held);
        let is_charged = |held: &Held| self.limits.policy(&held.charge).charge_on.contains(&status);
        let (charged, returned): (SmallVec<[Held; 2]>, SmallVec<[Held; 2]>) =
            held.into_iter().partition(is_charged);
        self.held = charged;
        if returned.is_empty() {
            return LimitStatuses::new();
        }
        let refunds: Vec<Charge> = returned.iter().map(Held::refund).collect();
        match &self.origin {
            Origin::Store(shares) => {
                let is_returned = |share: &&Charge| {
                    refunds.iter().any(|refund| (refund.policy, refund.key) == (share.policy, share.key))
                };
                let shares: SharesTaken = shares.iter().filter(is_returned).copied().collect();
                self.limiter.return_shares(&self.limits, &shares);
                self.limiter.refund(&self.limits, &refunds).await
            }
            Origin::Fallback { .. } => {
                let standings = self.limiter.refund_alone(&self.limits, &refunds);
                returned.iter().for_each(|held| self.settled(&held.charge));
                standings
            }
        }
    }
}

impl Reservation {
    fn settled(&self, charge: &Charge) {
        self.limiter.ledger.settled(self.limits.policy(charge), charge.key);
    }
}

impl Drop for Reservation {
    /// What stays charged is owed to the store if it was taken here.
    fn drop(&mut self) {
        if let Origin::Fallback { is_owed } = self.origin {
            for Held { charge, decision } in &self.held {
                self.limiter.write_down(&self.limits, charge, decision, is_owed);
                // Only now: in between the store would seem to know all of the key.
                self.settled(charge);
            }
        }
    }
}

impl Held {
    /// Whether a status may give it back. A limit that only watches takes as well if it would have let pass.
    fn is_taken(&self, limits: &Limits) -> bool {
        let policy: &Policy = limits.policy(&self.charge);
        let takes = self.charge.manner == ChargeKind::Take && self.charge.cost > 0;
        policy.charges_by_status() && takes && self.decision.allowed
    }

    fn refund(&self) -> Charge {
        self.charge.refund(self.decision.at)
    }
}
