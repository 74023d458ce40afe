//! The grants of one key, and its demand.

use std::sync::Arc;

use super::demand_rate::DemandRate;
use super::held_grant::{GrantCall, HeldDecision, HeldGrant, UnitCounts};
use super::share_balance::ShareBalance;
use crate::limit::{
    Ahead, Charge, Decision, DenyReason, Grant, GrantReport, GrantRequest, Key, Policy, PolicyId,
};
use crate::telemetry::GrantEvent;
use crate::time::{BootTime, Micros, Timestamp};

/// The most grants of a key: one that is nearly used up, and the next.
const MAX_GRANTS: usize = 2;
/// How many grant requests are sent in the background at most in the span of a grant, while the store makes none.
const REFUSALS_PER_SPAN: u64 = 8;

/// The grants of a key under the numbers of one policy.
#[derive(Debug)]
pub(super) struct HeldGrants {
    owner: GrantOwner,
    /// The oldest first.
    grants: Vec<HeldGrant>,
    /// Whether a call that requests a grant is in flight.
    is_requesting: bool,
    rate: DemandRate,
    last_use: BootTime,
    /// Until when no grant is requested in the background, since the last request was refused.
    refused_until: BootTime,
    /// The last decision of the store, and when it arrived.
    last_decision: Option<(Decision, BootTime)>,
    /// What the share of this process in the key does not count yet.
    pub share: ShareBalance,
    /// Spent units that are not counted yet.
    uncounted: u64,
    counts: Arc<UnitCounts>,
    /// Whether it was used since the last eviction.
    was_used: bool,
}

/// The policy and the key that a grant belongs to.
#[derive(Clone, Debug)]
pub(super) struct GrantOwner {
    pub policies: Arc<[Policy]>,
    pub policy: PolicyId,
    pub key: Key,
}

/// How held grants decide a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeResult {
    /// The units were taken from a grant.
    Taken {
        /// The grant.
        serial: u64,
        /// When its generation was opened, by the clock of the store.
        opened: Timestamp,
        /// The decision of the limit.
        decision: Decision,
        /// Whether the next grant should be requested now.
        is_low: bool,
    },
    /// The units of a paced grant are not available yet.
    Denied(Decision),
    /// No grant has the units: the store decides.
    Missing,
}

/// Unspent units of a grant that is returned.
#[derive(Debug)]
pub(in crate::limiter) struct ReturnedGrant {
    pub(super) owner: GrantOwner,
    pub(super) report: GrantReport,
    /// When the grant ends: the store ignores later reports.
    pub(super) ends: BootTime,
    pub(super) counts: Arc<UnitCounts>,
}

impl GrantOwner {
    /// The policy and the key of a charge.
    pub fn new(policies: &Arc<[Policy]>, charge: &Charge) -> Self {
        Self { policies: Arc::clone(policies), policy: charge.policy, key: charge.key }
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policies[self.policy]
    }

    /// How the limit grants units; policies without are not in the table.
    fn ahead(&self) -> Ahead {
        let none = Ahead { span: Ahead::MIN_SPAN, share: Ahead::DEFAULT_SHARE };
        self.policy().ahead.unwrap_or(none)
    }

    /// Whether grants of `other` are valid for this owner: they belong to the numbers of a policy.
    fn has_numbers_of(&self, other: &Self) -> bool {
        let is_same = self.policy == other.policy && Arc::ptr_eq(&self.policies, &other.policies);
        let (own, theirs) = (self.policy(), other.policy());
        is_same || (own.quota == theirs.quota && own.ahead == theirs.ahead)
    }
}

impl HeldGrants {
    /// A key without grants.
    pub fn new(owner: GrantOwner, counts: Arc<UnitCounts>, now: BootTime) -> Self {
        Self {
            owner,
            grants: Vec::new(),
            is_requesting: false,
            rate: DemandRate::new(now),
            last_use: now,
            refused_until: now,
            last_decision: None,
            share: ShareBalance::default(),
            uncounted: 0,
            counts,
            was_used: true,
        }
    }

    /// Where its units are counted.
    pub fn counts(&self) -> Arc<UnitCounts> {
        Arc::clone(&self.counts)
    }

    /// Whether there are grants.
    pub fn has_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    /// The policy and the key.
    pub fn owner(&self) -> &GrantOwner {
        &self.owner
    }

    /// How long a grant lasts.
    pub fn span(&self) -> Micros {
        self.owner.ahead().span
    }

    /// How many units are held, including those that are not available yet.
    pub fn units(&self) -> u64 {
        self.grants.iter().map(HeldGrant::units).sum()
    }

    /// How many units of grants that have not ended are held.
    pub fn units_at(&mut self, now: BootTime) -> u64 {
        self.remove_ended(now);
        self.units()
    }

    /// Whether it was used since the last call of this method.
    pub fn reset_use(&mut self) -> bool {
        std::mem::take(&mut self.was_used)
    }

    /// Makes `owner` the owner; grants of other numbers than its own are returned.
    pub fn adopt(&mut self, owner: GrantOwner) -> Vec<ReturnedGrant> {
        let returned = if self.owner.has_numbers_of(&owner) {
            Vec::new()
        } else {
            self.last_decision = None;
            self.return_all()
        };
        self.owner = owner;
        returned
    }

    /// Whether these are the grants of a charge under `policies`.
    pub fn is_of(&self, policies: &Arc<[Policy]>, policy: PolicyId) -> bool {
        self.owner.policy == policy && Arc::ptr_eq(&self.owner.policies, policies)
    }

    /// Records a request for `cost` units.
    pub fn record_demand(&mut self, cost: u64, now: BootTime) {
        self.rate.add(cost, now);
        self.last_use = now;
        self.was_used = true;
    }

    /// Takes units from the oldest grant that has them.
    pub fn take(&mut self, cost: u64, now: BootTime) -> TakeResult {
        self.remove_ended(now);
        let Some(grant) = self.grants.iter_mut().find(|grant| grant.available(now) >= cost) else {
            return self.without_units(cost, now);
        };
        grant.take(cost);
        self.share.take(cost);
        let (serial, opened) = (grant.serial, grant.opened);
        TakeResult::Taken { serial, opened, decision: self.decision(now), is_low: self.is_low(now) }
    }

    /// The decision on a charge whose units no grant has.
    fn without_units(&self, cost: u64, now: BootTime) -> TakeResult {
        let ready = self.grants.iter().filter_map(|grant| grant.ready_at(cost)).min();
        ready.map_or(TakeResult::Missing, |at| self.deny(at.since(now), now))
    }

    /// How the grants would decide a charge.
    pub fn check(&mut self, cost: u64, now: BootTime) -> HeldDecision {
        self.remove_ended(now);
        if self.grants.is_empty() {
            return HeldDecision::NoGrant;
        }
        if self.grants.iter().any(|grant| grant.available(now) >= cost) {
            return HeldDecision::Undecided;
        }
        match self.without_units(cost, now) {
            TakeResult::Denied(decision) => HeldDecision::Denied(decision),
            TakeResult::Missing | TakeResult::Taken { .. } => HeldDecision::Undecided,
        }
    }

    /// Denies a request whose units become available in `wait`.
    fn deny(&self, wait: Micros, now: BootTime) -> TakeResult {
        // The store must count each denial that may lead to a ban.
        if self.owner.policy().ban.is_some() {
            return TakeResult::Missing;
        }
        let retry_after = Some(wait.max(Micros(1)));
        TakeResult::Denied(Decision { allowed: false, retry_after, ..self.decision(now) })
    }

    /// The decision that allows a request: the last one of the store, plus the units that are held.
    pub fn decision(&self, now: BootTime) -> Decision {
        let Some((last, at)) = self.last_decision else {
            let limit = self.owner.policy().quota.limit();
            return Decision::allowed(limit, self.available(now).min(limit), Micros::ZERO);
        };
        let passed = now.since(at);
        let reset_after = Micros(last.reset_after.0.saturating_sub(passed.0));
        let allowed = Decision::allowed(last.limit, last.remaining, reset_after);
        self.shown(Decision { at: last.at.after(passed), ..allowed }, now)
    }

    /// A decision of the store, plus the units that are held.
    pub fn shown(&self, decision: Decision, now: BootTime) -> Decision {
        if !decision.allowed {
            return decision;
        }
        Decision { remaining: (decision.remaining + self.available(now)).min(decision.limit), ..decision }
    }

    fn available(&self, now: BootTime) -> u64 {
        self.grants.iter().map(|grant| grant.available(now)).sum()
    }

    /// Whether the next grant should be requested now: less than a quarter of the last one is held, or it ends soon.
    fn is_low(&self, now: BootTime) -> bool {
        let Some(last) = self.grants.last() else { return false };
        let is_low = self.units().saturating_mul(4) < last.size();
        // Before the sweep returns it. One that lasts less than the span ends with its window, and so would the next one.
        let is_whole = last.duration() >= self.span();
        let ends_soon = is_whole && last.ends().since(now).0 <= self.span().0 / 2;
        (is_low || ends_soon) && !self.is_requesting && now >= self.refused_until && self.wanted() > 0
    }

    /// Whether there is no room for another grant. One without units stays until its requests are charged, or it ends.
    fn is_full(&self) -> bool {
        self.grants.iter().filter(|grant| grant.units() > 0).count() >= MAX_GRANTS
    }

    fn wanted(&self) -> u64 {
        self.rate.wanted(self.owner.ahead())
    }

    /// Records that the request which has taken these units passes.
    pub fn spend(&mut self, serial: u64, cost: u64) {
        // If the grant has ended, the store counts the units as spent anyway.
        if let Some(grant) = self.grants.iter_mut().find(|grant| grant.serial == serial) {
            grant.spend(cost);
        }
        self.uncounted += cost;
    }

    /// Puts back units of a request that is denied or not charged; returns whether their grant still lasts.
    pub fn put_back(&mut self, serial: u64, cost: u64, now: BootTime) -> bool {
        self.share.put_back(cost);
        let lasts = |grant: &&mut HeldGrant| grant.serial == serial && now < grant.ends();
        let Some(grant) = self.grants.iter_mut().find(lasts) else {
            self.counts.add(GrantEvent::Lapsed, cost);
            return false;
        };
        grant.put_back(cost);
        true
    }

    /// The grant request of a call that charges `cost`, with the report of the oldest grant, and for at most `most` held units.
    /// Held units that are too few for the cost are returned, so that the store can charge them for it; those of the oldest
    /// grant also if another one is wanted and there is no room for it.
    pub fn request_grant(&mut self, cost: u64, most: u64, now: BootTime) -> GrantRequest {
        self.remove_ended(now);
        self.share.begin_call();
        let wants = most > self.units() && !self.is_requesting && self.wanted() > 0;
        let is_full = self.is_full();
        let report = self.grants.first_mut().and_then(|oldest| {
            let is_too_few = cost > 0 && oldest.units() < cost;
            oldest.report(is_too_few || (wants && is_full && cost == 0))
        });
        self.remove_used_up();
        let room = if wants && !self.is_full() { most.saturating_sub(self.units()) } else { 0 };
        let wanted = self.wanted().min(room);
        self.is_requesting |= wanted > 0;
        GrantRequest { report, wanted }
    }

    /// Records that the call which requests a grant has ended.
    pub fn end_request(&mut self) {
        self.is_requesting = false;
    }

    /// Records that the store has refused a requested grant, since too few units are available.
    pub fn record_refusal(&mut self, now: BootTime) {
        self.refused_until = now.after(Micros(self.span().0 / REFUSALS_PER_SPAN));
    }

    /// Records the reply of the store to a charge.
    pub fn record_decision(&mut self, decision: Decision, now: BootTime) {
        // A ban or a block is not shown by what remains of the quota.
        if decision.reason == DenyReason::Quota {
            self.last_decision = Some((decision, now));
        }
    }

    /// Adds a grant that the store has made; it is returned if there is no room for it.
    pub fn add(&mut self, serial: u64, grant: &Grant, call: GrantCall) -> Option<ReturnedGrant> {
        self.counts.add(GrantEvent::Granted, grant.units);
        let mut held = HeldGrant::new(serial, grant, call, &self.owner.policy().quota);
        if self.is_full() {
            return self.returned(&mut held);
        }
        self.grants.push(held);
        None
    }

    /// Returns grants that would lapse with more than a quarter of their units: because the key is idle, or because they
    /// end soon.
    pub fn sweep(&mut self, now: BootTime) -> Vec<ReturnedGrant> {
        self.remove_ended(now);
        let span = self.span();
        let is_idle = now.since(self.last_use).0 >= span.0 / 2;
        let is_returned = |grant: &HeldGrant| {
            let ends_soon = grant.ends().since(now).0 <= span.0 * 3 / 8;
            grant.units().saturating_mul(4) > grant.size() && (is_idle || ends_soon)
        };
        let (returned, kept) = std::mem::take(&mut self.grants).into_iter().partition(is_returned);
        self.grants = kept;
        self.return_each(returned)
    }

    /// Returns all grants.
    pub fn return_all(&mut self) -> Vec<ReturnedGrant> {
        let grants = std::mem::take(&mut self.grants);
        self.return_each(grants)
    }

    /// Drops all grants unreported, so that their units count as spent.
    pub fn drop_all(&mut self) {
        self.counts.add(GrantEvent::Lapsed, self.units());
        self.grants.clear();
        self.last_decision = None;
        self.count_spent();
    }

    /// Counts the units that were spent.
    pub fn count_spent(&mut self) {
        self.counts.add(GrantEvent::Spent, std::mem::take(&mut self.uncounted));
    }

    fn return_each(&mut self, grants: Vec<HeldGrant>) -> Vec<ReturnedGrant> {
        self.count_spent();
        grants.into_iter().filter_map(|mut grant| self.returned(&mut grant)).collect()
    }

    fn returned(&mut self, grant: &mut HeldGrant) -> Option<ReturnedGrant> {
        self.share.return_to_store(grant.units());
        let (owner, counts, ends) = (self.owner.clone(), Arc::clone(&self.counts), grant.ends());
        grant.report(true).map(|report| ReturnedGrant { owner, report, ends, counts })
    }

    /// Removes grants that have ended. They need no report: all of their units count as spent.
    fn remove_ended(&mut self, now: BootTime) {
        if self.grants.iter().all(|grant| now < grant.ends()) {
            return;
        }
        let ended = self.grants.iter().filter(|grant| now >= grant.ends());
        self.counts.add(GrantEvent::Lapsed, ended.map(HeldGrant::units).sum());
        self.grants.retain(|grant| now < grant.ends());
        self.count_spent();
    }

    fn remove_used_up(&mut self) {
        self.grants.retain(|grant| !grant.is_used_up());
    }
}

#[cfg(test)]
mod tests;
