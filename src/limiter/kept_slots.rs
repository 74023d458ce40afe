//! The slots that requests of this process hold, and freed ones that it keeps for a short time, so that the next request of
//! their key needs no call to the store.
//!
//! For the store a kept slot is still held: its lease goes on, so no limit is exceeded. Few slots are kept, and none of a key
//! that was denied lately, since another process may need them.
//!
//! A concurrency limit with `ahead` has no grants, and its records and keys are the usual ones. A freed slot goes to
//! `limiter::kept_slots`, which all workers share, and the next request with its key and cost takes it from there: for the
//! store it is one holder all the time. A slot passes from request to request for less than a third of its lease, so it is
//! released before its renewal is due. It is not kept if it is counted in this process as well, which happens in an outage, or
//! if the decision of the store has not arrived.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::limit::{Charge, ChargeKind, Decision, EntryId, Key, Policy, PolicyId, Quota, Slots};
use crate::sharded::Sharded;
use crate::store::{Memory, Store};

/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 64;
/// A slot is passed on for this long after the store has granted it: a ban, a block or a reset takes effect by then.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How long after a denial no slot of the key is kept.
const DENIAL_PAUSE: Duration = Duration::from_secs(1);

/// The kept slots of all workers.
#[derive(Debug, Default)]
pub struct KeptSlots {
    keys: Sharded<HashMap<EntryId, KeptKey>, SHARDS>,
}

/// The kept slots of a key.
#[derive(Debug, Default)]
struct KeptKey {
    slots: SmallVec<[KeptSlot; 1]>,
    /// When a call was last denied.
    denied: Option<Instant>,
}

/// A freed slot.
#[derive(Debug)]
pub(super) struct KeptSlot {
    pub held: HeldSlot,
    /// The decision that granted it.
    pub decision: Decision,
    /// Until when it can be taken.
    until: Instant,
}

impl KeptSlots {
    /// Takes a slot that was kept for another request of the same key and cost, if there is one.
    pub(super) fn take(&self, policies: &Arc<[Policy]>, charge: &Charge, now: Instant) -> Option<KeptSlot> {
        let id = EntryId::new(&policies[charge.policy], charge.key);
        let mut keys = self.keys.lock(&id);
        let slots = &mut keys.get_mut(&id)?.slots;
        let fits = |kept: &KeptSlot| {
            let own = &kept.held.charge;
            // After a reload the numbers may be others.
            Arc::ptr_eq(&kept.held.policies, policies)
                && (own.policy, own.cost) == (charge.policy, charge.cost)
                && now < kept.until
        };
        // The last one, so that superfluous ones expire.
        let found = slots.iter().rposition(fits)?;
        Some(slots.remove(found))
    }

    /// Keeps a slot whose request is over.
    ///
    /// # Errors
    /// The slot, if it is to be released.
    pub(super) fn keep(&self, held: HeldSlot, now: Instant) -> Result<(), Box<HeldSlot>> {
        let is_counted_by_store = held.owner.in_store && held.owner.local.is_none();
        match held.granted {
            Some((decision, at))
                if held.policy().keeps_slots && is_counted_by_store && now < at + MAX_AGE =>
            {
                let until = (now + Duration::from(Slots::KEPT_FOR)).min(at + MAX_AGE);
                self.put_back(KeptSlot { held, decision, until }, now)
            }
            _ => Err(Box::new(held)),
        }
    }

    /// Puts back a slot that its request did not use.
    ///
    /// # Errors
    /// The slot, if it is to be released.
    pub(super) fn put_back(&self, kept: KeptSlot, now: Instant) -> Result<(), Box<HeldSlot>> {
        let most = match &kept.held.policy().quota {
            Quota::Concurrency(slots) => slots.max_kept(),
            _ => 0,
        };
        let id = EntryId::new(kept.held.policy(), kept.held.charge.key);
        let mut keys = self.keys.lock(&id);
        let key = keys.entry(id).or_default();
        let units: u64 = key.slots.iter().map(|other| other.held.charge.cost).sum();
        let has_room = units + kept.held.charge.cost <= most;
        if !has_room || now >= kept.until || key.is_paused(now) {
            return Err(Box::new(kept.held));
        }
        key.slots.push(kept);
        Ok(())
    }

    /// Records that the store has denied a charge; returns the kept slots of its key, which are to be released.
    pub(super) fn record_denial(&self, policy: &Policy, key: Key, now: Instant) -> Vec<HeldSlot> {
        if !policy.keeps_slots {
            return Vec::new();
        }
        let id = EntryId::new(policy, key);
        let mut keys = self.keys.lock(&id);
        let key = keys.entry(id).or_default();
        key.denied = Some(now);
        std::mem::take(&mut key.slots).into_iter().map(|kept| kept.held).collect()
    }

    /// Removes the slots that can't be taken any more, which are to be released.
    pub(super) fn remove_expired(&self, now: Instant) -> Vec<HeldSlot> {
        self.remove(|kept| now >= kept.until, now)
    }

    /// Removes all slots, which are to be released.
    pub(super) fn remove_all(&self, now: Instant) -> Vec<HeldSlot> {
        self.remove(|_| true, now)
    }

    fn remove(&self, is_removed: impl Fn(&KeptSlot) -> bool, now: Instant) -> Vec<HeldSlot> {
        let mut removed = Vec::new();
        for mut keys in self.keys.lock_each() {
            keys.retain(|_, key| {
                let (some, others) = std::mem::take(&mut key.slots).into_iter().partition(&is_removed);
                key.slots = others;
                let some: SmallVec<[KeptSlot; 1]> = some;
                removed.extend(some.into_iter().map(|kept| kept.held));
                !key.slots.is_empty() || key.is_paused(now)
            });
        }
        removed
    }

    /// Whether no slot is kept, and no denial remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.lock_each().all(|keys| keys.is_empty())
    }

    /// Takes these keys' slots out of use, since an operator has changed the keys in the store.
    pub fn expire(&self, policies: &[Policy], keys: &[(PolicyId, Key)], now: Instant) {
        for (policy, key) in keys {
            let id = EntryId::new(&policies[*policy], *key);
            if let Some(key) = self.keys.lock(&id).get_mut(&id) {
                key.slots.iter_mut().for_each(|kept| kept.until = now);
            }
        }
    }
}

impl KeptKey {
    fn is_paused(&self, now: Instant) -> bool {
        self.denied.is_some_and(|denied| now < denied + DENIAL_PAUSE)
    }
}

/// A slot that is held.
#[derive(Clone, Debug)]
pub(super) struct HeldSlot {
    pub policies: Arc<[Policy]>,
    pub shares: Arc<[Policy]>,
    pub owner: SlotOwner,
    pub charge: Charge,
    /// When it is renewed, or if released, when its lease ends.
    pub due: Instant,
    /// The decision that granted it, and when it arrived.
    pub granted: Option<(Decision, Instant)>,
}

/// Where slots are counted.
#[derive(Clone, Debug)]
pub(super) struct SlotOwner {
    /// In the store of the worker.
    pub in_store: bool,
    /// In this process, by these policies.
    pub local: Option<(Arc<Memory>, Arc<[Policy]>)>,
}

impl SlotOwner {
    /// In the store of the worker.
    pub fn store() -> Self {
        Self { in_store: true, local: None }
    }

    /// In this process, by `policies`.
    pub fn local(memory: &Arc<Memory>, policies: &Arc<[Policy]>) -> Self {
        Self { in_store: false, local: Some((Arc::clone(memory), Arc::clone(policies))) }
    }
}

impl HeldSlot {
    /// Releases or renews the slot in this process, if it is counted here.
    pub fn apply_locally(&self, kind: ChargeKind) {
        if let Some((memory, policies)) = &self.owner.local {
            let _ = memory.apply(policies, &[self.charge.with_kind(kind)]);
        }
    }

    pub fn lease(&self) -> Duration {
        match &self.policy().quota {
            Quota::Concurrency(slots) => slots.lease().into(),
            _ => Duration::ZERO,
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policies[self.charge.policy]
    }
}

/// Releases or renews slots in the store; returns those for which it failed.
pub(super) async fn apply(store: &Store, mut slots: Vec<HeldSlot>, kind: ChargeKind) -> Vec<HeldSlot> {
    let mut failed = Vec::new();
    while let Some(first) = slots.first() {
        // Nearly always all of them: only a reload brings other policies.
        let policies = Arc::clone(&first.policies);
        let (same, others): (Vec<HeldSlot>, Vec<HeldSlot>) =
            slots.into_iter().partition(|held| Arc::ptr_eq(&held.policies, &policies));
        let charges: Vec<Charge> = same.iter().map(|held| held.charge.with_kind(kind)).collect();
        if store.apply(&policies, &charges).await.is_err() {
            failed.extend(same);
        }
        slots = others;
    }
    failed
}

#[cfg(test)]
mod tests;
