//! Slots of concurrency limits: their holders, their release, and the renewal of their leases.
//!
//! A slot is released when its [`SlotSet`] is dropped: at once in this process, and in Redis by the worker's
//! maintenance, which also renews leases. Both happen wherever the slot is counted. While the store is unavailable its
//! slots are counted in this process as well, and when it is back it gets the slots that were taken meanwhile. A slot that
//! can't be released expires with its lease.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits::Limits;
use crate::limit::{Charge, ChargeKind, Decision, Holder, Policy, Quota};
use crate::store::{Memory, Store};
use crate::time::monotonic;

/// How often leases are checked; a lease is at least three times as long.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The most slots to be released in the store; further ones expire with their leases.
const MAX_RELEASED: usize = 65_536;

/// The slots of one worker.
#[derive(Debug, Default)]
pub(super) struct Slots {
    live: Mutex<LiveLeases>,
    released: Notify,
}

#[derive(Debug, Default)]
struct LiveLeases {
    held: HashMap<Holder, HeldSlot>,
    /// Released by their requests, and not yet in the store.
    released: Vec<HeldSlot>,
    /// Whether some are being released in the store.
    is_releasing: bool,
}

/// A slot of a request.
#[derive(Clone, Debug)]
struct HeldSlot {
    policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    owner: SlotOwner,
    charge: Charge,
    /// When it is renewed, or if released, when its lease ends.
    due: Instant,
}

/// The slots that a request has requested, or has; dropping it releases them.
#[derive(Debug)]
pub(super) struct SlotSet {
    slots: Arc<Slots>,
    policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    /// Where they are requested.
    owner: SlotOwner,
    charges: SmallVec<[Charge; 2]>,
}

/// Where slots are counted.
#[derive(Clone, Debug)]
pub(super) struct SlotOwner {
    /// In the store of the worker.
    in_store: bool,
    /// In this process, by these policies.
    local: Option<(Arc<Memory>, Arc<[Policy]>)>,
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

impl Slots {
    /// Assigns new holders to the charges that request slots, and returns these slots. Nearly all requests have none, and
    /// their charges stay as they are.
    pub fn request<'a>(
        self: &Arc<Self>,
        limits: &Limits,
        owner: impl FnOnce() -> SlotOwner,
        charges: &'a [Charge],
    ) -> (Cow<'a, [Charge]>, Option<SlotSet>) {
        let takes_slot = |charge: &Charge| limits.policy(charge).has_slots() && charge.takes_units();
        if !charges.iter().any(takes_slot) {
            return (Cow::Borrowed(charges), None);
        }
        let mut all = charges.to_vec();
        let mut requested = SmallVec::new();
        for charge in all.iter_mut().filter(|charge| takes_slot(charge)) {
            // With 64 random bits no two of the at most 10,000 holders of a key collide.
            charge.holder = Holder(fastrand::u64(..));
            requested.push(*charge);
        }
        let (policies, shares) = (Arc::clone(&limits.policies), Arc::clone(&limits.shares));
        let slots = SlotSet { slots: Arc::clone(self), policies, shares, owner: owner(), charges: requested };
        (Cow::Owned(all), Some(slots))
    }

    /// Releases slots in the store and renews leases; never returns.
    pub async fn run_maintenance(&self, store: &Store) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        let mut is_available = true;
        loop {
            let renews = tokio::select! {
                // While the store releases none, every request adds one: sending all of them each time would
                // keep the worker from everything else.
                () = self.released.notified(), if is_available => false,
                _ = interval.tick() => true,
            };
            is_available = self.release(store).await;
            if renews {
                self.renew(store).await;
            }
        }
    }

    /// Whether no slot is held or waits for its release.
    pub fn is_empty(&self) -> bool {
        let live = self.live.lock();
        live.held.is_empty() && live.released.is_empty() && !live.is_releasing
    }

    /// Releases slots in the store, and returns whether it did; otherwise they are kept for the next attempt, until their
    /// leases end.
    pub async fn release(&self, store: &Store) -> bool {
        let mut released = {
            let mut live = self.live.lock();
            live.is_releasing = true;
            std::mem::take(&mut live.released)
        };
        let now = monotonic();
        released.retain(|held| held.due > now);
        let failed = apply(store, released, ChargeKind::Release).await;
        let is_done = failed.is_empty();
        let mut live = self.live.lock();
        live.is_releasing = false;
        live.released.extend(failed);
        live.released.truncate(MAX_RELEASED);
        is_done
    }

    /// Counts the slots of the store in this process as well, since the store has become unavailable.
    pub fn count_locally(&self, fallback: &Arc<Memory>) {
        for held in self.live.lock().held.values_mut().filter(|held| held.owner.local.is_none()) {
            held.owner.local = Some((Arc::clone(fallback), Arc::clone(&held.shares)));
            held.apply_locally(ChargeKind::Renew);
        }
    }

    /// Restores all slots in the store: those taken while it was unavailable, and those that it may have lost.
    pub async fn restore(&self, store: &Store) {
        let now = monotonic();
        for held in self.live.lock().held.values_mut() {
            held.owner.in_store = true;
            held.due = now;
        }
        self.renew(store).await;
    }

    async fn renew(&self, store: &Store) {
        let now = monotonic();
        let due: Vec<HeldSlot> = {
            let mut live = self.live.lock();
            let due = live.held.values_mut().filter(|held| held.due <= now);
            due.map(|held| {
                held.due = now + held.lease() / 3;
                held.clone()
            })
            .collect()
        };
        for held in &due {
            held.apply_locally(ChargeKind::Renew);
        }
        let in_store = due.into_iter().filter(|held| held.owner.in_store).collect();
        let failed = apply(store, in_store, ChargeKind::Renew).await;
        let mut live = self.live.lock();
        for held in failed {
            // Tried again at the next check.
            if let Some(held) = live.held.get_mut(&held.charge.holder) {
                held.due = now;
            }
        }
    }
}

impl SlotSet {
    /// Keeps the slots that were granted: `decisions` are those on `charges`, and none was made unless the request passes.
    /// `None` if no slot was granted.
    pub fn granted(mut self, charges: &[Charge], decisions: &[Decision], passes: bool) -> Option<Self> {
        let granted = |holder: Holder| {
            let own = charges.iter().zip(decisions).find(|(charge, _)| charge.holder == holder);
            passes && own.is_some_and(|(_, decision)| decision.allowed)
        };
        self.charges.retain(|charge| granted(charge.holder));
        let mut live = self.slots.live.lock();
        for charge in &self.charges {
            let mut held = self.held(*charge);
            held.due += held.lease() / 3;
            live.held.insert(charge.holder, held);
        }
        drop(live);
        (!self.charges.is_empty()).then_some(self)
    }

    /// The slot of `charge`, as of now.
    fn held(&self, charge: Charge) -> HeldSlot {
        let (policies, shares) = (Arc::clone(&self.policies), Arc::clone(&self.shares));
        HeldSlot { policies, shares, owner: self.owner.clone(), charge, due: monotonic() }
    }
}

impl Drop for SlotSet {
    fn drop(&mut self) {
        let mut live = self.slots.live.lock();
        let mut is_in_store = false;
        for charge in &self.charges {
            // A slot whose decision has not arrived may have been granted all the same.
            let mut held = live.held.remove(&charge.holder).unwrap_or_else(|| self.held(*charge));
            held.apply_locally(ChargeKind::Release);
            if held.owner.in_store {
                is_in_store = true;
                held.due = monotonic() + held.lease();
                live.released.push(held);
            }
        }
        drop(live);
        if is_in_store {
            self.slots.released.notify_one();
        }
    }
}

impl HeldSlot {
    /// Releases or renews the slot in this process, if it is counted here.
    fn apply_locally(&self, kind: ChargeKind) {
        if let Some((memory, policies)) = &self.owner.local {
            let _ = memory.apply(policies, &[self.charge.with_kind(kind)]);
        }
    }

    fn lease(&self) -> Duration {
        match &self.policies[self.charge.policy].quota {
            Quota::Concurrency(slots) => slots.lease().into(),
            _ => Duration::ZERO,
        }
    }
}

/// Releases or renews slots in the store; returns those for which it failed.
async fn apply(store: &Store, mut slots: Vec<HeldSlot>, kind: ChargeKind) -> Vec<HeldSlot> {
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
