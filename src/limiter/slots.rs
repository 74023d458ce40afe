//! Slots of concurrency limits: their holders, their release, and the renewal of their leases.
//!
//! A slot is released when its [`SlotSet`] is dropped: at once in this process, and in Redis by the worker's
//! maintenance, which also renews leases. Both happen wherever the slot is counted. While the store is unavailable its
//! slots are counted in this process as well, and when it is back it gets the slots that were taken meanwhile. A slot that
//! can't be released expires with its lease.
//!
//! A limit with `ahead` keeps some freed slots for the next requests of their keys ([`KeptSlots`]).
//!
//! A slot is registered before the store is called, so that a client that disconnects during the call releases what it may
//! have got.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use super::kept_slots::{HeldSlot, KeptSlot, KeptSlots, SlotOwner, apply};
use super::limits::Limits;
use crate::limit::{Charge, ChargeKind, DecidedCharge, DecidedCharges, Holder, Policy};
use crate::store::{Decisions, Memory, Store};
use crate::time::monotonic;

/// How often leases are checked; a lease is at least three times as long.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The most slots to be released in the store; further ones expire with their leases.
const MAX_RELEASED: usize = 65_536;
/// How often kept slots are checked: those that were not taken in time are released in one call.
const SWEEP_INTERVAL: Duration = Duration::from_millis(25);

/// The slots of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerSlots {
    live: Mutex<LiveLeases>,
    released: Notify,
    /// Wakes `run_maintenance` at the first slot.
    watched: Notify,
    /// Those of all workers.
    kept: Arc<KeptSlots>,
    /// Wakes `run_sweeps`.
    swept: Notify,
}

#[derive(Debug, Default)]
struct LiveLeases {
    held: HashMap<Holder, HeldSlot>,
    /// Released by their requests, and not yet in the store.
    released: Vec<HeldSlot>,
    /// Whether some are being released in the store.
    is_releasing: bool,
    /// Whether the worker ends, and keeps no slots any more.
    is_ending: bool,
    /// Whether `run_maintenance` waits for the first slot.
    is_unwatched: bool,
}

/// The slots that a request has requested, or has; dropping it releases them.
#[derive(Debug)]
pub(super) struct SlotSet {
    slots: Arc<WorkerSlots>,
    policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    /// Where they are requested.
    owner: SlotOwner,
    charges: SmallVec<[Charge; 2]>,
    /// Kept slots that the request has taken, until it passes: they need no call to the store.
    kept: Vec<KeptSlot>,
    /// The slots of the same request on another server.
    others: Option<Rc<SlotSet>>,
}

impl WorkerSlots {
    /// No slots yet; `kept` are those of all workers.
    pub fn new(kept: &Arc<KeptSlots>) -> Self {
        Self { kept: Arc::clone(kept), ..Self::default() }
    }

    /// Assigns holders to the charges that request slots, and returns these slots: new holders, or those of kept slots. Nearly
    /// all requests have none, and their charges stay as they are.
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
        let (policies, shares) = (Arc::clone(&limits.policies), Arc::clone(&limits.shares));
        let mut slots = SlotSet {
            slots: Arc::clone(self),
            policies,
            shares,
            owner: owner(),
            charges: SmallVec::new(),
            kept: Vec::new(),
            others: None,
        };
        for charge in all.iter_mut().filter(|charge| takes_slot(charge)) {
            let may_be_kept = slots.owner.in_store && limits.policy(charge).keeps_slots;
            // The clock is read since a cached time would be older than a stop of the process.
            if let Some(kept) =
                may_be_kept.then(|| self.kept.take(&limits.policies, charge, monotonic())).flatten()
            {
                charge.holder = kept.held.charge.holder;
                slots.kept.push(kept);
            } else {
                // With 64 random bits no two of the at most 10,000 holders of a key collide.
                charge.holder = Holder(fastrand::u64(..));
                slots.charges.push(*charge);
            }
        }
        (Cow::Owned(all), Some(slots))
    }

    /// Releases slots in the store and renews leases; never returns.
    pub async fn run_maintenance(&self, store: &Store) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_available = true;
        loop {
            let is_idle = self.live.lock().is_idle();
            let renews = tokio::select! {
                // While the store releases none, every request adds one: sending all of them each time would
                // keep the worker from everything else.
                () = self.released.notified(), if is_available => false,
                () = self.watched.notified(), if is_idle => continue,
                _ = interval.tick(), if !is_idle => true,
            };
            is_available = self.release(store).await;
            if renews {
                self.renew(store).await;
            }
        }
    }

    /// Wakes `run_maintenance` if it waits for a slot.
    fn watch(&self, live: &mut LiveLeases) {
        if std::mem::take(&mut live.is_unwatched) {
            self.watched.notify_one();
        }
    }

    /// Releases kept slots that were not taken in time; never returns.
    pub async fn run_sweeps(&self) {
        loop {
            self.swept.notified().await;
            while !self.kept.is_empty() {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let now = monotonic();
                self.release_later(self.kept.remove_expired(now), now);
            }
        }
    }

    /// Whether no slot is held or waits for its release.
    pub fn is_empty(&self) -> bool {
        let live = self.live.lock();
        live.held.is_empty() && live.released.is_empty() && !live.is_releasing
    }

    /// Releases the slots of a worker that ends, as far as the store replies.
    pub async fn release_last(&self, store: &Store) {
        self.live.lock().is_ending = true;
        self.release_kept();
        // There is no other attempt: slots that the store does not release now expire with their leases.
        let _ = self.release(store).await;
    }

    /// Releases all kept slots.
    fn release_kept(&self) {
        let now = monotonic();
        self.release_later(self.kept.remove_all(now), now);
    }

    /// Releases slots in this process at once, and in the store with the next call.
    fn release_later(&self, slots: impl IntoIterator<Item = HeldSlot>, now: Instant) {
        let mut is_in_store = false;
        for mut held in slots {
            held.apply_locally(ChargeKind::Release);
            if held.owner.in_store {
                is_in_store = true;
                held.due = now + held.lease();
                let mut live = self.live.lock();
                live.released.push(held);
                self.watch(&mut live);
            }
        }
        if is_in_store {
            self.released.notify_one();
        }
    }

    /// Keeps a freed slot, or returns it if it is to be released.
    fn keep(&self, held: HeldSlot, now: Instant) -> Option<HeldSlot> {
        if !held.policy().keeps_slots || self.live.lock().is_ending {
            return Some(held);
        }
        let kept = self.kept.keep(held, now);
        self.swept.notify_one();
        kept.err().map(|held| *held)
    }

    /// Puts back a kept slot that its request did not use, or returns it if it is to be released.
    fn put_back(&self, kept: KeptSlot, now: Instant) -> Option<HeldSlot> {
        if self.live.lock().is_ending {
            return Some(kept.held);
        }
        let kept = self.kept.put_back(kept, now);
        self.swept.notify_one();
        kept.err().map(|held| *held)
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
        // No request uses them.
        self.release_kept();
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

impl LiveLeases {
    /// Whether no slot is held or waits for its release, until [`WorkerSlots::watch`] is called.
    fn is_idle(&mut self) -> bool {
        self.is_unwatched = self.held.is_empty() && self.released.is_empty();
        self.is_unwatched
    }
}

impl SlotSet {
    /// The charges that the store must decide: all but those that have a kept slot.
    pub fn missing<'c>(&self, charges: &'c [Charge]) -> Cow<'c, [Charge]> {
        if self.kept.is_empty() {
            return Cow::Borrowed(charges);
        }
        charges.iter().filter(|charge| !self.is_kept(charge)).copied().collect()
    }

    /// The decisions on all charges: `decisions` are those of the store on the missing ones. A key whose slots the store denies
    /// keeps none for a while.
    pub fn join(&self, charges: &[Charge], decisions: Decisions) -> DecidedCharges {
        let mut decided = decisions.into_iter();
        let decision = |charge: &Charge| {
            let kept = self.kept_slot(charge).map(|kept| kept.decision);
            Some(DecidedCharge { charge: *charge, decision: kept.or_else(|| decided.next())? })
        };
        let all: DecidedCharges = charges.iter().map_while(decision).collect();
        let now = monotonic();
        for DecidedCharge { charge, .. } in all.iter().filter(|one| !one.decision.allowed) {
            let policy = &self.policies[charge.policy];
            if policy.keeps_slots {
                let released = self.slots.kept.record_denial(policy, charge.key, now);
                self.slots.release_later(released, now);
                self.slots.swept.notify_one();
            }
        }
        all
    }

    /// Whether a charge has a kept slot, so that it needs no call to the store.
    pub fn is_kept(&self, charge: &Charge) -> bool {
        self.kept_slot(charge).is_some()
    }

    fn kept_slot(&self, charge: &Charge) -> Option<&KeptSlot> {
        self.kept.iter().find(|kept| kept.held.charge.holder == charge.holder)
    }

    /// Adds the slots of the same request on other servers.
    pub fn add_server(&mut self, others: Option<Rc<Self>>) {
        self.others = others;
    }

    /// Keeps the slots that were granted: none of the charges was made unless the request passes.
    /// `None` if no slot was granted.
    pub fn granted(mut self, decided: &[DecidedCharge], passes: bool) -> Option<Self> {
        let granted = |charge: &Charge| {
            let own = decided.iter().find(|one| one.charge.holder == charge.holder);
            let DecidedCharge { decision, .. } = own.filter(|own| passes && own.decision.allowed)?;
            Some(HeldSlot { granted: Some((*decision, monotonic())), ..self.held(*charge) })
        };
        let mut slots: SmallVec<[HeldSlot; 2]> = self.charges.iter().filter_map(granted).collect();
        slots.iter_mut().for_each(|held| held.due += held.lease() / 3);
        if passes {
            // The others are put back.
            slots.extend(self.kept.drain(..).map(|kept| kept.held));
        }
        self.charges = slots.iter().map(|held| held.charge).collect();
        let mut live = self.slots.live.lock();
        live.held.extend(slots.into_iter().map(|held| (held.charge.holder, held)));
        self.slots.watch(&mut live);
        drop(live);
        (!self.charges.is_empty()).then_some(self)
    }

    /// The slot of `charge`, as of now.
    fn held(&self, charge: Charge) -> HeldSlot {
        let (policies, shares) = (Arc::clone(&self.policies), Arc::clone(&self.shares));
        HeldSlot { policies, shares, owner: self.owner.clone(), charge, due: monotonic(), granted: None }
    }
}

impl Drop for SlotSet {
    fn drop(&mut self) {
        let now = monotonic();
        let mut released: SmallVec<[HeldSlot; 2]> = SmallVec::new();
        for charge in &self.charges {
            let held = self.slots.live.lock().held.remove(&charge.holder);
            match held {
                Some(held) => released.extend(self.slots.keep(held, now)),
                // A slot whose decision has not arrived may have been granted all the same.
                None => released.push(self.held(*charge)),
            }
        }
        released.extend(self.kept.drain(..).filter_map(|kept| self.slots.put_back(kept, now)));
        self.slots.release_later(released, now);
    }
}

#[cfg(test)]
mod tests;
