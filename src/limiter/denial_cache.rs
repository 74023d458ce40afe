//! A cache of denials: a key that was denied until a certain time is denied by this process until then, without a call
//! to the store.
//!
//! A denial of cost c with `retry_after` r means that no request of cost c can pass within r, whatever other proxies spend, as
//! long as nothing is refunded. One of a higher cost can't either, but how long it has to wait is known only of limits that
//! refill at a constant rate. Denials by slots, in shadow mode, and those that have to be counted for a ban are never cached, those
//! by limits that reserve units for [`MAX_AGE_RESERVED`] at most, those by limits with `ahead` for [`MAX_AGE_AHEAD`] at most, and
//! no denial for longer than [`MAX_AGE`], since a reset on another proxy can't clear this cache. A refund by this process removes
//! the denial of its key.
//!
//! Other decisions are cached to be shown only: those of the other limits on a denied request, beside its next denial; and
//! those that a client has asked for, so that asking again makes no call.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tokio::time::Instant;

use super::status::{LimitStatus, LimitStatuses};
use crate::limit::{Charge, DecidedCharge, DecidedCharges, Decision, DenyReason, EntryId, Key, Policy};
use crate::sharded::Sharded;
use crate::time::Micros;

/// The longest that a decision is cached.
const MAX_AGE: Micros = Micros::SECOND;
/// The longest that a decision on a limit with `ahead` is cached: units that another proxy returns can end a denial early.
const MAX_AGE_AHEAD: Micros = Micros(10_000);
/// The longest that a denial by a limit is cached whose requests reserve units: units that another proxy refunds can end it early.
const MAX_AGE_RESERVED: Micros = Micros(100_000);
/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 64;
/// The most cached decisions, over all shards; beyond it requests go to the store.
const MAX_DECISIONS: usize = 65_536;
/// The most of them after one that is only shown is added, so that these leave room for denials.
const MAX_SHOWN: usize = MAX_DECISIONS / 2;

/// Cached denials, shared by all workers.
#[derive(Debug, Default)]
pub struct DenialCache {
    decisions: Sharded<HashMap<EntryId, CachedDecision>, SHARDS>,
    /// How often the cache was cleared. Decisions on calls that were sent before that are not cached after it.
    clears: AtomicU64,
}

/// When a call was sent to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLookup {
    at: Instant,
    clears: u64,
}

#[derive(Clone, Copy, Debug)]
struct CachedDecision {
    /// The cost that is denied; `None` if the decision is only shown.
    cost: Option<u64>,
    /// When the call was sent: the store has not decided before that.
    sent: Instant,
    until: Instant,
    decision: Decision,
}

impl DenialCache {
    /// Must be called before the call is sent to the store.
    pub(super) fn lookup(&self, now: Instant) -> CacheLookup {
        CacheLookup { at: now, clears: self.clears.load(Ordering::Acquire) }
    }

    /// The cached decisions on a request that one of them denies; `None` if none does.
    pub(super) fn check(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        now: Instant,
    ) -> Option<LimitStatuses> {
        let mut is_denied = false;
        let known = |charge: &Charge| {
            let (decision, denies) = self.decision(policies, charge, now)?;
            is_denied |= denies;
            Some(LimitStatus::new(&policies[charge.policy], charge, decision))
        };
        let statuses: LimitStatuses = charges.iter().filter_map(known).collect();
        is_denied.then_some(statuses)
    }

    /// The cached decisions on charges, to be shown beside the denial of another limit.
    pub(super) fn shown(&self, policies: &[Policy], charges: &[Charge], now: Instant) -> LimitStatuses {
        let known = |charge: &Charge| {
            let (decision, _) = self.decision(policies, charge, now)?;
            Some(LimitStatus::new(&policies[charge.policy], charge, decision))
        };
        charges.iter().filter_map(known).collect()
    }

    /// The cached decisions on charges without a cost, if all that are shown are known: those of limits in shadow mode are not.
    pub(super) fn repeat(
        &self,
        policies: &[Policy],
        peeks: &[Charge],
        now: Instant,
    ) -> Option<DecidedCharges> {
        let cached = |charge: &Charge| {
            let policy = &policies[charge.policy];
            if policy.shadow {
                return Some(Decision::allowed(policy.quota.limit(), 0, Micros::ZERO));
            }
            self.get(EntryId::new(policy, charge.key), now).map(|cached| cached.without_charge(now))
        };
        let decided = |charge: &Charge| Some(DecidedCharge { charge: *charge, decision: cached(charge)? });
        peeks.iter().map(decided).collect()
    }

    /// The cached decision on a charge of a limit that is not in shadow mode, and whether it denies the request.
    fn decision(&self, policies: &[Policy], charge: &Charge, now: Instant) -> Option<(Decision, bool)> {
        let policy = &policies[charge.policy];
        let cached = self.get(EntryId::new(policy, charge.key), now).filter(|_| !policy.shadow)?;
        let denied = cached.extra_wait(policy, charge.cost).map(|extra| (cached.denial(now, extra), true));
        denied.or_else(|| Some((cached.without_charge(now), false)))
    }

    fn get(&self, id: EntryId, now: Instant) -> Option<CachedDecision> {
        self.decisions.lock(&id).get(&id).filter(|cached| now < cached.until).copied()
    }

    /// Caches the decisions of a call on a request, if it is denied.
    pub(super) fn record(&self, policies: &[Policy], decided: &[DecidedCharge], lookup: CacheLookup) {
        if !decided.iter().any(|one| !one.decision.allowed && !policies[one.charge.policy].shadow) {
            return;
        }
        for DecidedCharge { charge, decision } in decided {
            let policy = &policies[charge.policy];
            let id = EntryId::new(policy, charge.key);
            if let Some(wait) = duration(policy, decision) {
                let until = lookup.at + wait.into();
                let cost = Some(charge.cost);
                let denied = CachedDecision { cost, sent: lookup.at, until, decision: *decision };
                self.insert(id, denied, lookup);
            } else if decision.allowed && !policy.shadow {
                self.insert(id, CachedDecision::shown(*decision, lookup), lookup);
            }
        }
    }

    /// Caches the decisions of a call to be shown.
    pub(super) fn record_shown(&self, policies: &[Policy], decided: &[DecidedCharge], lookup: CacheLookup) {
        for DecidedCharge { charge, decision } in decided {
            let id = EntryId::new(&policies[charge.policy], charge.key);
            self.insert(id, CachedDecision::shown(*decision, lookup), lookup);
        }
    }

    /// Clears the cache: units were refunded or reset, or may have been.
    pub fn clear(&self) {
        self.clears.fetch_add(1, Ordering::AcqRel);
        self.decisions.lock_each().for_each(|mut shard| shard.clear());
    }

    /// Removes the decision on a key, of which units were refunded. A call that is in flight may add another one, which
    /// is not cached for long.
    pub(super) fn forget(&self, policy: &Policy, key: Key) {
        let id = EntryId::new(policy, key);
        self.decisions.lock(&id).remove(&id);
    }

    fn insert(&self, id: EntryId, cached: CachedDecision, lookup: CacheLookup) {
        let mut shard = self.decisions.lock(&id);
        if self.clears.load(Ordering::Acquire) != lookup.clears {
            return;
        }
        let most = if cached.cost.is_some() { MAX_DECISIONS } else { MAX_SHOWN } / SHARDS;
        if shard.len() >= most {
            shard.retain(|_, other| other.until > lookup.at);
        }
        let has_room = shard.len() < most;
        match shard.entry(id) {
            // Of two valid denials the one of the lower cost stays; of equal costs the longer one. A denial replaces what is
            // only shown.
            Entry::Occupied(mut known) => {
                let old = known.get();
                let rank = |cost: Option<u64>| cost.unwrap_or(u64::MAX);
                if rank(cached.cost) < rank(old.cost)
                    || (cached.cost == old.cost && cached.until > old.until)
                    || old.until <= lookup.at
                {
                    known.insert(cached);
                }
            }
            Entry::Vacant(vacant) if has_room => {
                vacant.insert(cached);
            }
            Entry::Vacant(_) => {}
        }
    }
}

impl CachedDecision {
    /// One that is only shown, no longer than the ban or block that it shows.
    fn shown(decision: Decision, lookup: CacheLookup) -> Self {
        let penalty = decision.retry_after.filter(|_| decision.reason != DenyReason::Quota);
        let age = penalty.map_or(MAX_AGE, |rest| rest.min(MAX_AGE));
        Self { cost: None, sent: lookup.at, until: lookup.at + age.into(), decision }
    }

    /// Whether a charge of `cost` is denied: how much longer it has to wait than the cached one, if that is known.
    fn extra_wait(&self, policy: &Policy, cost: u64) -> Option<Micros> {
        if self.decision.reason == DenyReason::Block {
            return Some(Micros::ZERO);
        }
        let extra = cost.checked_sub(self.cost?)?;
        if extra == 0 {
            return Some(Micros::ZERO);
        }
        match self.decision.reason {
            DenyReason::Quota => policy.quota.time_of(extra),
            // All of its units come back during the ban.
            _ => (self.decision.retry_after? >= policy.quota.time_of(cost)?).then_some(Micros::ZERO),
        }
    }

    /// The denial that the store would make `now`, of a charge that has to wait for `extra` longer.
    fn denial(&self, now: Instant, extra: Micros) -> Decision {
        let wait = |wait: Micros| Micros(self.left(wait, now).0.saturating_add(extra.0)).max(Micros(1));
        Decision { retry_after: self.decision.retry_after.map(wait), ..self.at(now) }
    }

    /// The decision that the store would make `now` on a charge without a cost.
    fn without_charge(&self, now: Instant) -> Decision {
        if self.decision.reason == DenyReason::Quota {
            return Decision { allowed: true, retry_after: Some(Micros::ZERO), ..self.at(now) };
        }
        self.denial(now, Micros::ZERO)
    }

    fn at(&self, now: Instant) -> Decision {
        Decision { reset_after: self.left(self.decision.reset_after, now), ..self.decision }
    }

    /// What is left `now` of a time that counts from the call.
    fn left(&self, span: Micros, now: Instant) -> Micros {
        Micros(span.0.saturating_sub(Micros::from(now.saturating_duration_since(self.sent)).0))
    }
}

/// How long a denial is cached: a little less than its `retry_after`, since clocks differ in speed. `None` if slots may be
/// released before, or if the store must count each denial because of a ban.
fn duration(policy: &Policy, decision: &Decision) -> Option<Micros> {
    let is_by_quota = decision.reason == DenyReason::Quota;
    let is_counted = policy.ban.is_some() && is_by_quota;
    if decision.allowed || policy.shadow || is_counted || (policy.has_slots() && is_by_quota) {
        return None;
    }
    let max_age = match policy {
        _ if policy.ahead.is_some() => MAX_AGE_AHEAD,
        _ if policy.reserves() && is_by_quota => MAX_AGE_RESERVED,
        _ => MAX_AGE,
    };
    decision.retry_after.map(|wait| Micros(wait.0 / 1_000 * 999).min(max_age))
}

#[cfg(test)]
mod tests;
