//! A cache of denials: a key that was denied until a certain time is denied by this process until then, without a call
//! to the store.
//!
//! A denial of cost c with `retry_after` r means that no request of cost c or more can pass within r, whatever other
//! proxies spend, as long as nothing is refunded. So denials by slots and by limits with `charge_on` are never cached, those
//! by limits with `ahead` for [`MAX_AGE_AHEAD`] at most, and no denial for longer than [`MAX_AGE`], since a reset on another
//! proxy can't clear this cache.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tokio::time::Instant;

use super::status::{LimitStatus, LimitStatuses};
use crate::limit::{Charge, Decision, DenyReason, EntryId, Policy};
use crate::sharded::Sharded;
use crate::time::Micros;

/// The longest that a denial is cached.
const MAX_AGE: Micros = Micros::SECOND;
/// The same for a limit with `ahead`: units that another proxy returns can end a denial early.
const MAX_AGE_AHEAD: Micros = Micros(10_000);
/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 64;
/// The most cached denials, over all shards; beyond it requests go to the store.
const MAX_DENIALS: usize = 65_536;

/// Cached denials, shared by all workers.
#[derive(Debug, Default)]
pub struct DenialCache {
    denials: Sharded<HashMap<EntryId, CachedDenial>, SHARDS>,
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
struct CachedDenial {
    /// The least cost that is denied.
    cost: u64,
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

    /// The cached denials of a request; `None` if there are none.
    pub(super) fn check(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        now: Instant,
    ) -> Option<LimitStatuses> {
        let known = |charge: &Charge| {
            let policy = &policies[charge.policy];
            let id = EntryId::new(policy, charge.key);
            let denied = *self.denials.lock(&id).get(&id)?;
            let is_denied = !policy.shadow && charge.cost >= denied.cost && now < denied.until;
            is_denied.then(|| LimitStatus::new(policy, charge, denied.decision_at(now)))
        };
        let statuses: LimitStatuses = charges.iter().filter_map(known).collect();
        (!statuses.is_empty()).then_some(statuses)
    }

    /// Caches the denials among the decisions of a call.
    pub(super) fn record(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        lookup: CacheLookup,
    ) {
        for (charge, decision) in charges.iter().zip(decisions) {
            let policy = &policies[charge.policy];
            if let Some(wait) = duration(policy, decision) {
                let max_age = if policy.ahead.is_some() { MAX_AGE_AHEAD } else { MAX_AGE };
                let until = lookup.at + wait.min(max_age).into();
                let denied = CachedDenial { cost: charge.cost, sent: lookup.at, until, decision: *decision };
                self.insert(EntryId::new(policy, charge.key), denied, lookup);
            }
        }
    }

    /// Clears the cache: units were refunded or reset, or may have been.
    pub fn clear(&self) {
        self.clears.fetch_add(1, Ordering::AcqRel);
        self.denials.lock_each().for_each(|mut shard| shard.clear());
    }

    fn insert(&self, id: EntryId, denied: CachedDenial, lookup: CacheLookup) {
        let mut shard = self.denials.lock(&id);
        if self.clears.load(Ordering::Acquire) != lookup.clears {
            return;
        }
        if shard.len() >= MAX_DENIALS / SHARDS {
            shard.retain(|_, other| other.until > lookup.at);
        }
        let has_room = shard.len() < MAX_DENIALS / SHARDS;
        match shard.entry(id) {
            // Of two valid denials the one of the lower cost stays; of equal costs the longer one.
            Entry::Occupied(mut known) => {
                let old = known.get();
                if denied.cost < old.cost
                    || (denied.cost == old.cost && denied.until > old.until)
                    || old.until <= lookup.at
                {
                    known.insert(denied);
                }
            }
            Entry::Vacant(vacant) if has_room => {
                vacant.insert(denied);
            }
            Entry::Vacant(_) => {}
        }
    }
}

impl CachedDenial {
    /// The decision that the store would make `now`, with shorter waits.
    fn decision_at(&self, now: Instant) -> Decision {
        let passed = Micros::from(now.saturating_duration_since(self.sent)).0;
        let left = |span: Micros| Micros(span.0.saturating_sub(passed));
        Decision {
            retry_after: self.decision.retry_after.map(|wait| left(wait).max(Micros(1))),
            reset_after: left(self.decision.reset_after),
            ..self.decision
        }
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
            let mut now = 0;
            for (step, policy, cost, elsewhere, travel) in events {
                now += step;
                let charge = Charge::take(PolicyId(policy), Key([1; 16]), cost);
                let instant = begin + Duration::from_micros(now);
                memory.clock().set(Timestamp(1_000_000_000 + now));
                if elsewhere {
                    // Another proxy, without these cached denials.
                    let _ = memory.take(&policies, &[charge]);
                    continue;
                }
                if let Some(denied) = denials.check(&policies, &[charge], instant) {
                    let peek = memory.take(&policies, &[charge.with_kind(crate::limit::ChargeKind::Check)])[0];
                    prop_assert!(!peek.allowed);
                    let known = denied[0].decision.retry_after;
                    prop_assert!(peek.retry_after.is_none_or(|wait| known <= Some(wait)));
                    continue;
                }
                let lookup = denials.lookup(instant);
                now += travel;
                memory.clock().set(Timestamp(1_000_000_000 + now));
                let decisions = memory.take(&policies, &[charge]);
                denials.record(&policies, &[charge], &decisions, lookup);
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
        let denied = denials.check(&policies, &charge(3), at(100)).unwrap()[0].decision;
        assert_eq!((denied.retry_after, denied.reset_after), (Some(Micros(300_000)), Micros(800_000)));
        assert!(denials.check(&policies, &charge(2), at(400)).is_none());
        denials.clear();
        assert!(denials.check(&policies, &charge(3), at(100)).is_none());
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
