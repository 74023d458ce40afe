//! A cache of denials: a key that was denied until a certain time is denied by this process until then, without a call
//! to the store.
//!
//! A denial of cost c with `retry_after` r means that no request of cost c can pass within r, whatever other proxies spend, as
//! long as nothing is refunded. One of a higher cost can't either, but how long it has to wait is known only of limits that
//! refill at a constant rate. Denials by slots and by limits with `charge_on` are never cached, those by limits with `ahead`
//! for [`MAX_AGE_AHEAD`] at most, and no denial for longer than [`MAX_AGE`], since a reset on another proxy can't clear this
//! cache.
//!
//! Other decisions are cached to be shown only: those of the other limits on a denied request, beside its next denial; and
//! those that a client has asked for, so that asking again makes no call.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tokio::time::Instant;

use super::status::{LimitStatus, LimitStatuses};
use crate::limit::{Charge, Decision, DenyReason, EntryId, Policy};
use crate::sharded::Sharded;
use crate::store::Decisions;
use crate::time::Micros;

/// The longest that a decision is cached.
const MAX_AGE: Micros = Micros::SECOND;
/// The same for a limit with `ahead`: units that another proxy returns can end a denial early.
const MAX_AGE_AHEAD: Micros = Micros(10_000);
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
    pub(super) fn repeat(&self, policies: &[Policy], peeks: &[Charge], now: Instant) -> Option<Decisions> {
        let cached = |charge: &Charge| {
            let policy = &policies[charge.policy];
            if policy.shadow {
                return Some(Decision::allowed(policy.quota.limit(), 0, Micros::ZERO));
            }
            self.get(EntryId::new(policy, charge.key), now).map(|cached| cached.without_charge(now))
        };
        peeks.iter().map(cached).collect()
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
    pub(super) fn record(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        lookup: CacheLookup,
    ) {
        let is_denial =
            |(charge, decision): (&Charge, &Decision)| !decision.allowed && !policies[charge.policy].shadow;
        if !charges.iter().zip(decisions).any(is_denial) {
            return;
        }
        for (charge, decision) in charges.iter().zip(decisions) {
            let policy = &policies[charge.policy];
            let id = EntryId::new(policy, charge.key);
            if let Some(wait) = duration(policy, decision) {
                let max_age = if policy.ahead.is_some() { MAX_AGE_AHEAD } else { MAX_AGE };
                let until = lookup.at + wait.min(max_age).into();
                let cost = Some(charge.cost);
                let denied = CachedDecision { cost, sent: lookup.at, until, decision: *decision };
                self.insert(id, denied, lookup);
            } else if decision.allowed && !policy.shadow {
                self.insert(id, CachedDecision::shown(*decision, lookup), lookup);
            }
        }
    }

    /// Caches the decisions of a call to be shown.
    pub(super) fn record_shown(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        lookup: CacheLookup,
    ) {
        for (charge, decision) in charges.iter().zip(decisions) {
            let id = EntryId::new(&policies[charge.policy], charge.key);
            self.insert(id, CachedDecision::shown(*decision, lookup), lookup);
        }
    }

    /// Clears the cache: units were refunded or reset, or may have been.
    pub fn clear(&self) {
        self.clears.fetch_add(1, Ordering::AcqRel);
        self.decisions.lock_each().for_each(|mut shard| shard.clear());
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
    /// One that is only shown.
    fn shown(decision: Decision, lookup: CacheLookup) -> Self {
        Self { cost: None, sent: lookup.at, until: lookup.at + MAX_AGE.into(), decision }
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

/// How long a denial is valid: a little less than its `retry_after`, since clocks differ in speed. `None` if units may be
/// refunded before, or if the store must count each denial because of a ban.
fn duration(policy: &Policy, decision: &Decision) -> Option<Micros> {
    let is_counted = policy.ban.is_some() && decision.reason == DenyReason::Quota;
    let refunds = policy.has_slots() || policy.charges_by_status();
    let may_end = refunds && decision.reason == DenyReason::Quota;
    if decision.allowed || policy.shadow || is_counted || may_end {
        return None;
    }
    decision.retry_after.map(|wait| Micros(wait.0 / 1_000 * 999))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::limit::{Align, Ban, Key, PolicyId, Quota, Rate};
    use crate::store::Memory;
    use crate::time::{Clock, Timestamp, monotonic};

    fn policies() -> Vec<Policy> {
        let rate = |units, period| Rate::new(units, Micros(period)).unwrap();
        let ban = Ban { after: 2, within: Micros(3_000_000), length: Micros(2_000_000) };
        let bucket = Quota::token_bucket(rate(3, 1_000_000), 4).unwrap();
        let (mut banning, mut watching) =
            (Policy::new("e", bucket.clone()), Policy::new("f", bucket.clone()));
        banning.ban = Some(ban);
        watching.shadow = true;
        vec![
            Policy::new("a", bucket),
            Policy::new("b", Quota::sliding_log(&[rate(5, 2_000_000)]).unwrap()),
            Policy::new("c", Quota::fixed_window(rate(6, 700_000), Align::Clock).unwrap()),
            Policy::new("d", Quota::concurrency(2, Micros(3_000_000)).unwrap()),
            banning,
            watching,
            Policy::new("g", Quota::sliding_window(rate(5, 1_200_000), 4).unwrap()),
            Policy::new("h", Quota::leaky_bucket(rate(4, 1_000_000), 2).unwrap()),
        ]
    }

    proptest! {
        /// No request is denied that the store would have allowed, whatever other proxies spend.
        #[test]
        fn cached_denials_agree_with_the_store(
            events in prop::collection::vec((0..400_000_u64, 0..8_u32, 1..5_u64, any::<bool>(), 0..3_000_u64), 1..80)
        ) {
            let (policies, begin) = (policies(), monotonic());
            let (denials, memory) = (DenialCache::default(), Memory::new(1_000, Clock::manual(Timestamp(0))));
            // The policies on whose key nothing was spent elsewhere since their denial was cached.
            let (mut now, mut quiet) = (0, [false; 8]);
            for (step, policy, cost, elsewhere, travel) in events {
                now += step;
                let charge = Charge::take(PolicyId(policy), Key([1; 16]), cost);
                let instant = begin + Duration::from_micros(now);
                memory.clock().set(Timestamp(1_000_000_000 + now));
                if elsewhere {
                    // Another proxy, without these cached denials.
                    let _ = memory.take(&policies, &[charge]);
                    quiet[policy as usize] = false;
                    continue;
                }
                if let Some(denied) = denials.check(&policies, &[charge], instant) {
                    let peek = memory.take(&policies, &[charge.with_kind(crate::limit::ChargeKind::Check)])[0];
                    prop_assert!(!peek.allowed);
                    let known = denied[0].decision.retry_after;
                    // Two roundings of the wait for more units may add a microsecond.
                    prop_assert!(peek.retry_after.is_none_or(|wait| known <= Some(Micros(wait.0 + 1))));
                    // The call took up to 3 ms.
                    let is_long = |wait: Micros| known >= Some(Micros(wait.0.saturating_sub(3_000)));
                    prop_assert!(!quiet[policy as usize] || peek.retry_after.is_none_or(is_long));
                    continue;
                }
                let lookup = denials.lookup(instant);
                now += travel;
                memory.clock().set(Timestamp(1_000_000_000 + now));
                let decisions = memory.take(&policies, &[charge]);
                denials.record(&policies, &[charge], &decisions, lookup);
                let cached = denials.check(&policies, &[charge], instant);
                if cached.is_some_and(|known| known[0].decision.retry_after == decisions[0].retry_after) {
                    quiet[policy as usize] = true;
                } else if decisions[0].allowed {
                    quiet[policy as usize] = false;
                }
            }
        }
    }

    #[test]
    fn waits_count_down_and_expire() {
        let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
        let charge = |cost| [Charge::take(PolicyId(0), Key([1; 16]), cost)];
        let denial = Decision {
            allowed: false,
            retry_after: Some(Micros(400_000)),
            ..Decision::allowed(4, 1, Micros(900_000))
        };
        denials.record(&policies, &charge(2), &[denial], denials.lookup(begin));
        let at = |millis| begin + Duration::from_millis(millis);
        assert!(denials.check(&policies, &charge(1), at(100)).is_none());
        let denied = denials.check(&policies, &charge(2), at(100)).unwrap()[0].decision;
        assert_eq!((denied.retry_after, denied.reset_after), (Some(Micros(300_000)), Micros(800_000)));
        // A unit comes each third of a second.
        let denied = denials.check(&policies, &charge(3), at(100)).unwrap()[0].decision;
        assert_eq!((denied.retry_after, denied.reset_after), (Some(Micros(633_334)), Micros(800_000)));
        assert!(denials.check(&policies, &charge(2), at(400)).is_none());
        denials.clear();
        assert!(denials.check(&policies, &charge(3), at(100)).is_none());
    }

    #[test]
    fn only_equal_costs_are_denied_by_limits_that_do_not_refill_constantly() {
        let (policies, begin) = (policies(), monotonic());
        let charge = |policy, cost| [Charge::take(PolicyId(policy), Key([1; 16]), cost)];
        let denial = Decision {
            allowed: false,
            retry_after: Some(Micros(400_000)),
            ..Decision::allowed(5, 1, Micros(900_000))
        };
        for (policy, is_smooth) in [(0, true), (1, false), (2, false), (6, false), (7, true)] {
            let denials = DenialCache::default();
            denials.record(&policies, &charge(policy, 2), &[denial], denials.lookup(begin));
            assert!(denials.check(&policies, &charge(policy, 2), begin).is_some());
            assert_eq!(denials.check(&policies, &charge(policy, 3), begin).is_some(), is_smooth, "{policy}");
        }
    }

    #[test]
    fn denials_show_the_other_limits_of_their_request() {
        let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
        let charges = [0, 1, 3].map(|policy| Charge::take(PolicyId(policy), Key([1; 16]), 1));
        let denied = Decision {
            allowed: false,
            retry_after: Some(Micros::SECOND),
            ..Decision::allowed(5, 0, Micros::SECOND)
        };
        let decisions =
            [Decision::allowed(4, 3, Micros(900_000)), denied, Decision::allowed(2, 2, Micros::ZERO)];
        denials.record(&policies, &charges, &decisions[..1], denials.lookup(begin));
        assert!(
            denials.repeat(&policies, &charges[..1], begin).is_none(),
            "an allowed request is not cached"
        );
        denials.record(&policies, &charges, &decisions, denials.lookup(begin));
        let shown = denials.check(&policies, &charges, begin + Duration::from_millis(100)).unwrap();
        let shown: Vec<_> =
            shown.iter().map(|it| (it.policy.0, it.decision.allowed, it.decision.remaining)).collect();
        assert_eq!(shown, [(0, true, 3), (1, false, 0), (3, true, 2)]);
        assert!(denials.check(&policies, &charges[..1], begin).is_none());
        let peeks = denials.repeat(&policies, &charges, begin).unwrap();
        assert!(peeks.iter().all(|decision| decision.allowed));
        // Those of a limit in shadow mode are not shown.
        let shadow = Charge::take(PolicyId(5), Key([1; 16]), 1);
        assert!(denials.repeat(&policies, &[charges[0], shadow], begin).is_some());
    }

    #[test]
    fn decisions_on_calls_before_a_clear_are_not_cached() {
        let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
        let charge = [Charge::take(PolicyId(0), Key([1; 16]), 1)];
        let lookup = denials.lookup(begin);
        denials.clear();
        let denial = Decision {
            allowed: false,
            retry_after: Some(Micros::SECOND),
            ..Decision::allowed(4, 0, Micros(1))
        };
        denials.record(&policies, &charge, &[denial], lookup);
        assert!(denials.check(&policies, &charge, begin).is_none());
    }
}
