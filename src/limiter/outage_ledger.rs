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
use crate::limit::{Charge, Decision, Key, OwedCharges, Policy, PolicyId};
use crate::store::Memory;
use crate::telemetry::ChargeBack;
use crate::time::Timestamp;

/// Enough that two workers seldom meet at one lock.
const SHARDS: usize = 16;
/// The most keys that are owed at once; beyond it those go that owe least.
const MOST: usize = 100_000;

/// What is owed, shared by all workers.
#[derive(Debug)]
pub struct OutageLedger {
    shards: Box<[Mutex<HashMap<u128, DebtEntry>>]>,
    hasher: DefaultHashBuilder,
    keys: AtomicUsize,
    /// The keys that are being paid, each as often as it was taken off.
    paying: Mutex<HashMap<u128, u32>>,
    /// How many times a key is being paid.
    payments: AtomicUsize,
    /// What became of units, in the order of [`ChargeBack`].
    units: [AtomicU64; ChargeBack::COUNT],
    /// The most keys of one shard.
    most: usize,
}

/// A key that owes something.
#[derive(Clone, Debug)]
pub(super) struct DebtEntry {
    pub policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    pub policy: PolicyId,
    pub key: Key,
    instances: NonZeroU64,
    owed: OwedCharges,
    /// How often the store has answered a payment with an error.
    pub refusals: u16,
}

impl Default for OutageLedger {
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl OutageLedger {
    /// One of at most `most` keys, but for a few.
    fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            keys: AtomicUsize::new(0),
            paying: Mutex::default(),
            payments: AtomicUsize::new(0),
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

    /// Whether something is owed of this key, or is being paid: then the store does not know all of it.
    pub(super) fn owes(&self, policy: &Policy, key: Key) -> bool {
        if self.is_empty() && self.payments.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let id = id(policy, key);
        self.shard(id).lock().contains_key(&id) || self.paying.lock().contains_key(&id)
    }

    /// Writes down a charge that the share has admitted, saying `said`, and that was not sent.
    pub(super) fn add(&self, limits: &Limits, charge: &Charge, said: &Decision, now: Timestamp) {
        self.count(ChargeBack::Owed, charge.cost);
        let own = &limits.shares[charge.policy].quota;
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
        let owed = OwedCharges::new(own, whole, said, charge.cost, now);
        shard.insert(
            id,
            DebtEntry {
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
            debtor.owed.pass(&limits.shares[charge.policy].quota, charge.cost, now);
        }
    }

    /// Units of this key are taken in this process by a request that may yet be charged for them: until [`OutageLedger::settled`]
    /// the store does not know all of the key.
    pub(super) fn reserved(&self, policy: &Policy, key: Key) {
        self.begin_paying(&[id(policy, key)]);
    }

    /// It is known whether the request that has reserved units of this key is charged for them.
    pub(super) fn settled(&self, policy: &Policy, key: Key) {
        self.end_paying(&[id(policy, key)]);
    }

    fn begin_paying(&self, ids: &[u128]) {
        let mut paying = self.paying.lock();
        for id in ids {
            *paying.entry(*id).or_default() += 1;
        }
        self.payments.fetch_add(ids.len(), Ordering::Relaxed);
    }

    fn end_paying(&self, ids: &[u128]) {
        let mut paying = self.paying.lock();
        for id in ids {
            if let Some(count) = paying.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    paying.remove(id);
                }
            }
        }
        self.payments.fetch_sub(ids.len(), Ordering::Relaxed);
    }

    /// Takes some keys off, at most `most`; none if nothing is owed. They count as owed for as long as the guard lives.
    pub(super) fn take(&self, most: usize) -> (Vec<DebtEntry>, Paying<'_>) {
        let mut taken = Vec::new();
        let mut guard = Paying { ledger: self, ids: Vec::new() };
        for shard in &self.shards {
            let mut shard = shard.lock();
            let ids: Vec<u128> = shard.keys().copied().take(most - taken.len()).collect();
            guard.add(&ids);
            taken.extend(ids.iter().filter_map(|id| shard.remove(id)));
            if shard.is_empty() {
                // It may have been large.
                shard.shrink_to_fit();
            }
        }
        self.keys.fetch_sub(taken.len(), Ordering::Relaxed);
        (taken, guard)
    }

    /// Puts back what was taken off and could not be paid.
    pub(super) fn put_back(&self, debtor: DebtEntry) {
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
    fn make_room(&self, shard: &mut HashMap<u128, DebtEntry>) {
        let mut owed: Vec<u64> = shard.values().map(DebtEntry::units).collect();
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

    fn shard(&self, id: u128) -> &Mutex<HashMap<u128, DebtEntry>> {
        let hash = self.hasher.hash_one(id);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

/// Keys that are being paid.
#[derive(Debug)]
pub(super) struct Paying<'a> {
    ledger: &'a OutageLedger,
    ids: Vec<u128>,
}

impl Paying<'_> {
    fn add(&mut self, ids: &[u128]) {
        if ids.is_empty() {
            return;
        }
        self.ledger.begin_paying(ids);
        self.ids.extend(ids);
    }
}

impl Drop for Paying<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.ledger.end_paying(&self.ids);
        }
    }
}

impl DebtEntry {
    /// The whole policy.
    pub fn policy(&self) -> &Policy {
        &self.policies[self.policy]
    }

    /// Keeps what the store said of the key after it was paid, where that is less than the share has left: others may not
    /// have paid yet.
    pub fn learn(&self, alone: &Memory, said: &Decision) {
        let share = self.share();
        alone.replace(share, self.key, |known, now| share.stricter_seed(known, said, self.instances, now));
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
        &self.shares[self.policy]
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
mod tests;
