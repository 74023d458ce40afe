//! What a limiter does by itself while the store can't be asked, what it knows then, and how it pays afterwards.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;

use super::outage_ledger::DebtEntry;
use super::reservation::{Origin, Reservation};
use super::slots::SlotLease;
use super::{Admission, Denial, LimitStatus, LimitStatuses, Limiter, Limits, OnStoreFailure, RETRY};
use crate::limit::{Charge, ChargeKind, Decision, Policy, Quota, Record};
use crate::store::{Decisions, Redis, Store, StoreError};
use crate::telemetry::{ChargeBack, Outcome};
use crate::time::monotonic;

/// How many keys are paid, and how many charges go in one call: it must not keep the server from others.
const PAID_AT_ONCE: usize = 128;
/// How many calls are under way at once: on a cluster each key has its own.
const CALLS_AT_ONCE: usize = 16;
/// The longest that a worker pays before it asks the store again.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at what other workers, or single failures, have left to be paid.
const PAUSE: Duration = Duration::from_millis(500);

/// Between two payments.
const BREATH: Duration = Duration::from_millis(10);

/// How many keys are refused before a worker tries the others later: one node of a cluster may take none.
const REFUSED_AT_ONCE: usize = 1_024;
/// What the store has refused so often to take, over minutes, it never will.
const MOST_REFUSALS: u16 = 1_000;

/// What gives back the charges that were taken from the shares before the store is asked.
pub(super) type SharesTaken = SmallVec<[Charge; 4]>;

/// One call that pays, and for whom.
struct Payment {
    policies: Arc<[Policy]>,
    debtors: Vec<DebtEntry>,
    charges: Vec<Charge>,
}

impl Limiter {
    /// Keeps what the store says of keys, for when it can't be asked any more. Slots are known anyway, and what
    /// was admitted since, and is not paid yet, stays known.
    pub(super) fn learn(&self, limits: &Limits, charges: &[Charge], decisions: &[Decision]) {
        for (charge, said) in charges.iter().zip(decisions) {
            let share = &limits.shares[charge.policy];
            if limits.on_failure(charge) == OnStoreFailure::Local && !is_slot(share) {
                let is_settled = self.breaker.are_all_closed() && !self.ledger.owes(share, charge.key);
                let seed = if is_settled { Policy::seed } else { Policy::stricter_seed };
                self.alone.replace(share, charge.key, |known, now| {
                    let record = seed(share, known, said, limits.instances, now);
                    // A refund is decided without a look at bans and blocks.
                    let hold = if charge.manner == ChargeKind::Refund {
                        known.and_then(|known| known.hold)
                    } else {
                        record.hold
                    };
                    Record { hold, ..record }
                });
            }
        }
    }

    /// Whether the store knows all that was admitted of these keys, as far as this process can tell: it has paid, and if it
    /// was without the store, the other proxies have had the time to pay as well.
    pub(super) fn is_settled(&self, limits: &Limits, charges: &[Charge]) -> bool {
        let owes = |charge: &Charge| self.ledger.owes(limits.policy(charge), charge.key);
        self.breaker.are_all_closed() && !charges.iter().any(owes)
    }

    /// Takes charges from the shares of this process before the store is asked, so that a limit is not exceeded by what the
    /// store does not know of yet.
    ///
    /// # Errors
    /// The refusal, if a share is used up.
    pub(super) fn take_shares(
        &self,
        limits: &Limits,
        charges: &[Charge],
    ) -> Result<SharesTaken, Box<Admission>> {
        let mut own = limits.local(charges);
        own.retain(|charge| !is_slot(limits.policy(charge)));
        let fitting = limits.fitting(&own);
        let decisions = self.alone.take(&limits.shares, &fitting);
        let ruling = Admission::of(&limits.shares, &fitting, &decisions, None);
        if ruling.verdict.is_err() {
            self.counts.decided_alone(&limits.shares, &fitting, &decisions);
            self.count_allowing(limits, charges);
            return Err(Box::new(ruling));
        }
        let made = fitting
            .iter()
            .zip(&decisions)
            .filter(|(charge, said)| said.allowed && charge.manner == ChargeKind::Take && charge.cost > 0);
        Ok(made.map(|(charge, said)| charge.refund(said.at)).collect())
    }

    /// Gives back what was taken from the shares for a request that the store has not admitted.
    pub(super) fn return_shares(&self, limits: &Limits, taken: &SharesTaken) {
        let _ = self.alone.settle(&limits.shares, taken);
    }

    /// Decides without the store, after `error` or without having asked. Denial of service by policy goes over denial
    /// by a limit, which goes over leave.
    pub(super) fn decide_alone(
        &self,
        limits: &Limits,
        charges: &[Charge],
        error: Option<&StoreError>,
    ) -> Admission {
        let denies = |charge: &Charge| {
            limits.on_failure(charge) == OnStoreFailure::Deny && !limits.policy(charge).shadow
        };
        if charges.iter().any(denies) {
            let denying = charges.iter().filter(|charge| denies(charge));
            denying.for_each(|charge| self.counts.decided(charge.policy, Outcome::UnaskedDenied));
            let verdict = Err(Denial::Unavailable { retry_after: self.breaker.until_probe().max(RETRY) });
            return Admission { verdict, ..Admission::pass() };
        }
        let own = limits.local(charges);
        let place = || SlotLease::here(&self.alone, &limits.shares);
        let (own, slots) = self.slots.ask(&limits.policies, &limits.shares, place, &own);
        let fitting = limits.fitting(&own);
        let decisions = self.alone.take(&limits.shares, &fitting);
        self.write_down_all(limits, &own, &decisions, error);
        self.counts.decided_alone(&limits.shares, &fitting, &decisions);
        self.count_allowing(limits, charges);
        let ruling = Admission::of(&limits.shares, &fitting, &decisions, slots);
        ruling.reserving(|| Reservation::of(self, limits, &own, &decisions, Origin::fallback(error)))
    }

    /// Counts the limits that let a request pass because the store was not asked.
    fn count_allowing(&self, limits: &Limits, charges: &[Charge]) {
        let allows = |charge: &&Charge| {
            limits.on_failure(charge) == OnStoreFailure::Allow && !limits.policy(charge).shadow
        };
        let allowing = charges.iter().filter(allows);
        allowing.for_each(|charge| self.counts.decided(charge.policy, Outcome::UnaskedAllowed));
    }

    /// Gives back units that were taken here, and says what their limits have left then.
    pub(super) fn refund_alone(&self, limits: &Limits, refunds: &[Charge]) -> LimitStatuses {
        let fitting = limits.fitting(refunds);
        let decisions = self.alone.settle(&limits.shares, &fitting);
        limits.standings(&fitting, &decisions)
    }

    /// Writes down what these decisions have admitted, but for what a status may give back. It is owed if nothing was
    /// sent; if an answer was lost, the store may have it.
    fn write_down_all(
        &self,
        limits: &Limits,
        charges: &[Charge],
        decisions: &Decisions,
        error: Option<&StoreError>,
    ) {
        let all = || charges.iter().zip(decisions);
        let passes = all().all(|(charge, said)| said.allowed || limits.policy(charge).shadow);
        let is_owed = error.is_none_or(StoreError::charges_nothing);
        for (charge, said) in all() {
            let (is_charge, policy) =
                (charge.manner == ChargeKind::Take && charge.cost > 0, limits.policy(charge));
            if passes && said.allowed && is_charge && !is_slot(policy) && !policy.charges_by_status() {
                self.write_down(limits, charge, said, is_owed);
            }
        }
    }

    /// Writes down a charge that was made here, and whether the store is owed it.
    pub(super) fn write_down(&self, limits: &Limits, charge: &Charge, said: &Decision, is_owed: bool) {
        if is_owed {
            self.ledger.add(limits, charge, said, said.at);
        } else {
            self.ledger.pass(limits, charge, said.at);
        }
    }

    /// Pays what is owed as soon as the store answers, and now and then.
    pub(super) async fn keep_paying(&self) {
        loop {
            let _ = tokio::time::timeout(PAUSE, self.payable.notified()).await;
            let _ = monotonic();
            if !self.breaker.is_open() {
                self.pay().await;
                // Other workers may add to it with each request.
                tokio::time::sleep(BREATH).await;
            }
        }
    }

    /// Pays what is owed, for two seconds at most; says whether the store answered. What it refuses stays owed, and keeps
    /// nobody from paying the rest.
    pub(super) async fn pay(&self) -> bool {
        let Store::Redis(redis) = &self.store else { return true };
        let end = monotonic() + PATIENCE;
        let (mut guards, mut refused) = (Vec::new(), Vec::new());
        let answers = loop {
            let (debtors, guard) = self.ledger.take(PAID_AT_ONCE);
            if debtors.is_empty() {
                break true;
            }
            guards.push(guard);
            let mut answers = true;
            let payments = self.payments(debtors, redis.may_give_back());
            let mut payments = payments.into_iter().peekable();
            while answers && payments.peek().is_some() {
                let some: Vec<Payment> = payments.by_ref().take(CALLS_AT_ONCE).collect();
                let calls = some.into_iter().map(|payment| self.send(redis, payment));
                for left in join_all(calls).await {
                    answers &= left.is_some();
                    refused.extend(left.into_iter().flatten());
                }
            }
            payments.flat_map(|payment| payment.debtors).for_each(|debtor| self.ledger.put_back(debtor));
            if !answers || refused.len() >= REFUSED_AT_ONCE || monotonic() >= end {
                break answers;
            }
        };
        for debtor in refused {
            self.ledger.put_back(debtor);
        }
        answers
    }

    /// Puts those together that are paid in one call.
    fn payments(&self, debtors: Vec<DebtEntry>, are_apart: bool) -> Vec<Payment> {
        let now = self.alone.clock().now();
        let mut payments: Vec<Payment> = Vec::new();
        for debtor in debtors {
            let charges: Vec<Charge> = debtor.charges(now).collect();
            let fits = |payment: &&mut Payment| {
                !are_apart
                    && Arc::ptr_eq(&payment.policies, &debtor.policies)
                    && payment.charges.len() + charges.len() <= PAID_AT_ONCE
            };
            match payments.last_mut().filter(fits) {
                // Time has brought all of it back.
                _ if charges.is_empty() => {}
                Some(payment) => {
                    payment.charges.extend(charges);
                    payment.debtors.push(debtor);
                }
                None => {
                    let policies = Arc::clone(&debtor.policies);
                    payments.push(Payment { policies, debtors: vec![debtor], charges });
                }
            }
        }
        payments
    }

    /// Sends a payment; gives back who was refused, or nothing if the store did not answer. One whose answer is lost is
    /// not sent again.
    async fn send(&self, redis: &Redis, payment: Payment) -> Option<Vec<DebtEntry>> {
        let Payment { policies, mut debtors, charges } = payment;
        let units = charges.iter().map(|charge| charge.cost).sum();
        match redis.settle(&policies, &charges).await {
            Ok(decisions) => {
                self.ledger.count(ChargeBack::Paid, units);
                for debtor in &debtors {
                    let own = |(charge, _): &(&Charge, _)| {
                        (charge.policy, charge.key) == (debtor.policy, debtor.key)
                    };
                    // The last one says what all of them have come to.
                    if let Some((_, said)) = charges.iter().zip(&decisions).rfind(own) {
                        debtor.learn(&self.alone, said);
                    }
                }
                Some(Vec::new())
            }
            Err(StoreError::Refused(_)) => {
                for debtor in &mut debtors {
                    debtor.refusals += 1;
                }
                let (given_up, left): (Vec<DebtEntry>, Vec<DebtEntry>) =
                    debtors.into_iter().partition(|debtor| debtor.refusals >= MOST_REFUSALS);
                self.ledger.count(ChargeBack::Dropped, given_up.iter().map(DebtEntry::units).sum());
                Some(left)
            }
            Err(error) if error.charges_nothing() => {
                for debtor in debtors {
                    self.ledger.put_back(debtor);
                }
                None
            }
            Err(_) => {
                self.ledger.count(ChargeBack::Lost, units);
                None
            }
        }
    }
}

impl Limits {
    /// Where charges stand after these decisions; those that only watch show nothing.
    pub(super) fn standings(&self, charges: &[Charge], decisions: &[Decision]) -> LimitStatuses {
        let all = charges.iter().zip(decisions);
        let shown = all.filter(|(charge, _)| !self.policy(charge).shadow);
        shown.map(|(charge, decision)| LimitStatus { policy: charge.policy, decision: *decision }).collect()
    }
}

fn is_slot(policy: &Policy) -> bool {
    matches!(policy.quota, Quota::Concurrency(_))
}

#[cfg(test)]
mod tests;
