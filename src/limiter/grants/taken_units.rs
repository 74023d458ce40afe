//! Units that a request takes from held grants.

use std::sync::Arc;

use smallvec::SmallVec;

use super::held_grants::{HeldGrants, TakeResult};
use super::table::GrantTable;
use crate::limit::{Charge, ChargeKind, Charges, DecidedCharge, DecidedCharges, Decision, EntryId, Policy};
use crate::limiter::limits::Limits;
use crate::limiter::local_fallback::LocalFallback;
use crate::limiter::status::{LimitStatus, LimitStatuses};
use crate::time::{BootTime, Timestamp};

/// Units that a request has taken from held grants. They are put back when this is dropped, unless the request passes.
#[derive(Debug)]
pub(in crate::limiter) struct TakenUnits {
    table: Arc<GrantTable>,
    charges: SmallVec<[TakenCharge; 1]>,
}

/// A charge that was decided without the store.
#[derive(Clone, Copy, Debug)]
struct TakenCharge {
    /// Its index among the charges of the request.
    index: usize,
    charge: Charge,
    decision: Decision,
    id: EntryId,
    source: UnitSource,
}

/// Where the units of a charge come from.
#[derive(Clone, Copy, Debug)]
enum UnitSource {
    Grant {
        serial: u64,
        opened: Timestamp,
    },
    /// No units were taken: those of the paced grant are not available yet.
    Denied,
}

/// The charges of a request: those that held grants decide, and those that the store must decide.
#[derive(Debug)]
pub(in crate::limiter) struct SplitCharges {
    /// The charges that are decided.
    pub taken: TakenUnits,
    /// The charges that the store must decide. Those of limits with `ahead` are of the kind `Grant`.
    pub missing: Charges,
    /// The charges for whose keys the next grant should be requested now.
    pub low: SmallVec<[Charge; 1]>,
}

/// Units that were put back into their grants, and others that the store must refund.
#[derive(Debug, Default)]
pub(in crate::limiter) struct PutBack {
    /// The decisions of limits after that.
    pub statuses: LimitStatuses,
    /// The refunds of units whose grant has ended.
    pub refunds: SmallVec<[Charge; 2]>,
}

/// Takes the units of each charge from a held grant, if one has enough. While the store does not know all that was admitted,
/// `unsettled`, they must fit the share of this process as well.
pub(in crate::limiter) fn take_units(
    table: &Arc<GrantTable>,
    limits: &Limits,
    charges: &[Charge],
    unsettled: Option<&LocalFallback>,
    now: BootTime,
) -> SplitCharges {
    let taken = TakenUnits { table: Arc::clone(table), charges: SmallVec::new() };
    let mut split = SplitCharges { taken, missing: SmallVec::new(), low: SmallVec::new() };
    let taking = Taking { limits, unsettled, now };
    for (index, charge) in charges.iter().enumerate() {
        split.add(index, charge, &taking);
    }
    split
}

/// The limits, the fallback and the time by which the charges of a request are decided; see [`take_units`].
struct Taking<'a> {
    limits: &'a Limits,
    unsettled: Option<&'a LocalFallback>,
    now: BootTime,
}

/// Makes the shares of these charges, which no held grant could decide, count what was taken from grants. Units that are
/// still held are dropped where a share decides in their place: they count as spent, for the store as well.
pub(in crate::limiter) fn update_shares(
    table: &GrantTable,
    fallback: &LocalFallback,
    limits: &Limits,
    charges: &[Charge],
    now: BootTime,
) {
    for charge in charges.iter().filter(|charge| limits.policy(charge).ahead.is_some()) {
        let id = EntryId::new(limits.policy(charge), charge.key);
        let _ = table.with_known(&id, |held| {
            if fallback.update_share(limits, charge, held.share.take_update(now)) && held.units() > 0 {
                held.share.take(held.units());
                held.drop_all();
                fallback.update_share(limits, charge, held.share.take_update(now));
            }
        });
    }
}

impl SplitCharges {
    fn add(&mut self, index: usize, charge: &Charge, taking: &Taking<'_>) {
        let Taking { limits, unsettled, now } = *taking;
        let policy = limits.policy(charge);
        if policy.ahead.is_none() || charge.kind != ChargeKind::Take {
            self.missing.push(*charge);
            return;
        }
        let table = &self.taken.table;
        let take = |held: &mut HeldGrants| {
            held.record_demand(charge.cost, now);
            let has_room =
                |fallback: &LocalFallback| fallback.update_share(limits, charge, held.share.take_update(now));
            if charge.cost == 0 || !unsettled.is_none_or(has_room) {
                TakeResult::Missing
            } else {
                held.take(charge.cost, now)
            }
        };
        let result = table.with_key(&limits.policies, charge, now, take).unwrap_or(TakeResult::Missing);
        let (decision, source) = match result {
            TakeResult::Taken { serial, opened, decision, is_low } => {
                // A limit in shadow mode makes no calls of its own.
                if is_low && !policy.shadow {
                    self.low.push(*charge);
                }
                (decision, UnitSource::Grant { serial, opened })
            }
            TakeResult::Denied(decision) => (decision, UnitSource::Denied),
            TakeResult::Missing => {
                self.missing.push(charge.with_kind(ChargeKind::Grant));
                return;
            }
        };
        let id = EntryId::new(policy, charge.key);
        self.taken.charges.push(TakenCharge { index, charge: *charge, decision, id, source });
    }
}

impl TakenUnits {
    /// Whether a paced grant denies the request, since its next unit is not available yet.
    pub(in crate::limiter) fn denies(&self, policies: &[Policy]) -> bool {
        self.charges.iter().any(|taken| !taken.decision.allowed && !policies[taken.charge.policy].shadow)
    }

    /// Puts back the units of a request that is denied. Returns the decisions of its limits after that; `others` are those on
    /// the charges that were not decided here.
    pub(in crate::limiter) fn deny(
        mut self,
        policies: &[Policy],
        others: LimitStatuses,
        now: BootTime,
    ) -> LimitStatuses {
        let mut statuses = others;
        for taken in std::mem::take(&mut self.charges) {
            let decision = self.put_back(&taken, now).unwrap_or(taken.decision);
            if !policies[taken.charge.policy].shadow {
                statuses.insert(taken.index.min(statuses.len()), taken.status(policies, decision));
            }
        }
        statuses
    }

    /// The charges that held grants have decided.
    pub(in crate::limiter) fn decided(&self) -> DecidedCharges {
        self.charges.iter().map(TakenCharge::decided).collect()
    }

    /// All charges of the request in their order: `others` are those that the store has decided.
    pub(in crate::limiter) fn join(&self, others: DecidedCharges) -> DecidedCharges {
        let mut all = others;
        for taken in &self.charges {
            // Without the store, charges of limits that allow every request are left out.
            all.insert(taken.index.min(all.len()), taken.decided());
        }
        all
    }

    /// Records that the request passes. Returns the units of limits that reserve them, which its response may change.
    pub(in crate::limiter) fn pass(mut self, limits: &Limits) -> Option<Box<Self>> {
        let is_reserved =
            |taken: &TakenCharge| taken.decision.allowed && limits.reserve(limits.policy(&taken.charge));
        let (reserved, spent): (SmallVec<[TakenCharge; 1]>, SmallVec<[TakenCharge; 1]>) =
            std::mem::take(&mut self.charges).into_iter().partition(is_reserved);
        spent.iter().for_each(|taken| self.spend(taken, taken.charge.cost));
        self.charges = reserved;
        (!self.charges.is_empty()).then(|| Box::new(self))
    }

    /// Puts back the units of a request that is denied.
    pub(in crate::limiter) fn put_back_all(mut self, now: BootTime) {
        self.put_back_each(now);
    }

    fn put_back_each(&mut self, now: BootTime) {
        for taken in std::mem::take(&mut self.charges) {
            self.put_back(&taken, now);
        }
    }

    /// Records that the request is charged.
    pub(in crate::limiter) fn charge(mut self) {
        std::mem::take(&mut self.charges).iter().for_each(|taken| self.spend(taken, taken.charge.cost));
    }

    /// The charges whose units were taken.
    pub(in crate::limiter) fn charges(&self) -> impl Iterator<Item = Charge> {
        self.charges.iter().map(|taken| taken.charge)
    }

    /// Records that the request is charged for the units of these charges up to `rest`, from which those are subtracted, and
    /// puts back the others.
    pub(in crate::limiter) fn settle(
        &mut self,
        policies: &[Policy],
        is_settled: impl Fn(&Charge) -> bool,
        rest: &mut u64,
    ) -> PutBack {
        let (mut put_back, now) = (PutBack::default(), BootTime::now());
        let (settled, others): (SmallVec<[TakenCharge; 1]>, _) =
            std::mem::take(&mut self.charges).into_iter().partition(|taken| is_settled(&taken.charge));
        self.charges = others;
        for taken in settled {
            let charged = taken.charge.cost.min(*rest);
            *rest -= charged;
            if charged > 0 {
                self.spend(&taken, charged);
            }
            let unused =
                TakenCharge { charge: Charge { cost: taken.charge.cost - charged, ..taken.charge }, ..taken };
            if unused.charge.cost == 0 {
                continue;
            }
            if let Some(decision) = self.put_back(&unused, now) {
                if !policies[taken.charge.policy].shadow {
                    put_back.statuses.push(taken.status(policies, decision));
                }
            } else if let UnitSource::Grant { opened, .. } = taken.source {
                // The store has charged the units when the grant ended, unless it has lost the state that reserved them.
                put_back.refunds.push(unused.charge.refund(opened));
            }
        }
        put_back
    }

    fn spend(&self, taken: &TakenCharge, units: u64) {
        if let UnitSource::Grant { serial, .. } = taken.source {
            self.table.with_known(&taken.id, |held| held.spend(serial, units));
        }
    }

    /// Puts back units; returns the decision of the limit after that, or `None` if their grant has ended.
    fn put_back(&self, taken: &TakenCharge, now: BootTime) -> Option<Decision> {
        let UnitSource::Grant { serial, .. } = taken.source else { return None };
        let put_back = self.table.with_known(&taken.id, |held| {
            held.put_back(serial, taken.charge.cost, now).then(|| held.decision(now))
        });
        put_back.flatten()
    }
}

impl Drop for TakenUnits {
    fn drop(&mut self) {
        if !self.charges.is_empty() {
            self.put_back_each(BootTime::now());
        }
    }
}

impl TakenCharge {
    fn decided(&self) -> DecidedCharge {
        DecidedCharge { charge: self.charge, decision: self.decision }
    }

    fn status(&self, policies: &[Policy], decision: Decision) -> LimitStatus {
        LimitStatus::new(&policies[self.charge.policy], &self.charge, decision)
    }
}
