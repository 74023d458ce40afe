//! The ledger: what this process has admitted while the store could not be asked, and owes it.
//!
//! Owed is only what provably was not sent. It is paid by late charges as soon as a probe is answered, before the worker
//! asks the store anything else; what other workers add meanwhile is paid by their keepers and ours.

use std::hash::BuildHasher as _;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;

use super::Limits;
use crate::limit::{Charge, Decision, Key, Owed, Policy, PolicyId};
use crate::store::Memory;
use crate::telemetry::ChargeBack;
use crate::time::Timestamp;

/// Enough that two workers seldom meet at one lock.
const SHARDS: usize = 16;
/// The most keys that are owed at once; beyond it those go that owe least.
const MOST: usize = 100_000;

/// What is owed, shared by all workers.
#[derive(Debug)]
pub struct Ledger {
    shards: Box<[Mutex<HashMap<u128, Debtor>>]>,
    hasher: DefaultHashBuilder,
    keys: AtomicUsize,
    /// What became of units, in the order of [`ChargeBack`].
    units: [AtomicU64; ChargeBack::COUNT],
    /// The most keys of one shard.
    most: usize,
}

/// A key that owes something.
#[derive(Clone, Debug)]
pub(super) struct Debtor {
    pub policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    pub policy: PolicyId,
    pub key: Key,
    instances: NonZeroU64,
    owed: Owed,
    /// How often the store has answered a payment with an error.
    pub refusals: u16,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl Ledger {
    /// One of at most `most` keys, but for a few.
    fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            keys: AtomicUsize::new(0),
            units: std::array::from_fn(|_| AtomicU64::new(0)),
            most: most.div_ceil(SHARDS),
        }
    }

    /// How many keys owe something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Whether nothing is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many units were owed, and what became of them, in the order of [`ChargeBack`].
    #[must_use]
    pub fn units(&self) -> [u64; ChargeBack::COUNT] {
        self.units.each_ref().map(|units| units.load(Ordering::Relaxed))
    }

    /// This became of so many units.
    pub(super) fn count(&self, end: ChargeBack, units: u64) {
        self.units[end as usize].fetch_add(units, Ordering::Relaxed);
    }

    /// Whether something is owed of this key: then what the store says of it is not all.
    pub(super) fn owes(&self, policy: &Policy, key: Key) -> bool {
        let id = id(policy, key);
        !self.is_empty() && self.shard(id).lock().contains_key(&id)
    }

    /// Writes down a charge that the share has admitted, saying `said`, and that was not sent.
    pub(super) fn add(&self, limits: &Limits, charge: &Charge, said: &Decision, now: Timestamp) {
        self.count(ChargeBack::Owed, charge.cost);
        let own = &limits.shares[charge.policy.0 as usize].quota;
        let whole = &limits.policy(charge).quota;
        let id = id(limits.policy(charge), charge.key);
        let mut shard = self.shard(id).lock();
        if let Some(debtor) = shard.get_mut(&id) {
            debtor.take_up(limits, charge.policy, now);
            debtor.owed.add(own, whole, said, charge.cost, now);
            return;
        }
        if shard.len() >= self.most {
            self.make_room(&mut shard);
        }
        let (policies, shares) = (Arc::clone(&limits.policies), Arc::clone(&limits.shares));
        let owed = Owed::new(own, whole, said, charge.cost, now);
        shard.insert(
            id,
            Debtor {
                policies,
                shares,
                policy: charge.policy,
                key: charge.key,
                instances: limits.instances,
                owed,
                refusals: 0,
            },
        );
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Minds a charge that the share has admitted and that the store may have: it is not owed.
    pub(super) fn pass(&self, limits: &Limits, charge: &Charge, now: Timestamp) {
        let id = id(limits.policy(charge), charge.key);
        if !self.is_empty()
            && let Some(debtor) = self.shard(id).lock().get_mut(&id)
        {
            debtor.take_up(limits, charge.policy, now);
            debtor.owed.pass(&limits.shares[charge.policy.0 as usize].quota, charge.cost, now);
        }
    }

    /// Takes some keys off, at most `most`; none if nothing is owed.
    pub(super) fn take(&self, most: usize) -> Vec<Debtor> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let ids: Vec<u128> = shard.keys().copied().take(most - taken.len()).collect();
            taken.extend(ids.iter().filter_map(|id| shard.remove(id)));
            if shard.is_empty() {
                // It may have been large.
                shard.shrink_to_fit();
            }
        }
        self.keys.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    /// Puts back what was taken off and could not be paid.
    pub(super) fn put_back(&self, debtor: Debtor) {
        let id = id(debtor.policy(), debtor.key);
        let mut shard = self.shard(id).lock();
        if let Some(known) = shard.get_mut(&id) {
            let (own, mut earlier) = (known.share().quota.clone(), debtor.owed.clone());
            earlier.convert(&debtor.share().quota, &own);
            known.owed.join(earlier, &own);
        } else {
            shard.insert(id, debtor);
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops that eighth of a shard's keys that owes least, so that it is seldom done.
    fn make_room(&self, shard: &mut HashMap<u128, Debtor>) {
        let mut owed: Vec<u64> = shard.values().map(Debtor::units).collect();
        let (_, least, _) = owed.select_nth_unstable(self.most / 8);
        let (least, before) = (*least, shard.len());
        let mut left = self.most / 8 + 1;
        let mut dropped = 0;
        shard.retain(|_, debtor| {
            let units = debtor.units();
            let goes = left > 0 && units <= least;
            if goes {
                left -= 1;
                dropped += units;
            }
            !goes
        });
        self.keys.fetch_sub(before - shard.len(), Ordering::Relaxed);
        self.count(ChargeBack::Dropped, dropped);
    }

    fn shard(&self, id: u128) -> &Mutex<HashMap<u128, Debtor>> {
        let hash = self.hasher.hash_one(id);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl Debtor {
    /// The whole policy.
    pub fn policy(&self) -> &Policy {
        &self.policies[self.policy.0 as usize]
    }

    /// Keeps what the store said of the key after it was paid, unless there is something owed of it again.
    pub fn learn(&self, alone: &Memory, ledger: &Ledger, said: &Decision) {
        if !ledger.owes(self.policy(), self.key) {
            let share = self.share();
            alone.replace(share, self.key, |known, now| share.seed(known, said, self.instances, now));
        }
    }

    /// Goes on by these limits, which may have other numbers than those by which it began.
    fn take_up(&mut self, limits: &Limits, policy: PolicyId, now: Timestamp) {
        if self.policy == policy && Arc::ptr_eq(&self.shares, &limits.shares) {
            return;
        }
        let from = self.share().quota.clone();
        self.owed.settle(&from, now);
        (self.policies, self.shares) = (Arc::clone(&limits.policies), Arc::clone(&limits.shares));
        (self.policy, self.instances) = (policy, limits.instances);
        let to = self.share().quota.clone();
        self.owed.convert(&from, &to);
    }

    /// The share of it that has admitted what is owed.
    fn share(&self) -> &Policy {
        &self.shares[self.policy.0 as usize]
    }

    /// Units that are owed.
    pub fn units(&self) -> u64 {
        self.owed.units(&self.share().quota)
    }

    /// The late charges that pay it.
    pub fn charges(&self, now: Timestamp) -> impl Iterator<Item = Charge> {
        let late = self.owed.clone().late(&self.share().quota, &self.policy().quota, now);
        let (policy, key) = (self.policy, self.key);
        late.into_iter().map(move |(units, taken)| Charge::take(policy, key, units).late(taken))
    }
}

/// What stands for a policy's key.
fn id(policy: &Policy, key: Key) -> u128 {
    u128::from_le_bytes(key.0) ^ policy.salt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Quota, Rate};
    use crate::limiter::OnStoreFailure;
    use crate::time::Micros;

    const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

    fn limits() -> Limits {
        let quota = Quota::token_bucket(Rate::new(1, Micros(86_400_000_000)).unwrap(), 100).unwrap();
        Limits::new(vec![(Policy::new("a", quota), OnStoreFailure::Local)], NonZeroU64::MIN)
    }

    fn charge(number: u32, cost: u64) -> Charge {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&number.to_le_bytes());
        Charge::take(PolicyId(0), Key(key), cost)
    }

    fn add(ledger: &Ledger, number: u32, cost: u64) {
        let said = Decision::allowed(100, 100 - cost, Micros(cost * 86_400_000_000));
        ledger.add(&limits(), &charge(number, cost), &said, NOW);
    }

    #[test]
    fn the_bound_on_keys_is_hard_and_those_go_that_owe_least() {
        let ledger = Ledger::new(800);
        let large: Vec<u32> = (0..50).map(|number| number * 97).collect();
        for number in 0..10_000 {
            add(&ledger, number, if large.contains(&number) { 90 } else { 1 });
            assert!(ledger.len() <= 800);
        }
        let [owed, _, _, dropped] = ledger.units();
        assert_eq!((owed, dropped), (10_000 + 50 * 89, 10_000 - u64::try_from(ledger.len()).unwrap()));
        assert!(large.iter().all(|number| ledger.owes(&limits().policies[0], charge(*number, 1).key)));
    }

    #[test]
    fn what_could_not_be_paid_is_owed_again_with_what_came_meanwhile() {
        let ledger = Ledger::default();
        add(&ledger, 1, 3);
        let taken = ledger.take(10);
        assert!(ledger.is_empty());
        add(&ledger, 1, 4);
        for debtor in taken {
            ledger.put_back(debtor);
        }
        let charges: Vec<Charge> = ledger.take(10).iter().flat_map(|debtor| debtor.charges(NOW)).collect();
        assert_eq!(charges, [charge(1, 7).late(NOW)]);
        assert!(ledger.take(10).is_empty());
    }

    fn per(period: u64) -> Limits {
        let quota = Quota::token_bucket(Rate::new(1, Micros(period)).unwrap(), 100).unwrap();
        Limits::new(vec![(Policy::new("a", quota), OnStoreFailure::Local)], NonZeroU64::MIN)
    }

    /// What is owed after two outages' worth of charges, the second under other numbers.
    fn owed_after_change(first: u64, second: u64) -> u64 {
        let ledger = Ledger::default();
        for (period, spent) in [(first, 3), (second, 7)] {
            let said = Decision::allowed(100, 100 - spent, Micros(spent * period));
            let charge = charge(1, if spent == 3 { 3 } else { 4 });
            ledger.add(&per(period), &charge, &said, NOW);
        }
        let charges: Vec<Charge> = ledger.take(10).iter().flat_map(|debtor| debtor.charges(NOW)).collect();
        assert_eq!(charges.len(), 1);
        charges[0].cost
    }

    #[test]
    fn what_is_owed_outlives_other_numbers() {
        assert_eq!(owed_after_change(60_000_000, 1_000_000), 7);
        assert_eq!(owed_after_change(1_000_000, 60_000_000), 7);
    }

    #[test]
    fn what_could_not_be_paid_has_drained_meanwhile() {
        let (ledger, limits) = (Ledger::default(), per(1_000_000));
        let said = |spent: u64| Decision::allowed(100, 100 - spent, Micros(spent * 1_000_000));
        ledger.add(&limits, &charge(1, 50), &said(50), NOW);
        let taken = ledger.take(10);
        let later = NOW.after(Micros(40_000_000));
        ledger.add(&limits, &charge(1, 1), &said(11), later);
        for debtor in taken {
            ledger.put_back(debtor);
        }
        let units: Vec<u64> =
            ledger.take(10).iter().flat_map(|it| it.charges(later)).map(|it| it.cost).collect();
        assert_eq!(units, [11]);
    }

    /// However often that fails, what is kept of a key is bounded.
    #[test]
    fn what_could_not_be_paid_stays_in_its_step() {
        let quota = Quota::sliding_log(&[Rate::new(1_000, Micros(86_400_000_000)).unwrap()]).unwrap();
        let limits = Limits::new(vec![(Policy::new("a", quota), OnStoreFailure::Local)], NonZeroU64::MIN);
        let ledger = Ledger::default();
        let said = Decision::allowed(1_000, 999, Micros(86_400_000_000));
        ledger.add(&limits, &charge(1, 1), &said, NOW);
        for _ in 0..300 {
            let taken = ledger.take(10);
            ledger.add(&limits, &charge(1, 1), &said, NOW);
            for debtor in taken {
                ledger.put_back(debtor);
            }
        }
        let charges: Vec<Charge> = ledger.take(10).iter().flat_map(|debtor| debtor.charges(NOW)).collect();
        assert_eq!(charges, [charge(1, 301).late(NOW)]);
    }
}
