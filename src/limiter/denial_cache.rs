//! Denials remembered: a key that has to wait until a certain time is refused in this process until then, and
//! the store is not asked.
//!
//! A denial of cost c with `retry_after` r means that no request of cost c or more can pass before r is over,
//! whatever others spend. That holds for as long as nothing is given back; so slots and limits with `charge_on` are never
//! remembered, and nothing for longer than [`LONGEST`], which bounds how stale a reset somewhere else can find us.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{LimitStatus, LimitStatuses};
use crate::limit::{Charge, Decision, DenyReason, Policy, Quota};
use crate::time::Micros;

/// The longest that a denial is remembered.
const LONGEST: Micros = Micros::SECOND;
/// Enough that two workers seldom meet at one lock.
const SHARDS: usize = 64;
/// Denials remembered at once, over all shards: those beyond it ask the store.
const MOST: usize = 65_536;

/// What is remembered, shared by all workers.
#[derive(Debug)]
pub struct DenialCache {
    shards: Box<[Mutex<HashMap<u128, Denied>>]>,
    hasher: DefaultHashBuilder,
    /// How often everything was forgotten. What was asked before that is not remembered after it.
    forgotten: AtomicU64,
}

/// When a question was sent to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLookup {
    at: Instant,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Denied {
    /// The least cost that is refused.
    cost: u64,
    /// When the store was asked; it has decided no sooner.
    asked: Instant,
    until: Instant,
    decision: Decision,
}

impl Default for DenialCache {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            forgotten: AtomicU64::new(0),
        }
    }
}

impl DenialCache {
    /// To be called before the store is asked.
    pub(super) fn lookup(&self, now: Instant) -> CacheLookup {
        CacheLookup { at: now, forgotten: self.forgotten.load(Ordering::Acquire) }
    }

    /// Where a request stands with those of its limits that are known to refuse it; `None` if none is.
    pub(super) fn refuse(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        now: Instant,
    ) -> Option<LimitStatuses> {
        let known = |charge: &Charge| {
            let policy = &policies[charge.policy];
            let id = id(policy, charge);
            let denied = *self.shard(id).lock().get(&id)?;
            let refuses = !policy.shadow && charge.cost >= denied.cost && now < denied.until;
            refuses.then(|| LimitStatus { policy: charge.policy, decision: denied.decision_at(now) })
        };
        let standings: LimitStatuses = charges.iter().filter_map(known).collect();
        (!standings.is_empty()).then_some(standings)
    }

    /// Remembers what a store has refused that was `asked` then.
    pub(super) fn remember(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        decisions: &[Decision],
        asked: CacheLookup,
    ) {
        for (charge, decision) in charges.iter().zip(decisions) {
            let policy = &policies[charge.policy];
            if let Some(wait) = lasting(policy, decision) {
                let until = asked.at + wait.min(LONGEST).into();
                let denied = Denied { cost: charge.cost, asked: asked.at, until, decision: *decision };
                self.insert(id(policy, charge), denied, asked);
            }
        }
    }

    /// Forgets everything: something was given back, or may have been.
    pub fn clear(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            shard.lock().clear();
        }
    }

    fn insert(&self, id: u128, denied: Denied, asked: CacheLookup) {
        let mut shard = self.shard(id).lock();
        if self.forgotten.load(Ordering::Acquire) != asked.forgotten {
            return;
        }
        if shard.len() >= MOST / SHARDS {
            shard.retain(|_, other| other.until > asked.at);
        }
        let has_room = shard.len() < MOST / SHARDS;
        match shard.entry(id) {
            // Of two that hold, the one that refuses more; or else the one that holds for longer.
            Entry::Occupied(mut known) => {
                let old = known.get();
                if denied.cost < old.cost
                    || (denied.cost == old.cost && denied.until > old.until)
                    || old.until <= asked.at
                {
                    known.insert(denied);
                }
            }
            Entry::Vacant(place) if has_room => {
                place.insert(denied);
            }
            Entry::Vacant(_) => {}
        }
    }

    fn shard(&self, id: u128) -> &Mutex<HashMap<u128, Denied>> {
        let hash = self.hasher.hash_one(id);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl Denied {
    /// What the store would say `now`: waits count down.
    fn decision_at(&self, now: Instant) -> Decision {
        let passed = Micros::from(now.saturating_duration_since(self.asked)).0;
        let left = |span: Micros| Micros(span.0.saturating_sub(passed));
        Decision {
            retry_after: self.decision.retry_after.map(|wait| left(wait).max(Micros(1))),
            reset_after: left(self.decision.reset_after),
            ..self.decision
        }
    }
}

/// What stands for a policy's key.
fn id(policy: &Policy, charge: &Charge) -> u128 {
    u128::from_le_bytes(charge.key.0) ^ policy.salt()
}

/// For how long a denial holds, a little less than it says because clocks differ in speed; `None` if it may end
/// sooner because units are given back, or if each denial has to be counted because it may be the one that begins a ban.
fn lasting(policy: &Policy, decision: &Decision) -> Option<Micros> {
    let is_counted = policy.ban.is_some() && decision.cause == DenyReason::Quota;
    let returns = matches!(policy.quota, Quota::Concurrency(_)) || policy.charges_by_status();
    let may_end = returns && decision.cause == DenyReason::Quota;
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
    use crate::limit::{Align, Ban, Key, PolicyId, Rate};
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
        /// Nothing is refused here that the store would have let pass, whatever others spend.
        #[test]
        fn what_is_refused_by_heart_the_store_refuses_too(
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
                    // Another proxy, which remembers nothing of this.
                    let _ = memory.take(&policies, &[charge]);
                    continue;
                }
                if let Some(refused) = denials.refuse(&policies, &[charge], instant) {
                    let look = memory.take(&policies, &[charge.with(crate::limit::ChargeKind::Look)])[0];
                    prop_assert!(!look.allowed);
                    let known = refused[0].decision.retry_after;
                    prop_assert!(look.retry_after.is_none_or(|wait| known <= Some(wait)));
                    continue;
                }
                let asked = denials.lookup(instant);
                now += travel;
                memory.clock().set(Timestamp(1_000_000_000 + now));
                let decisions = memory.take(&policies, &[charge]);
                denials.remember(&policies, &[charge], &decisions, asked);
            }
        }
    }

    #[test]
    fn waits_count_down_and_end() {
        let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
        let charge = |cost| [Charge::take(PolicyId(0), Key([1; 16]), cost)];
        let said = Decision {
            allowed: false,
            retry_after: Some(Micros(400_000)),
            ..Decision::allowed(4, 1, Micros(900_000))
        };
        denials.remember(&policies, &charge(2), &[said], denials.lookup(begin));
        let at = |millis| begin + Duration::from_millis(millis);
        assert!(denials.refuse(&policies, &charge(1), at(100)).is_none());
        let refused = denials.refuse(&policies, &charge(3), at(100)).unwrap()[0].decision;
        assert_eq!((refused.retry_after, refused.reset_after), (Some(Micros(300_000)), Micros(800_000)));
        assert!(denials.refuse(&policies, &charge(2), at(400)).is_none());
        denials.clear();
        assert!(denials.refuse(&policies, &charge(3), at(100)).is_none());
    }

    #[test]
    fn what_was_asked_before_everything_was_forgotten_is_not_remembered() {
        let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
        let charge = [Charge::take(PolicyId(0), Key([1; 16]), 1)];
        let asked = denials.lookup(begin);
        denials.clear();
        let said = Decision {
            allowed: false,
            retry_after: Some(Micros::SECOND),
            ..Decision::allowed(4, 0, Micros(1))
        };
        denials.remember(&policies, &charge, &[said], asked);
        assert!(denials.refuse(&policies, &charge, begin).is_none());
    }
}
