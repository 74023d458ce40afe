//! Decisions of this process while the store is unavailable, for limits with `on_store_failure = "local"`.
//!
//! A second [`Memory`] counts by the shares of this process. Every decision of the store seeds it, so it knows how much of a
//! key is left when the store fails, and what it admits goes into the [`OutageLedger`].
//!
//! # Shares, debts and trials
//! `limiter::local_fallback` decides for limits with `on_store_failure = "local"`. A second in-process store counts with each
//! proxy's share of the limits (`Quota::shared_by`). Every reply of Redis seeds it (`Policy::seed`): remaining units and the
//! time until all are back are enough to rebuild a state. So a local decision needs one lookup, and nothing is copied when the
//! breaker opens.
//!
//! What is admitted locally is recorded in the `OutageLedger` if the error proves that nothing was sent
//! (`StoreError::is_uncharged`); a charge whose reply was lost is counted locally, and never charged again.
//! `limit::OwedCharges` computes the debt. A bucket owes what its share holds beyond its level before the outage: it keeps
//! both, and drains the older part first, so that k shares that each drain at a k-th of the rate never owe less than one bucket
//! would hold. Algorithms that count by time keep steps with their times.
//!
//! Units that a process holds of grants are part of its share then. The seed counts all reserved units as spent, so
//! `grants::share_balance` remembers for each key the last decision, the units that were held then, and those that were taken
//! since: requests are decided by held units without touching the share while the store replies. The first request that is not
//! (`LocalFallback::unless_settled`) makes the share count them (`Policy::updated_share`): the held units become available to
//! it, and each one that is taken is charged at its time. From then on held units are spent only as far as the share has room.
//! They are not owed, since the store charges them by a report or when their grant ends. As replies are rare, what other
//! processes have taken is known late; so the share has at most what remains of it if only the units of this process are
//! counted (`Policy::own_usage`), and a process holds at most its share. Then all processes together have no more than the
//! limit, whatever they know of each other, unless one has taken more than its share from the store. An exhausted bucket with
//! units promised for later tells when all of them are refilled (`reset_after` may exceed the time in which a full debt
//! drains), so that shares do not refill before.
//!
//! When a probe succeeds, the worker charges the debt before its breaker closes, in calls of at most 128 late charges; debt
//! that is recorded later is charged by `ServerLimiter::run_maintenance`. While the ledger has a key, or its charge-back is under
//! way, the store does not know the whole count; and while a breaker of the process is open or on trial, other proxies may not
//! have charged theirs (with several `instances` the trial lasts 1.5 s). The same holds from the first failure until a reply, and
//! for 1.5 s more if calls failed for long enough to open the breaker of another proxy. In that time
//! (`LocalFallback::is_settled`) a request
//! must fit the share as well as the store: `take_shares` charges the share before the store is called, `refund_shares` refunds
//! it if the store denies, and a reply seeds the share only if it leaves less (`Policy::stricter_seed`). On the wire a late
//! charge has an age by the monotonic clock, since the server's clock differs from ours. A charge-back whose reply is lost is
//! not repeated. Slots have no ledger: the slots in the store are copied to the local store when the breaker opens, and all are
//! renewed in the store when it is back.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::Breaker;
use super::kept_slots::SlotOwner;
use super::limits::{Limits, OnStoreFailure};
use super::outage_ledger::OutageLedger;
use super::slots::{SlotSet, WorkerSlots};
use super::status::{LimitStatus, LimitStatuses, enforced};
use crate::limit::{Charge, ChargeKind, DecidedCharge, DecidedCharges, Policy, Record, ShareUpdate};
use crate::store::{Memory, StoreError};
use crate::telemetry::{Counts, DecisionSource, LimitOutcome};

/// The refunds of charges that were taken from the shares before the request was sent to the store.
pub(super) type ShareRefunds = SmallVec<[Charge; 4]>;

/// Decides without the store. A clone shares all of its state.
#[derive(Clone, Debug)]
pub(super) struct LocalFallback {
    /// Counts by the shares of this process.
    pub memory: Arc<Memory>,
    /// The charges admitted while the store was unavailable, and not paid yet.
    pub ledger: Arc<OutageLedger>,
    /// The circuit breaker before the store.
    pub breaker: Rc<Breaker>,
    /// The slots of this worker's requests.
    pub slots: Arc<WorkerSlots>,
    /// Counts decisions.
    pub counts: Arc<Counts>,
}

impl LocalFallback {
    /// Stores the decisions of the store, for when it becomes unavailable. Slots are known anyway, and charges that
    /// were admitted without the store and are not paid yet stay counted.
    pub fn seed(&self, limits: &Limits, decided: &[DecidedCharge]) {
        for DecidedCharge { charge, decision } in decided {
            let share = limits.share(charge);
            // What is charged in addition during an outage drains after what the store had counted before it.
            let is_counted = limits.on_failure(charge) == OnStoreFailure::Local || share.settles();
            if is_counted && !share.has_slots() {
                let is_settled = self.is_settled(limits, std::slice::from_ref(charge));
                let seed = if is_settled { Policy::seed } else { Policy::stricter_seed };
                self.memory.update(share, charge.key, |known, now| {
                    let record = seed(share, known, decision, limits.instances, now);
                    // The decision on a refund or an extra charge does not include bans and blocks.
                    let penalty = if matches!(charge.kind, ChargeKind::Refund | ChargeKind::Extra) {
                        known.and_then(|known| known.penalty)
                    } else {
                        record.penalty
                    };
                    Record { penalty, ..record }
                });
            }
        }
    }

    /// Makes the share of a charge's key count what was taken from grants. Returns whether it has room for the charge; always if
    /// another value of `on_store_failure` applies.
    pub fn update_share(&self, limits: &Limits, charge: &Charge, update: Option<ShareUpdate>) -> bool {
        if limits.on_failure(charge) != OnStoreFailure::Local {
            return true;
        }
        let share = limits.share(charge);
        if let Some(update) = update {
            let make =
                |known: Option<&Record>, now| share.updated_share(known, &update, limits.instances, now);
            self.memory.update(share, charge.key, make);
        }
        let capped = limits.capped(&[charge.with_kind(ChargeKind::Check)]);
        self.memory.take(&limits.shares, &capped)[0].allowed
    }

    /// Whether the store has been charged for all that was admitted for these keys, as far as this process knows: it has paid
    /// its debts, and after an outage the other proxies have had the time to pay theirs.
    pub fn is_settled(&self, limits: &Limits, charges: &[Charge]) -> bool {
        self.breaker.are_all_settled()
            && !charges.iter().any(|charge| self.ledger.has_debt(limits.policy(charge), charge.key))
    }

    /// Itself, unless [`LocalFallback::is_settled`].
    pub fn unless_settled(&self, limits: &Limits, charges: &[Charge]) -> Option<&Self> {
        (!self.is_settled(limits, charges)).then_some(self)
    }

    /// Takes charges from the shares of this process before the request is sent to the store, so that a limit is not exceeded
    /// by what the store does not know yet.
    ///
    /// # Errors
    /// The decisions, if a share is used up.
    pub fn take_shares(
        &self,
        limits: &Limits,
        charges: &[Charge],
    ) -> Result<ShareRefunds, Box<DecidedCharges>> {
        let mut local = limits.local(charges);
        local.retain(|charge| !limits.policy(charge).has_slots());
        let decided = self.memory.decide(&limits.shares, &limits.capped(&local));
        if !decided.iter().all(|one| one.decision.allowed || limits.share(&one.charge).shadow) {
            self.record_decisions(limits, &decided);
            self.count_allowing(limits, charges);
            return Err(Box::new(decided));
        }
        let taken = decided.iter().filter(|one| one.decision.allowed && one.charge.takes_units());
        Ok(taken.map(DecidedCharge::refund).collect())
    }

    /// Refunds what was taken from the shares for a request that the store has not admitted.
    pub fn refund_shares(&self, limits: &Limits, taken: &ShareRefunds) {
        let _ = self.memory.apply(&limits.shares, taken);
    }

    /// Whether a limit denies the request because the store is unavailable.
    pub fn denies(&self, limits: &Limits, charges: &[Charge]) -> bool {
        let denies = |charge: &&Charge| {
            limits.on_failure(charge) == OnStoreFailure::Deny && !limits.policy(charge).shadow
        };
        let mut is_denied = false;
        for charge in charges.iter().filter(denies) {
            self.record_unavailable(limits, charge, LimitOutcome::Denied);
            is_denied = true;
        }
        is_denied
    }

    /// The decisions of the shares on checks, if one of them denies the request.
    pub fn check(&self, limits: &Limits, checks: &[Charge]) -> Option<DecidedCharges> {
        let decided = self.memory.decide(&limits.shares, &limits.capped(&limits.local(checks)));
        if decided.iter().all(|one| one.decision.allowed) {
            return None;
        }
        self.record_decisions(limits, &decided);
        self.count_allowing(limits, checks);
        Some(decided)
    }

    /// Decides by the shares, after `error` or without a call to the store. Returns the slots that the charges request as well.
    pub fn decide(
        &self,
        limits: &Limits,
        charges: &[Charge],
        error: Option<&StoreError>,
    ) -> (DecidedCharges, Option<SlotSet>) {
        let local = limits.local(charges);
        let owner = || SlotOwner::local(&self.memory, &limits.shares);
        let (requested, slots) = self.slots.request(limits, owner, &local);
        let with_holders = if let Cow::Owned(charges) = requested { Some(charges) } else { None };
        let local = with_holders.map_or(local, SmallVec::from_vec);
        let decisions = self.memory.take(&limits.shares, &limits.capped(&local));
        // A charge that exceeds a whole share is capped to be decided, and owed in full.
        let decided = DecidedCharge::join(&local, &decisions);
        self.record_debts(limits, &decided, error);
        self.record_decisions(limits, &decided);
        self.count_allowing(limits, charges);
        (decided, slots)
    }

    /// Counts the limits that allow a request because the store is unavailable.
    fn count_allowing(&self, limits: &Limits, charges: &[Charge]) {
        let allows = |charge: &&Charge| {
            limits.on_failure(charge) == OnStoreFailure::Allow && !limits.policy(charge).shadow
        };
        for charge in charges.iter().filter(allows) {
            self.record_unavailable(limits, charge, LimitOutcome::Allowed);
        }
    }

    /// Counts the decision of a limit because the store is unavailable.
    fn record_unavailable(&self, limits: &Limits, charge: &Charge, outcome: LimitOutcome) {
        self.counts.record_decision(limits.configured(charge), outcome, DecisionSource::Fallback);
    }

    /// Counts decisions of the store, and those on kept slots.
    pub fn record_store_decisions(
        &self,
        policies: &[Policy],
        decided: &[DecidedCharge],
        slots: Option<&SlotSet>,
    ) {
        for one in decided {
            let is_kept = slots.is_some_and(|slots| slots.is_kept(&one.charge));
            let source = if is_kept { DecisionSource::Ahead } else { DecisionSource::Store };
            self.counts.record_decisions(policies, std::slice::from_ref(one), source);
        }
    }

    /// Counts decisions by the shares.
    fn record_decisions(&self, limits: &Limits, decided: &[DecidedCharge]) {
        self.counts.record_decisions(&limits.shares, decided, DecisionSource::Fallback);
    }

    /// Counts the denials among decisions for which the store was not called.
    pub fn record_denials(&self, policies: &[Policy], statuses: &LimitStatuses, source: DecisionSource) {
        for LimitStatus { policy, decision, .. } in statuses.iter().filter(|status| !status.decision.allowed)
        {
            let outcome = LimitOutcome::of(&policies[*policy], decision);
            self.counts.record_decision(*policy, outcome, source);
        }
    }

    /// Refunds units that a charge has taken in this process, all but those that are `charged`; returns the decision of the limit
    /// after that.
    pub fn refund(&self, limits: &Limits, taken: &DecidedCharge, charged: u64) -> LimitStatuses {
        // The share has taken no more than all of its units.
        let most = limits.share(&taken.charge).quota.usable();
        let cost = taken.charge.cost.min(most) - charged.min(most);
        let refund = [Charge { cost, ..taken.refund() }];
        let decisions = self.memory.apply(&limits.shares, &refund);
        enforced(&limits.policies, &DecidedCharge::join(&refund, &decisions))
    }

    /// Records extra charges that were not sent to the store, or whose reply was lost. The store is owed them if they were not
    /// sent, whatever the limit does while it is unavailable: the response has cost them already.
    pub fn record_extra(&self, limits: &Limits, charges: &[Charge], is_owed: bool) {
        for extra in charges.iter().filter(|charge| charge.kind == ChargeKind::Extra) {
            let decision = self.memory.apply(&limits.shares, &[*extra])[0];
            if is_owed {
                self.ledger.record(limits, &DecidedCharge { charge: *extra, decision }, extra.cost);
            } else {
                self.ledger.record_unowed(limits, extra, decision.at);
            }
        }
    }

    /// Records what these decisions have admitted, without units that a response may change. The store is owed them if nothing
    /// was sent; if a reply was lost, the store may have charged them.
    fn record_debts(&self, limits: &Limits, decided: &[DecidedCharge], error: Option<&StoreError>) {
        let passes = decided.iter().all(|one| one.decision.allowed || limits.policy(&one.charge).shadow);
        let is_owed = error.is_none_or(StoreError::is_uncharged);
        for one in decided {
            let policy = limits.policy(&one.charge);
            let is_final = !policy.has_slots() && !limits.reserve(policy);
            if passes && one.decision.allowed && one.charge.takes_units() && is_final {
                self.record_debt(limits, one, one.charge.cost, is_owed);
            }
        }
    }

    /// Records that units which a charge has taken in this process are charged, and whether the store is owed them.
    pub fn record_debt(&self, limits: &Limits, taken: &DecidedCharge, charged: u64, is_owed: bool) {
        if is_owed {
            self.ledger.record(limits, taken, charged);
        } else {
            let charge = Charge { cost: charged, ..taken.charge };
            self.ledger.record_unowed(limits, &charge, taken.decision.at);
        }
    }
}
