//! Counts in this process: a map in shards, with a hard bound on the number of keys.
//!
//! A request locks the shards of all its keys, in their order, decides, and charges: all or nothing, as the
//! script does it in Redis. An entry whose state equals no state is swept; when a shard is full of live
//! ones the entry goes, of a few looked at, that is nearest to being forgotten anyway. So whoever floods
//! the proxy with new keys pushes out such keys, and not the ones that are being held back.

mod shard;

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::shard::{EntryId, Shard};
use super::{Change, Decisions};
use crate::limit::{Charge, Decision, Key, Outcome, Policy, PolicyId, Record};
use crate::time::{Clock, Micros, Timestamp};

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
#[derive(Clone, Copy)]
struct Asked<'a> {
    policy: &'a Policy,
    charge: &'a Charge,
    id: EntryId,
    shard: usize,
}

/// A request while it is decided.
struct Taking<'a> {
    memory: &'a Memory,
    now: Timestamp,
    asked: SmallVec<[Asked<'a>; 4]>,
    shards: Locked<'a>,
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
        match charges {
            [charge] => std::iter::once(self.take_one(policies, charge)).collect(),
            _ => Taking::new(self, policies, charges).take(),
        }
    }

    /// The same for a request of one charge, as most are: no others have to be minded.
    fn take_one(&self, policies: &[Policy], charge: &Charge) -> Decision {
        let policy = &policies[charge.policy.0 as usize];
        let id = EntryId::new(policy.salt(), charge.key);
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shards[id.shard(self.shards.len())].lock();
        let now = self.clock.now();
        let Outcome { decision, next } = policy.decide(shard.get(id, hash).as_deref(), now, charge);
        if let Some(record) = next {
            self.keep(&mut shard, policy, id, record, now);
        }
        decision
    }

    /// Keeps a record for as long as it differs from none.
    fn keep(&self, shard: &mut Shard, policy: &Policy, id: EntryId, record: Record, now: Timestamp) {
        let lifetime = policy.lifetime(&record, now);
        if lifetime == Micros::ZERO {
            shard.remove(id, self.hasher.hash_one(id));
        } else {
            shard.put(id, policy.salt(), record, now.after(lifetime), now, |id| self.hasher.hash_one(id));
        }
    }

    /// Keeps of a key what `make` makes of what is known of it, at the present time.
    pub fn replace(
        &self,
        policy: &Policy,
        key: Key,
        make: impl FnOnce(Option<&Record>, Timestamp) -> Record,
    ) {
        let id = EntryId::new(policy.salt(), key);
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shards[id.shard(self.shards.len())].lock();
        let now = self.clock.now();
        let record = make(shard.get(id, hash).as_deref(), now);
        self.keep(&mut shard, policy, id, record, now);
    }

    /// Does each charge by itself; see [`super::Store::settle`].
    #[must_use]
    pub fn settle(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        charges.iter().map(|charge| self.take_one(policies, charge)).collect()
    }

    /// Changes these keys by hand; see [`super::Store::change`].
    #[must_use]
    pub fn change(&self, policies: &[Policy], keys: &[(PolicyId, Key)], change: Change) -> usize {
        let all = keys.iter().map(|(policy, key)| (&policies[policy.0 as usize], *key));
        all.filter(|(policy, key)| self.change_one(policy, *key, change)).count()
    }

    /// Changes a key with every algorithm that its limit could have; says whether any of them was known.
    fn change_one(&self, policy: &Policy, key: Key, change: Change) -> bool {
        let now = self.clock.now();
        let mut known = false;
        for salt in policy.salts() {
            let id = EntryId::new(salt, key);
            let mut shard = self.shards[id.shard(self.shards.len())].lock();
            let hash = self.hasher.hash_one(id);
            let record = shard.get(id, hash).map(Cow::into_owned);
            known |= record.is_some();
            let changed = match change {
                Change::Block(length) => Some(record.unwrap_or_default().blocked(now, length)),
                Change::Unblock => record.map(Record::unblocked),
                Change::Reset => record.map(|record| record.reset(now)),
            };
            if changed == Some(Record::default()) {
                shard.remove(id, hash);
            } else if let Some(changed) = changed {
                let expires = now.after(policy.lifetime(&changed, now));
                shard.put(id, salt, changed, expires, now, |id| self.hasher.hash_one(id));
            }
        }
        known
    }

    /// The keys of `policy` that it knows, at most `max`.
    #[must_use]
    pub fn keys(&self, policy: &Policy, max: usize) -> Vec<Key> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().keys(policy, self.clock.now(), max - found.len()));
        }
        found
    }
}

impl<'a> Taking<'a> {
    fn new(memory: &'a Memory, policies: &'a [Policy], charges: &'a [Charge]) -> Self {
        let ask = |charge: &'a Charge| {
            let policy = &policies[charge.policy.0 as usize];
            let id = EntryId::new(policy.salt(), charge.key);
            Asked { policy, charge, id, shard: id.shard(memory.shards.len()) }
        };
        let asked: SmallVec<[Asked<'_>; 4]> = charges.iter().map(ask).collect();
        let shards = Locked::new(&memory.shards, &asked);
        Self { memory, now: memory.clock.now(), asked, shards }
    }

    fn take(mut self) -> Decisions {
        let (passes, outcomes) = self.enforce();
        let mut decisions: Decisions = outcomes.into_iter().map(|outcome| outcome.decision).collect();
        for place in 0..self.asked.len() {
            let one = self.asked[place];
            if one.policy.shadow {
                decisions[place] = self.watch(&one, passes);
            } else if decisions[place].allowed && !passes {
                decisions[place] = self.decide(&one, &one.charge.look()).decision;
            }
        }
        decisions
    }

    /// Decides those that enforce, one after the other, and charges them if every one allows; the places of
    /// the others are filled with leave.
    fn enforce(&mut self) -> (bool, SmallVec<[Outcome; 4]>) {
        let mut outcomes: SmallVec<[Outcome; 4]> = SmallVec::new();
        for (place, one) in self.asked.iter().enumerate() {
            // Two charges on one key see each other.
            let earlier = self.asked[..place]
                .iter()
                .zip(&outcomes)
                .rev()
                .filter(|(other, outcome)| other.id == one.id && outcome.decision.allowed)
                .find_map(|(_, outcome)| outcome.next.as_ref());
            outcomes.push(match earlier {
                _ if one.policy.shadow => {
                    Outcome { decision: Decision::allowed(1, 1, Micros::ZERO), next: None }
                }
                Some(record) => one.policy.decide(Some(record), self.now, one.charge),
                None => self.decide(one, one.charge),
            });
        }
        let passes = outcomes.iter().all(|outcome| outcome.decision.allowed);
        for (place, outcome) in outcomes.iter_mut().enumerate() {
            let one = self.asked[place];
            if passes {
                self.keep(&one, outcome.next.take());
            } else if !outcome.decision.allowed && outcome.next.is_some() {
                // What the denial itself changes, without what was charged for nothing.
                let alone = self.decide(&one, one.charge);
                self.keep(&one, alone.next.filter(|_| !alone.decision.allowed));
            }
        }
        (passes, outcomes)
    }

    /// Decides one that only watches, and charges it if the others pass and it would let pass too.
    fn watch(&mut self, one: &Asked<'a>, others_pass: bool) -> Decision {
        let Outcome { decision, next } = self.decide(one, one.charge);
        if others_pass || !decision.allowed {
            self.keep(one, next);
        }
        decision
    }

    fn decide(&self, one: &Asked<'_>, charge: &Charge) -> Outcome {
        let record = self.shards.shard(one).get(one.id, self.memory.hasher.hash_one(one.id));
        one.policy.decide(record.as_deref(), self.now, charge)
    }

    fn keep(&mut self, one: &Asked<'_>, record: Option<Record>) {
        let Some(record) = record else { return };
        let (memory, now) = (self.memory, self.now);
        memory.keep(self.shards.shard_mut(one), one.policy, one.id, record, now);
    }
}

impl<'a> Locked<'a> {
    fn new(shards: &'a [Mutex<Shard>], asked: &[Asked<'_>]) -> Self {
        let mut numbers: SmallVec<[usize; 4]> = asked.iter().map(|one| one.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers.into_iter().map(|number| (number, shards[number].lock())).collect())
    }

    /// Every shard that is asked for was locked by `new`.
    fn place(&self, one: &Asked<'_>) -> usize {
        self.0.iter().position(|(number, _)| *number == one.shard).unwrap_or(0)
    }

    fn shard(&self, one: &Asked<'_>) -> &Shard {
        &self.0[self.place(one)].1
    }

    fn shard_mut(&mut self, one: &Asked<'_>) -> &mut Shard {
        let place = self.place(one);
        &mut self.0[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Quota, Rate};

    fn policies() -> Vec<Policy> {
        let rate = Rate::new(10, Micros::SECOND).unwrap();
        vec![
            Policy::new("wide", Quota::token_bucket(rate, 10).unwrap()),
            Policy::new("narrow", Quota::gcra(rate, 1).unwrap()),
        ]
    }

    fn charge(policy: u32, key: u8, cost: u64) -> Charge {
        Charge::take(PolicyId(policy), Key([key; 16]), cost)
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
        let attacker = [Charge::take(PolicyId(0), Key([255; 16]), 10)];
        assert!(memory.take(&policies, &attacker)[0].allowed);
        for number in 0..50_000_u32 {
            let mut key = [0; 16];
            key[..4].copy_from_slice(&number.wrapping_mul(0x9E37_79B1).to_be_bytes());
            let _ = memory.take(&policies, &[Charge::take(PolicyId(0), Key(key), 1)]);
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
        memory.clock().set(Timestamp(1_120_000));
        memory.sweep(0, 1);
        assert_eq!(memory.len(), 1);
        memory.clock().set(Timestamp(1_520_000));
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
