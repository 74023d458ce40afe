//! Counts in this process: a map in shards, with a hard bound on the number of keys.
//!
//! A request locks the shards of all its keys, in their order, decides, and charges: all or nothing, as the
//! script does it in Redis. An entry whose state equals no state is swept; when a shard is full of live
//! ones the entry goes, of a few looked at, that is nearest to being forgotten anyway. So whoever floods
//! the proxy with new keys pushes out such keys, and not the ones that are being held back.

mod shard;

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::shard::{EntryId, Shard};
use super::Decisions;
use crate::limit::{Charge, Policy, State, Step};
use crate::time::{Clock, Timestamp};

/// How many keys a shard is made for: the table beneath uses at most 7/8 of 2^k places before it doubles,
/// and keys don't spread evenly, so a little less.
const SHARD_KEYS: usize = (1 << 14) / 8 * 7 * 96 / 100;
/// Enough that two workers seldom meet at one lock.
const MIN_SHARDS: usize = 64;

/// The in-process store.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    clock: Clock,
}

/// One charge of a request with everything that deciding it needs.
struct Asked<'a> {
    policy: &'a Policy,
    cost: u64,
    id: EntryId,
    shard: usize,
}

/// The shards of one request, locked; always in the order of their numbers, so that no two requests wait
/// for each other.
struct Locked<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); 4]>);

impl Memory {
    /// A store of at most `max_keys` keys that decides by `clock`.
    #[must_use]
    pub fn new(max_keys: usize, clock: Clock) -> Self {
        let max_keys = max_keys.max(1);
        let shards = max_keys.div_ceil(SHARD_KEYS).max(MIN_SHARDS).min(max_keys);
        let (each, over) = (max_keys / shards, max_keys % shards);
        let sized = |place: usize| Mutex::new(Shard::new(each + usize::from(place < over)));
        Self { shards: (0..shards).map(sized).collect(), hasher: DefaultHashBuilder::default(), clock }
    }

    /// The clock that it decides by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many keys it remembers now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether it remembers no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets what equals no state, in part `part` of `parts` of the shards, and gives the memory back. It
    /// never holds more than one lock, and each only for as long as it takes to look through one shard.
    pub fn sweep(&self, part: usize, parts: usize) {
        for shard in self.shards.iter().skip(part).step_by(parts.max(1)) {
            shard.lock().sweep(self.clock.now(), |id| self.hasher.hash_one(id));
        }
    }

    /// Takes all charges or none; see [`super::Store::take`].
    #[must_use]
    pub fn take(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        let now = self.clock.now();
        let asked: SmallVec<[Asked<'_>; 4]> =
            charges.iter().map(|charge| self.ask(policies, charge)).collect();
        let mut shards = Locked::new(&self.shards, &asked);
        let mut steps: SmallVec<[Step; 4]> = SmallVec::new();
        for (place, one) in asked.iter().enumerate() {
            // Two charges on one key see each other.
            let earlier = asked[..place]
                .iter()
                .zip(&steps)
                .rev()
                .filter(|(other, step)| other.id == one.id && step.decision.allowed)
                .find_map(|(_, step)| step.next.as_ref());
            let state = earlier.or_else(|| shards.get(one, self));
            steps.push(one.policy.quota.step(state, now, one.cost));
        }
        let passes = steps.iter().all(|step| step.decision.allowed);
        for (one, step) in asked.iter().zip(&steps) {
            // A refused step has a next state only when the clock was set back; that must be kept.
            if let Some(next) = step.next.filter(|_| passes || !step.decision.allowed) {
                shards.put(one, next, now, self);
            }
        }
        asked
            .iter()
            .zip(&steps)
            .map(|(one, step)| {
                if passes || !step.decision.allowed {
                    return step.decision;
                }
                one.policy.quota.step(shards.get(one, self), now, 0).decision
            })
            .collect()
    }

    fn ask<'a>(&self, policies: &'a [Policy], charge: &Charge) -> Asked<'a> {
        let policy = &policies[charge.policy.0 as usize];
        let id = EntryId::new(policy, charge.key);
        Asked { policy, cost: charge.cost, id, shard: id.shard(self.shards.len()) }
    }
}

impl<'a> Locked<'a> {
    fn new(shards: &'a [Mutex<Shard>], asked: &[Asked<'_>]) -> Self {
        let mut numbers: SmallVec<[usize; 4]> = asked.iter().map(|one| one.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers.into_iter().map(|number| (number, shards[number].lock())).collect())
    }

    fn shard(&mut self, one: &Asked<'_>) -> &mut Shard {
        let place = self.0.iter().position(|(number, _)| *number == one.shard);
        // Every shard that is asked for was locked by `new`.
        &mut self.0[place.unwrap_or(0)].1
    }

    fn get(&mut self, one: &Asked<'_>, memory: &Memory) -> Option<&State> {
        self.shard(one).get(one.id, memory.hasher.hash_one(one.id))
    }

    fn put(&mut self, one: &Asked<'_>, state: State, now: Timestamp, memory: &Memory) {
        let expires = now.after(one.policy.quota.lifetime(&state, now));
        self.shard(one).put(one.id, state, expires, now, |id| memory.hasher.hash_one(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Key, PolicyId, Quota, Rate};
    use crate::time::Micros;

    fn policies() -> Vec<Policy> {
        let rate = Rate::new(10, Micros::SECOND).unwrap();
        vec![
            Policy::new("wide", Quota::token_bucket(rate, 10).unwrap()),
            Policy::new("narrow", Quota::gcra(rate, 1).unwrap()),
        ]
    }

    fn charge(policy: u32, key: u8, cost: u64) -> Charge {
        Charge { policy: PolicyId(policy), key: Key([key; 16]), cost }
    }

    fn memory(max_keys: usize) -> Memory {
        Memory::new(max_keys, Clock::manual(Timestamp(1_000_000)))
    }

    #[test]
    fn all_or_nothing() {
        let (memory, policies) = (memory(1_000), policies());
        let both = [charge(0, 1, 1), charge(1, 1, 1)];
        for left in [9, 8] {
            let decisions = memory.take(&policies, &both);
            assert!(decisions.iter().all(|d| d.allowed));
            assert_eq!(decisions[0].remaining, left);
        }
        for _ in 0..5 {
            let decisions = memory.take(&policies, &both);
            assert_eq!((decisions[0].allowed, decisions[0].remaining), (true, 8));
            assert_eq!((decisions[1].allowed, decisions[1].remaining), (false, 0));
        }
    }

    #[test]
    fn charges_on_one_key_see_each_other() {
        let (memory, policies) = (memory(1_000), policies());
        let twice = [charge(0, 1, 6), charge(0, 1, 6)];
        let decisions = memory.take(&policies, &twice);
        assert!(decisions[0].allowed && !decisions[1].allowed);
        assert_eq!(memory.len(), 0);
        let decisions = memory.take(&policies, &[charge(0, 1, 4), charge(0, 1, 6)]);
        assert!(decisions.iter().all(|d| d.allowed));
        assert_eq!(decisions[1].remaining, 0);
    }

    #[test]
    fn policies_count_apart() {
        let (memory, policies) = (memory(1_000), policies());
        let _ = memory.take(&policies, &[charge(0, 1, 10)]);
        assert!(memory.take(&policies, &[charge(1, 1, 1)])[0].allowed);
        assert!(!memory.take(&policies, &[charge(0, 1, 1)])[0].allowed);
        assert!(memory.take(&policies, &[charge(0, 2, 1)])[0].allowed);
    }

    #[test]
    fn the_bound_on_keys_is_hard_and_spares_whoever_is_held_back() {
        let (memory, policies) = (memory(640), policies());
        let attacker = [Charge { policy: PolicyId(0), key: Key([255; 16]), cost: 10 }];
        assert!(memory.take(&policies, &attacker)[0].allowed);
        for number in 0..50_000_u32 {
            let mut key = [0; 16];
            key[..4].copy_from_slice(&number.wrapping_mul(0x9E37_79B1).to_be_bytes());
            let _ = memory.take(&policies, &[Charge { policy: PolicyId(0), key: Key(key), cost: 1 }]);
            assert!(number % 1_000 != 0 || memory.len() <= 640);
        }
        assert!(memory.len() <= 640);
        assert!(!memory.take(&policies, &attacker)[0].allowed);
    }

    #[test]
    fn what_equals_no_state_is_swept() {
        let (memory, policies) = (memory(1_000), policies());
        let _ = memory.take(&policies, &[charge(0, 1, 1), charge(0, 2, 5)]);
        assert_eq!(memory.len(), 2);
        memory.clock().set(Timestamp(1_100_000));
        memory.sweep(0, 1);
        assert_eq!(memory.len(), 1);
        memory.clock().set(Timestamp(1_500_000));
        memory.sweep(0, 1);
        assert!(memory.is_empty());
    }

    #[test]
    fn locks_are_taken_in_one_order() {
        let (memory, policies) = (memory(1_000), policies());
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (memory, policies) = (&memory, &policies);
                scope.spawn(move || {
                    for round in 0..2_000_u32 {
                        let a = u8::try_from(round % 251).unwrap();
                        let pair = [charge(0, a, 0), charge(0, a.wrapping_mul(31).wrapping_add(thread), 0)];
                        let _ = memory.take(policies, &pair);
                    }
                });
            }
        });
    }
}
