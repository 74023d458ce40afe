//! Units that one decision has taken for a request, and where they were taken.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::{Charge, DecidedCharge, EntryId};
use crate::limiter::grants::{PutBack, TakenUnits};
use crate::limiter::limits::Limits;
use crate::limiter::local_fallback::{LocalFallback, ShareRefunds};
use crate::limiter::settlement::Settlement;
use crate::store::StoreError;

/// Units that one decision has taken for a request. What is refunded goes to the state that took it, so each decision keeps its
/// own.
#[derive(Debug)]
pub(super) struct Part {
    pub limits: Limits,
    /// Units that charges have taken, and that may be refunded.
    pub held: SmallVec<[DecidedCharge; 2]>,
    pub origin: Origin,
    /// Units that were taken from grants.
    pub taken: Option<Box<TakenUnits>>,
}

/// Where units were taken, and so where they are refunded.
#[derive(Debug)]
pub(in crate::limiter) enum Origin {
    /// In the store; these refunds are of what was taken from the shares of this process as well.
    Store(Vec<Charge>),
    /// In this process, while the store was unavailable.
    Fallback {
        /// Whether the store is owed them: not if it may have charged them in a call whose reply was lost.
        is_owed: bool,
    },
}

impl Origin {
    /// In this process, after `error` or without a call to the store.
    pub fn fallback(error: Option<&StoreError>) -> Self {
        Self::Fallback { is_owed: error.is_none_or(StoreError::is_uncharged) }
    }
}

impl Part {
    /// The units of these charges.
    pub fn new(
        fallback: &LocalFallback,
        limits: &Limits,
        held: SmallVec<[DecidedCharge; 2]>,
        origin: Origin,
    ) -> Self {
        if let Origin::Fallback { .. } = origin {
            let ledger = &fallback.ledger;
            held.iter().for_each(|held| ledger.reserve(limits.policy(&held.charge), held.charge.key));
        }
        Self { limits: limits.clone(), held, origin, taken: None }
    }

    /// The charges that have taken units.
    pub fn charges(&self) -> impl Iterator<Item = Charge> {
        let held = self.held.iter().map(|held| held.charge);
        held.chain(self.taken.iter().flat_map(|taken| taken.charges()))
    }

    /// Adds units of the same limits and keys that the store has taken later, and counts them as taken at the time of the earlier ones: a
    /// refund returns no more than it would otherwise. Returns whether it has; otherwise nothing changes.
    pub fn merge(&mut self, later: &Self) -> bool {
        let is_plain = |part: &Self| {
            part.taken.is_none() && matches!(&part.origin, Origin::Store(shares) if shares.is_empty())
        };
        let is_same = |own: &DecidedCharge, other: &DecidedCharge| {
            (own.charge.policy, own.charge.key) == (other.charge.policy, other.charge.key)
        };
        let has_own = |other: &DecidedCharge| self.held.iter().any(|own| is_same(own, other));
        let is_alike = Arc::ptr_eq(&self.limits.policies, &later.limits.policies)
            && is_plain(self)
            && is_plain(later)
            && later.held.iter().all(has_own);
        if is_alike {
            for other in &later.held {
                if let Some(own) = self.held.iter_mut().find(|own| is_same(own, other)) {
                    own.charge.cost = own.charge.cost.saturating_add(other.charge.cost);
                }
            }
        }
        is_alike
    }

    /// Charges the units of a key up to `rest`, from which those are subtracted, and refunds the others.
    pub fn settle(
        &mut self,
        fallback: &LocalFallback,
        id: EntryId,
        rest: &mut u64,
        settlement: &mut Settlement,
    ) {
        let limits = &self.limits;
        let is_own = |charge: &Charge| EntryId::new(limits.policy(charge), charge.key) == id;
        if let Some(taken) = &mut self.taken {
            let PutBack { statuses, refunds } = taken.settle(&limits.policies, is_own, rest);
            settlement.statuses.extend(statuses);
            refunds.into_iter().for_each(|refund| settlement.add(limits, refund));
        }
        let held = std::mem::take(&mut self.held);
        let (own, others): (SmallVec<[DecidedCharge; 2]>, _) =
            held.into_iter().partition(|held| is_own(&held.charge));
        self.held = others;
        for held in own {
            let charged = held.charge.cost.min(*rest);
            *rest -= charged;
            self.settle_charge(fallback, &held, charged, settlement);
        }
    }

    /// Charges so many of the units that a charge has taken, and refunds the others.
    fn settle_charge(
        &self,
        fallback: &LocalFallback,
        held: &DecidedCharge,
        charged: u64,
        settlement: &mut Settlement,
    ) {
        let limits = &self.limits;
        let refunded = held.charge.cost - charged;
        match &self.origin {
            Origin::Store(_) if refunded == 0 => {}
            Origin::Store(shares) => {
                settlement.add(limits, Charge { cost: refunded, ..held.refund() });
                let own =
                    |share: &&Charge| (share.policy, share.key) == (held.charge.policy, held.charge.key);
                let refund = |share: &Charge| Charge { cost: share.cost.saturating_sub(charged), ..*share };
                let shares: ShareRefunds = shares.iter().filter(own).map(refund).collect();
                fallback.refund_shares(limits, &shares);
            }
            Origin::Fallback { is_owed } => {
                if refunded > 0 {
                    settlement.statuses.extend(fallback.refund(limits, held, charged));
                }
                if charged > 0 {
                    fallback.record_debt(limits, held, charged, *is_owed);
                }
                // After the debt is recorded: otherwise the key would seem to have no debt in between.
                fallback.ledger.release(limits.policy(&held.charge), held.charge.key);
            }
        }
    }

    /// Charges all units. The store is owed them if they were taken in this process.
    pub fn charge(&mut self, fallback: &LocalFallback) {
        if let Some(taken) = self.taken.take() {
            taken.charge();
        }
        for held in std::mem::take(&mut self.held) {
            if let Origin::Fallback { is_owed } = self.origin {
                fallback.record_debt(&self.limits, &held, held.charge.cost, is_owed);
                fallback.ledger.release(self.limits.policy(&held.charge), held.charge.key);
            }
        }
    }
}
