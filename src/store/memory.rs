//! Counts in this process: a map in shards, with a hard bound on the number of keys.
//!
//! A request locks the shards of all its keys, in their order, decides, and charges: all or nothing, as the
//! script does it in Redis. An entry whose state equals no state is swept. When a shard is full of live ones, the
//! limit that has the most of them gives one up: a flood of made-up keys evicts such keys, and nothing else.

mod present;
mod shard;

use std::borrow::Cow;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::present::Present;
use self::shard::{Address, EntryHasher, Meta, Shard};
use super::{Change, Decisions};
use crate::limit::{Charge, Decision, Key, Outcome, Policy, PolicyId, Record};
use crate::time::{Clock, Micros, Timestamp};

/// How many keys a shard is made for: the table beneath uses at most 7/8 of 2^k places before it doubles,
/// and keys don't spread evenly, so a little less.
const SHARD_KEYS: usize = (1 << 14) / 8 * 7 * 96 / 100;
/// Enough that two workers seldom meet at one lock.
const MIN_SHARDS: usize = 64;
/// Each shard has to hold enough keys that the limits share its room as they share the whole.
const MIN_SHARD_KEYS: usize = 256;

/// The in-process store.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    hasher: EntryHasher,
    clock: Clock,
}

/// One charge of a request with everything that deciding it needs.
#[derive(Clone, Copy)]
struct Asked<'a> {
    policy: &'a Policy,
    charge: &'a Charge,
    at: Address,
    shard: usize,
}

/// A request while it is decided.
struct Taking<'a> {
    now: Present<'a>,
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
        let fewest = MIN_SHARDS.min(max_keys / MIN_SHARD_KEYS).max(1);
        let shards = max_keys.div_ceil(SHARD_KEYS).max(fewest);
        let (each, over) = (max_keys / shards, max_keys % shards);
        let hasher = EntryHasher::new();
        let shard = |place: usize| Shard::new(each + usize::from(place < over), hasher.clone());
        Self { shards: (0..shards).map(|place| Mutex::new(shard(place))).collect(), hasher, clock }
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

    /// How many keys were evicted before their time, because there was no room.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().evictions()).sum()
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
            shard.lock().sweep(self.present());
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
        let policy = &policies[charge.policy];
        let at = self.hasher.address(policy.salt(), charge.key);
        let mut shard = self.shard(at).lock();
        let now = self.present();
        let Outcome { decision, next } = now.decide(policy, shard.get(at).as_deref(), charge);
        if let Some(record) = next {
            keep(&mut shard, policy, at, record, now);
        }
        decision
    }

    fn present(&self) -> Present<'_> {
        Present::of(&self.clock)
    }

    fn shard(&self, at: Address) -> &Mutex<Shard> {
        &self.shards[at.shard(self.shards.len())]
    }

    /// Keeps of a key what `make` makes of what is known of it, at the present time.
    pub fn replace(
        &self,
        policy: &Policy,
        key: Key,
        make: impl FnOnce(Option<&Record>, Timestamp) -> Record,
    ) {
        let at = self.hasher.address(policy.salt(), key);
        let mut shard = self.shard(at).lock();
        let now = self.present();
        let record = now.make(policy, shard.get(at).as_deref(), make);
        keep(&mut shard, policy, at, record, now);
    }

    /// Does each charge by itself; see [`super::Store::charge_late`].
    #[must_use]
    pub fn settle(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        charges.iter().map(|charge| self.take_one(policies, charge)).collect()
    }

    /// Changes these keys by hand; see [`super::Store::change`].
    #[must_use]
    pub fn change(&self, policies: &[Policy], keys: &[(PolicyId, Key)], change: Change) -> usize {
        let all = keys.iter().map(|(policy, key)| (&policies[*policy], *key));
        all.filter(|(policy, key)| self.change_one(policy, *key, change)).count()
    }

    /// Changes a key with every algorithm that its limit could have; says whether any of them was known.
    fn change_one(&self, policy: &Policy, key: Key, change: Change) -> bool {
        let mut known = false;
        for salt in policy.salts() {
            let at = self.hasher.address(salt, key);
            let mut shard = self.shard(at).lock();
            let present = self.present();
            let now = present.time;
            let record = shard.get(at).map(Cow::into_owned);
            known |= record.is_some();
            let changed = match change {
                Change::Block(length) => Some(record.unwrap_or_default().blocked(now, length)),
                Change::Unblock => record.map(Record::unblocked),
                Change::Reset => record.map(|record| record.reset(now)),
            };
            if changed == Some(Record::default()) {
                shard.remove(at);
            } else if let Some(changed) = changed {
                // What this algorithm can't read means nothing, but is not ours to forget.
                let (expires, by_wall) = present.expiry(policy, &changed).unwrap_or((now, false));
                let meta = Meta::new(salt, &changed, expires, by_wall);
                shard.put(at, changed, meta, present);
            }
        }
        known
    }

    /// The keys of `policy` that it knows, at most `max`.
    #[must_use]
    pub fn keys(&self, policy: &Policy, max: usize) -> Vec<Key> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().keys(policy, self.present(), max - found.len()));
        }
        found
    }
}

impl<'a> Taking<'a> {
    fn new(memory: &'a Memory, policies: &'a [Policy], charges: &'a [Charge]) -> Self {
        let ask = |charge: &'a Charge| {
            let policy = &policies[charge.policy];
            let at = memory.hasher.address(policy.salt(), charge.key);
            Asked { policy, charge, at, shard: at.shard(memory.shards.len()) }
        };
        let asked: SmallVec<[Asked<'_>; 4]> = charges.iter().map(ask).collect();
        let shards = Locked::new(&memory.shards, &asked);
        Self { now: memory.present(), asked, shards }
    }

    fn take(mut self) -> Decisions {
        let (passes, outcomes) = self.enforce();
        let mut decisions: Decisions = outcomes.into_iter().map(|outcome| outcome.decision).collect();
        for place in 0..self.asked.len() {
            let one = self.asked[place];
            if one.policy.shadow {
                decisions[place] = self.watch(&one, passes);
            } else if decisions[place].allowed && !passes {
                decisions[place] = self.decide(&one, &one.charge.peek()).decision;
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
                .filter(|(other, outcome)| other.at.id == one.at.id && outcome.decision.allowed)
                .find_map(|(_, outcome)| outcome.next.as_ref());
            outcomes.push(match earlier {
                _ if one.policy.shadow => {
                    Outcome { decision: Decision::allowed(1, 1, Micros::ZERO), next: None }
                }
                Some(record) => self.now.decide(one.policy, Some(record), one.charge),
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
        let record = self.shards.shard(one).get(one.at);
        self.now.decide(one.policy, record.as_deref(), charge)
    }

    fn keep(&mut self, one: &Asked<'_>, record: Option<Record>) {
        if let Some(record) = record {
            keep(self.shards.shard_mut(one), one.policy, one.at, record, self.now);
        }
    }
}

/// Keeps a record for as long as it differs from none.
fn keep(shard: &mut Shard, policy: &Policy, at: Address, record: Record, now: Present<'_>) {
    match now.expiry(policy, &record) {
        Some((expires, by_wall)) => {
            let meta = Meta::new(policy.salt(), &record, expires, by_wall);
            shard.put(at, record, meta, now);
        }
        None => shard.remove(at),
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
mod clock_tests;
#[cfg(test)]
mod tests;
