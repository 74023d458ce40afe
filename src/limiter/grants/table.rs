//! All grants of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::held_grant::{HeldDecision, UnitCounts};
use super::held_grants::{GrantOwner, HeldGrants, ReturnedGrant};
use crate::id_vec::Id as _;
use crate::limit::{Charge, Decision, EntryId, Key, Policy, PolicyId};
use crate::sharded::Sharded;
use crate::telemetry::GrantValues;
use crate::time::{BootTime, Micros};

/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 64;
/// The most keys, over all shards. The demand of every key of a limit with `ahead` is measured.
const MAX_KEYS: usize = 65_536;
/// How many parts the span of a grant has: after each of them grants are swept.
const SWEEPS_PER_SPAN: u64 = 4;

/// The grants of this process, shared by all workers.
#[derive(Debug)]
pub struct GrantTable {
    keys: Sharded<HashMap<EntryId, HeldGrants>, SHARDS>,
    /// The counts of each limit, by its name.
    counts: Mutex<BTreeMap<Box<str>, Arc<UnitCounts>>>,
    /// The number of the last grant.
    serial: AtomicU64,
    /// How many times grants were dropped because an operator has changed a key. A grant that was requested before such a
    /// change is not used after it.
    drops: AtomicU64,
    /// Grants to be returned to the store.
    returned: Mutex<Vec<ReturnedGrant>>,
    /// How often grants are swept, in microseconds; the largest number if there are none.
    sweep_interval: AtomicU64,
    /// When they were swept last.
    swept: AtomicU64,
    /// The interval is shorter now, or there are grants to be returned.
    changed: Notify,
}

impl Default for GrantTable {
    fn default() -> Self {
        Self {
            keys: Sharded::default(),
            counts: Mutex::default(),
            serial: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            returned: Mutex::default(),
            sweep_interval: AtomicU64::new(u64::MAX),
            swept: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }
}

impl GrantTable {
    /// Calls `read` with the grants of a charge's key, which is added if it is not known. `None` if there is no room.
    pub(super) fn with_key<T>(
        &self,
        policies: &Arc<[Policy]>,
        charge: &Charge,
        now: BootTime,
        read: impl FnOnce(&mut HeldGrants) -> T,
    ) -> Option<T> {
        let policy = &policies[charge.policy];
        let id = EntryId::new(policy, charge.key);
        let mut shard = self.keys.lock(&id);
        if let Some(held) = shard.get_mut(&id) {
            if !held.is_of(policies, charge.policy) {
                self.queue_returns(held.adopt(GrantOwner::new(policies, charge)));
            }
            return Some(read(held));
        }
        if shard.len() >= MAX_KEYS / SHARDS {
            self.evict(&mut shard);
        }
        if shard.len() >= MAX_KEYS / SHARDS {
            return None;
        }
        let owner = GrantOwner::new(policies, charge);
        let held = shard.entry(id).or_insert_with(|| HeldGrants::new(owner, self.counts(&policy.name), now));
        Some(read(held))
    }

    /// Calls `read` with the grants of a key, if it is known.
    pub(super) fn with_known<T>(&self, id: &EntryId, read: impl FnOnce(&mut HeldGrants) -> T) -> Option<T> {
        self.keys.lock(id).get_mut(id).map(read)
    }

    /// How the grants of a charge's key would decide it. Nothing is taken.
    pub(in crate::limiter) fn check(
        &self,
        policies: &Arc<[Policy]>,
        charge: &Charge,
        now: BootTime,
    ) -> HeldDecision {
        let policy = &policies[charge.policy];
        if policy.ahead.is_none() {
            return HeldDecision::NoGrant;
        }
        let checked = self.with_known(&EntryId::new(policy, charge.key), |held| {
            let is_of_policy = held.is_of(policies, charge.policy);
            if is_of_policy { held.check(charge.cost, now) } else { HeldDecision::Undecided }
        });
        checked.unwrap_or(HeldDecision::NoGrant)
    }

    /// Removes the keys that were not used since the last eviction, several at once so that it happens rarely. Their grants
    /// are returned.
    fn evict(&self, shard: &mut HashMap<EntryId, HeldGrants>) {
        shard.retain(|_, held| {
            let stays = held.reset_use();
            if !stays {
                self.queue_returns(held.return_all());
            }
            stays
        });
    }

    fn counts(&self, limit: &str) -> Arc<UnitCounts> {
        let mut counts = self.counts.lock();
        if let Some(known) = counts.get(limit) {
            return Arc::clone(known);
        }
        Arc::clone(counts.entry(limit.into()).or_default())
    }

    /// A number for the next grant.
    pub(super) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many times grants were dropped because an operator has changed a key.
    pub(super) fn drops(&self) -> u64 {
        self.drops.load(Ordering::Acquire)
    }

    /// Queues grants to be returned to the store.
    pub(super) fn queue_returns(&self, grants: impl IntoIterator<Item = ReturnedGrant>) {
        let mut grants = grants.into_iter().peekable();
        if grants.peek().is_some() {
            self.returned.lock().extend(grants);
        }
    }

    /// The grants to be returned.
    pub(super) fn take_returned(&self) -> Vec<ReturnedGrant> {
        std::mem::take(&mut *self.returned.lock())
    }

    /// The time until the next sweep, and a future that is ready when it is shorter.
    pub(in crate::limiter) fn next_sweep(&self) -> (Micros, Notified<'_>) {
        // Created before the interval is read, so that it notices each later change.
        let changed = self.changed.notified();
        (Micros(self.sweep_interval.load(Ordering::Acquire)), changed)
    }

    /// Has grants of this span swept in time.
    pub(super) fn sweep_within(&self, span: Micros) {
        let interval = span.0 / SWEEPS_PER_SPAN;
        if self.sweep_interval.fetch_min(interval, Ordering::AcqRel) > interval {
            self.changed.notify_waiters();
        }
    }

    /// Whether it is time for the next sweep; then one caller makes it.
    pub(in crate::limiter) fn is_sweep_due(&self, now: BootTime) -> bool {
        let (last, interval) =
            (self.swept.load(Ordering::Acquire), self.sweep_interval.load(Ordering::Acquire));
        now.0 >= last.saturating_add(interval)
            && self.swept.compare_exchange(last, now.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Queues the grants to be returned that would lapse with many units.
    pub(in crate::limiter) fn sweep(&self, now: BootTime) {
        // Shortened again by each key with grants, also by one that gets its first grant meanwhile.
        self.sweep_interval.store(u64::MAX, Ordering::Release);
        for mut shard in self.keys.lock_each() {
            for held in shard.values_mut().filter(|held| held.has_grants()) {
                self.queue_returns(held.sweep(now));
                if held.has_grants() {
                    let interval = held.span().0 / SWEEPS_PER_SPAN;
                    self.sweep_interval.fetch_min(interval, Ordering::AcqRel);
                }
            }
        }
    }

    /// Queues all grants to be returned.
    pub(super) fn queue_all(&self) {
        for mut shard in self.keys.lock_each() {
            shard.drain().for_each(|(_, mut held)| self.queue_returns(held.return_all()));
        }
    }

    /// Adapts the grants to another configuration: those of limits that it lacks, or that have other numbers there, are
    /// returned.
    pub fn adopt(&self, policies: &Arc<[Policy]>) {
        let mut ids: HashMap<u128, SmallVec<[PolicyId; 1]>> = HashMap::new();
        for (index, policy) in policies.iter().enumerate().filter(|(_, policy)| policy.ahead.is_some()) {
            ids.entry(policy.salt()).or_default().push(PolicyId::from_index(index));
        }
        for mut shard in self.keys.lock_each() {
            shard.retain(|_, held| {
                let (policy, key) = (held.owner().policy(), held.owner().key);
                let same = |id: &&PolicyId| {
                    let next = &policies[**id];
                    next.quota == policy.quota && next.ahead == policy.ahead
                };
                let next = ids.get(&policy.salt()).and_then(|ids| ids.iter().find(same)).copied();
                match next {
                    Some(policy) => {
                        drop(held.adopt(GrantOwner { policies: Arc::clone(policies), policy, key }));
                    }
                    None => self.queue_returns(held.return_all()),
                }
                next.is_some()
            });
        }
        let is_configured = |name: &str| policies.iter().any(|policy| *policy.name == *name);
        self.counts.lock().retain(|name, _| is_configured(name));
        self.changed.notify_waiters();
    }

    /// Drops the grants of these keys, whose states an operator has changed in the store: their units count as spent.
    pub fn drop_keys(&self, policies: &[Policy], keys: &[(PolicyId, Key)]) {
        self.drops.fetch_add(1, Ordering::AcqRel);
        for (policy, key) in keys {
            self.with_known(&EntryId::new(&policies[*policy], *key), HeldGrants::drop_all);
        }
    }

    /// How many units of a key are held.
    pub(in crate::limiter) fn held_units(&self, policy: &Policy, key: Key, now: BootTime) -> u64 {
        self.with_known(&EntryId::new(policy, key), |held| held.units_at(now)).unwrap_or_default()
    }

    /// A decision of the store, plus the units that are held.
    pub(in crate::limiter) fn shown(&self, policy: &Policy, key: Key, decision: Decision) -> Decision {
        if policy.ahead.is_none() {
            return decision;
        }
        let shown = self.with_known(&EntryId::new(policy, key), |held| held.shown(decision, BootTime::now()));
        shown.unwrap_or(decision)
    }

    /// The counts of granted units of each limit, and the units that are held.
    #[must_use]
    pub fn values(&self) -> BTreeMap<Box<str>, GrantValues> {
        let mut units: BTreeMap<Box<str>, u64> = BTreeMap::new();
        for mut shard in self.keys.lock_each() {
            for held in shard.values_mut() {
                held.count_spent();
                if held.has_grants() {
                    *units.entry(held.owner().policy().name.clone()).or_default() += held.units();
                }
            }
        }
        let counts = self.counts.lock();
        let values = counts.iter().map(|(name, counts)| {
            let held = units.get(name).copied().unwrap_or_default();
            (name.clone(), GrantValues { events: counts.values(), held })
        });
        values.collect()
    }
}

#[cfg(test)]
mod tests;
