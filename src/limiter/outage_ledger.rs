//! The ledger of what this process has admitted while the store was unavailable, and owes it.
//!
//! Only charges that provably were not sent are owed. They are paid by late charges as soon as a probe succeeds, before the
//! worker sends requests to the store; debts that other workers add meanwhile are paid by the maintenance of any worker.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::limits::Limits;
use crate::limit::{
    Admitted, Charge, ChargeKind, DecidedCharge, Decision, EntryId, Key, OwedCharges, Policy, PolicyId,
};
use crate::sharded::Sharded;
use crate::store::{Memory, Servers};
use crate::telemetry::ChargeBack;
use crate::time::Timestamp;

/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 16;
/// The most keys with debts; beyond it the smallest debts are dropped.
const MAX_KEYS: usize = 100_000;

/// All debts of this process, shared by its workers.
#[derive(Debug)]
pub struct OutageLedger {
    debts: Sharded<HashMap<EntryId, DebtEntry>, SHARDS>,
    keys: AtomicUsize,
    /// Keys that are being paid or have reserved units, and how often.
    pending: Mutex<HashMap<EntryId, u32>>,
    /// The sum of `pending`, to skip its lock.
    pending_count: AtomicUsize,
    /// Units by their outcome, in the order of [`ChargeBack`].
    units: [AtomicU64; ChargeBack::COUNT],
    /// The most keys of one shard.
    max_per_shard: usize,
    /// Notified of the first debt.
    added: Notify,
    /// The ledgers of the next configuration's servers, which get all debts once they are known: requests in flight under the
    /// earlier configuration still use this ledger.
    next: OnceLock<Servers<Arc<Self>>>,
}

/// The debt of one key.
#[derive(Clone, Debug)]
pub(super) struct DebtEntry {
    pub policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    pub policy: PolicyId,
    pub key: Key,
    instances: NonZeroU64,
    owed: OwedCharges,
    /// How often the store has replied to a payment with an error.
    pub error_replies: u16,
}

impl Default for OutageLedger {
    fn default() -> Self {
        Self::new(MAX_KEYS)
    }
}

impl OutageLedger {
    /// A ledger of about `max_keys` keys at most.
    fn new(max_keys: usize) -> Self {
        Self {
            debts: Sharded::default(),
            keys: AtomicUsize::new(0),
            pending: Mutex::default(),
            pending_count: AtomicUsize::new(0),
            units: std::array::from_fn(|_| AtomicU64::new(0)),
            max_per_shard: max_keys.div_ceil(SHARDS),
            added: Notify::new(),
            next: OnceLock::new(),
        }
    }

    /// Waits until there are debts.
    pub(super) async fn owes(&self) {
        // Created before the debts are counted, so that it notices each later one.
        let added = self.added.notified();
        if self.is_empty() {
            added.await;
        }
    }

    fn count_key(&self) {
        if self.keys.fetch_add(1, Ordering::Relaxed) == 0 {
            self.added.notify_waiters();
        }
    }

    /// How many keys have debts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Whether there are no debts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many units were owed, paid, lost and dropped, in the order of [`ChargeBack`].
    #[must_use]
    pub fn units(&self) -> [u64; ChargeBack::COUNT] {
        self.units.each_ref().map(|units| units.load(Ordering::Relaxed))
    }

    /// Counts units by their outcome.
    pub(super) fn count(&self, outcome: ChargeBack, units: u64) {
        // Ordered like the swap in `move_units`: one of them sees the other.
        self.units[outcome as usize].fetch_add(units, Ordering::AcqRel);
        self.move_units();
    }

    /// Moves the counted units to the next ledger, so that none counts units as paid that another has counted as owed.
    fn move_units(&self) {
        let Some(next) = self.next.get().map(Servers::first) else { return };
        for (units, sum) in self.units.iter().zip(&next.units) {
            sum.fetch_add(units.swap(0, Ordering::AcqRel), Ordering::AcqRel);
        }
        next.move_units();
    }

    /// The ledger that has the debt of a key instead of this one.
    fn next(&self, key: Key) -> Option<&Self> {
        self.next.get().map(|next| &**next.of(key))
    }

    /// Whether the key has a debt, which may be being paid: then the store has not been charged for all of its units.
    pub(super) fn has_debt(&self, policy: &Policy, key: Key) -> bool {
        if self.next(key).is_some_and(|next| next.has_debt(policy, key)) {
            return true;
        }
        if self.is_empty() && self.pending_count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let id = EntryId::new(policy, key);
        self.debts.lock(&id).contains_key(&id) || self.pending.lock().contains_key(&id)
    }

    /// Records that the store is owed so many units of a charge that the share has made, and that was not sent.
    pub(super) fn record(&self, limits: &Limits, made: &DecidedCharge, owed: u64) {
        let DecidedCharge { charge, decision } = made;
        let policy = limits.policy(charge);
        let (share, whole) = (&limits.share(charge).quota, &policy.quota);
        // A charge is capped at what the share can count.
        let is_extra = charge.kind == ChargeKind::Extra;
        let most = if is_extra { share.most_units() } else { share.limit() };
        let taken = charge.cost.min(most);
        let admitted = Admitted { share, whole, decision, taken, cost: owed, at: decision.at, is_extra };
        let id = EntryId::new(policy, charge.key);
        let mut debts = self.debts.lock(&id);
        // Read under the lock: what was added before is moved.
        if let Some(next) = self.next(charge.key) {
            drop(debts);
            return next.record(limits, made, owed);
        }
        self.count(ChargeBack::Owed, owed);
        if let Some(debt) = debts.get_mut(&id) {
            debt.adopt(limits, charge.policy, decision.at);
            debt.owed.add(admitted);
            return;
        }
        if debts.len() >= self.max_per_shard {
            self.evict(&mut debts);
        }
        let (policies, shares) = (Arc::clone(&limits.policies), Arc::clone(&limits.shares));
        let owed = OwedCharges::new(admitted);
        debts.insert(
            id,
            DebtEntry {
                policies,
                shares,
                policy: charge.policy,
                key: charge.key,
                instances: limits.instances,
                owed,
                error_replies: 0,
            },
        );
        self.count_key();
    }

    /// Records a charge that the share has admitted and that is not owed, since the store may have made it.
    pub(super) fn record_unowed(&self, limits: &Limits, charge: &Charge, now: Timestamp) {
        if let Some(next) = self.next(charge.key) {
            return next.record_unowed(limits, charge, now);
        }
        let id = EntryId::new(limits.policy(charge), charge.key);
        if !self.is_empty()
            && let Some(debt) = self.debts.lock(&id).get_mut(&id)
        {
            debt.adopt(limits, charge.policy, now);
            debt.owed.add_unowed(&limits.share(charge).quota, charge.cost, now);
        }
    }

    /// Records that a request has reserved units of this key in this process, and may be charged for them: until
    /// [`OutageLedger::release`] the key counts as one with a debt.
    pub(super) fn reserve(&self, policy: &Policy, key: Key) {
        self.add_pending(&[EntryId::new(policy, key)]);
    }

    /// Ends a reservation of units of this key: they were charged, or refunded.
    pub(super) fn release(&self, policy: &Policy, key: Key) {
        self.remove_pending(&[EntryId::new(policy, key)]);
    }

    fn add_pending(&self, ids: &[EntryId]) {
        let mut pending = self.pending.lock();
        for id in ids {
            *pending.entry(*id).or_default() += 1;
        }
        self.pending_count.fetch_add(ids.len(), Ordering::Relaxed);
    }

    fn remove_pending(&self, ids: &[EntryId]) {
        let mut pending = self.pending.lock();
        for id in ids {
            if let Some(count) = pending.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    pending.remove(id);
                }
            }
        }
        self.pending_count.fetch_sub(ids.len(), Ordering::Relaxed);
    }

    /// Removes debts to pay them, at most `max`; none if there are no debts. `has_debt` holds for them as long as the guard
    /// lives.
    pub(super) fn take(&self, max: usize) -> (Vec<DebtEntry>, PaymentGuard<'_>) {
        let mut taken = Vec::new();
        let mut guard = PaymentGuard { ledger: self, ids: Vec::new() };
        for mut shard in self.debts.lock_each() {
            let ids: Vec<EntryId> = shard.keys().copied().take(max - taken.len()).collect();
            guard.add(&ids);
            taken.extend(ids.iter().filter_map(|id| shard.remove(id)));
            if shard.is_empty() {
                // Frees the memory of a long outage.
                shard.shrink_to_fit();
            }
        }
        self.keys.fetch_sub(taken.len(), Ordering::Relaxed);
        (taken, guard)
    }

    /// Moves all debts into the ledgers of the next servers, also those that are recorded later.
    pub(super) fn move_to(&self, next: Servers<Arc<Self>>) {
        const AT_ONCE: usize = 1_024;
        self.next.get_or_init(|| next);
        self.move_units();
        loop {
            let (debts, _guard) = self.take(AT_ONCE);
            if debts.is_empty() {
                return;
            }
            for debt in debts {
                self.restore(debt);
            }
        }
    }

    /// Adds a debt that was taken and could not be paid.
    pub(super) fn restore(&self, debt: DebtEntry) {
        let id = EntryId::new(debt.policy(), debt.key);
        let mut shard = self.debts.lock(&id);
        if let Some(next) = self.next(debt.key) {
            drop(shard);
            return next.restore(debt);
        }
        if let Some(known) = shard.get_mut(&id) {
            let (own, mut earlier) = (known.share().quota.clone(), debt.owed.clone());
            earlier.convert(&debt.share().quota, &own);
            known.owed.merge(earlier, &own);
        } else {
            shard.insert(id, debt);
            self.count_key();
        }
    }

    /// Drops the eighth of a shard's debts that are smallest: several at once, so that it happens rarely.
    fn evict(&self, shard: &mut HashMap<EntryId, DebtEntry>) {
        let mut owed: Vec<u64> = shard.values().map(DebtEntry::units).collect();
        let (_, largest, _) = owed.select_nth_unstable(self.max_per_shard / 8);
        let (largest, before) = (*largest, shard.len());
        let mut left = self.max_per_shard / 8 + 1;
        let mut dropped = 0;
        shard.retain(|_, debt| {
            let units = debt.units();
            let is_dropped = left > 0 && units <= largest;
            if is_dropped {
                left -= 1;
                dropped += units;
            }
            !is_dropped
        });
        self.keys.fetch_sub(before - shard.len(), Ordering::Relaxed);
        self.count(ChargeBack::Dropped, dropped);
    }
}

/// Keys that are being paid.
#[derive(Debug)]
pub(super) struct PaymentGuard<'a> {
    ledger: &'a OutageLedger,
    ids: Vec<EntryId>,
}

impl PaymentGuard<'_> {
    fn add(&mut self, ids: &[EntryId]) {
        if ids.is_empty() {
            return;
        }
        self.ledger.add_pending(ids);
        self.ids.extend(ids);
    }
}

impl Drop for PaymentGuard<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.ledger.remove_pending(&self.ids);
        }
    }
}

impl DebtEntry {
    /// The policy that the store counts by.
    pub fn policy(&self) -> &Policy {
        &self.policies[self.policy]
    }

    /// Stores the store's decision after the payment, unless the share has less left: other proxies may not have paid yet.
    pub fn seed_share(&self, shares: &Memory, decision: &Decision) {
        let share = self.share();
        shares
            .update(share, self.key, |known, now| share.stricter_seed(known, decision, self.instances, now));
    }

    /// Converts the debt to these limits, whose numbers a reload may have changed.
    fn adopt(&mut self, limits: &Limits, policy: PolicyId, now: Timestamp) {
        if self.policy == policy && Arc::ptr_eq(&self.shares, &limits.shares) {
            return;
        }
        let from = self.share().quota.clone();
        self.owed.update(&from, now);
        (self.policies, self.shares) = (Arc::clone(&limits.policies), Arc::clone(&limits.shares));
        (self.policy, self.instances) = (policy, limits.instances);
        let to = self.share().quota.clone();
        self.owed.convert(&from, &to);
    }

    /// The share that has admitted the units.
    fn share(&self) -> &Policy {
        &self.shares[self.policy]
    }

    /// Owed units.
    pub fn units(&self) -> u64 {
        self.owed.units(&self.share().quota)
    }

    /// The late charges that pay the debt.
    pub fn charges(&self, now: Timestamp) -> impl Iterator<Item = Charge> {
        let late = self.owed.clone().late_charges(&self.share().quota, &self.policy().quota, now);
        let (policy, key) = (self.policy, self.key);
        late.into_iter().map(move |(units, taken)| Charge::take(policy, key, units).late(taken))
    }
}

#[cfg(test)]
mod tests;
