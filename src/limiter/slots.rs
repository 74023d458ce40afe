//! Slots of concurrency limits: who has which, giving them back, and renewing their leases.
//!
//! A slot is given back when its [`SlotSet`] is dropped, at once in this process, and in Redis by the worker's
//! keeper, which also renews leases. Both happen wherever the slot is counted. While the store is away those that it
//! has are counted in this process too, and when it is back it gets those that were taken meanwhile. What can't be
//! given back comes back by its lease.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limit::{Charge, ChargeKind, Decision, Holder, Policy, Quota};
use crate::store::{Memory, Store};
use crate::time::monotonic;

/// How often leases are looked through; a lease is at least three times as long.
const LOOK: Duration = Duration::from_secs(1);
/// The most slots that wait for being given back; beyond it they come back by their leases.
const MOST_RETURNED: usize = 65_536;

/// The slots of one worker.
#[derive(Debug, Default)]
pub(super) struct Slots {
    live: Mutex<LiveLeases>,
    returned: Notify,
}

#[derive(Debug, Default)]
struct LiveLeases {
    held: HashMap<Holder, Held>,
    /// Given back by their requests, and not yet to the store.
    returned: Vec<Held>,
    /// Whether some are on their way to the store.
    is_returning: bool,
}

/// A slot that somebody has.
#[derive(Clone, Debug)]
struct Held {
    policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    place: SlotLease,
    charge: Charge,
    /// When it is renewed, or given up.
    due: Instant,
}

/// The slots that a request asks for, and then has; dropping it gives them back.
#[derive(Debug)]
pub(super) struct SlotSet {
    slots: Arc<Slots>,
    policies: Arc<[Policy]>,
    shares: Arc<[Policy]>,
    /// Where they are asked for.
    place: SlotLease,
    charges: SmallVec<[Charge; 2]>,
}

/// Where slots are counted.
#[derive(Clone, Debug)]
pub(super) struct SlotLease {
    /// In the store of the worker.
    shared: bool,
    /// In this process, by these policies.
    here: Option<(Arc<Memory>, Arc<[Policy]>)>,
}

impl SlotLease {
    /// In the store of the worker.
    pub fn shared() -> Self {
        Self { shared: true, here: None }
    }

    /// In this process, by `policies`.
    pub fn here(memory: &Arc<Memory>, policies: &Arc<[Policy]>) -> Self {
        Self { shared: false, here: Some((Arc::clone(memory), Arc::clone(policies))) }
    }
}

impl Slots {
    /// The slots that `charges` ask for, and the charges with holders of their own; nearly all ask for none, and
    /// stay as they are. `shares` are those of the policies that this process decides by while the store is away.
    pub fn ask<'a>(
        self: &Arc<Self>,
        policies: &Arc<[Policy]>,
        shares: &Arc<[Policy]>,
        place: impl FnOnce() -> SlotLease,
        charges: &'a [Charge],
    ) -> (Cow<'a, [Charge]>, Option<SlotSet>) {
        if !charges.iter().any(|charge| is_slot(policies, charge)) {
            return (Cow::Borrowed(charges), None);
        }
        let mut all = charges.to_vec();
        let mut asked = SmallVec::new();
        for charge in all.iter_mut().filter(|charge| is_slot(policies, charge)) {
            // 64 random bits are enough for no two of at most 10,000 holders of one key to meet.
            charge.holder = Holder(fastrand::u64(..));
            asked.push(*charge);
        }
        let (slots, policies, shares) = (Arc::clone(self), Arc::clone(policies), Arc::clone(shares));
        (Cow::Owned(all), Some(SlotSet { slots, policies, shares, place: place(), charges: asked }))
    }

    /// Gives back what was returned, and renews what is due, for ever.
    pub async fn keep(&self, store: &Store) {
        let mut look = tokio::time::interval(LOOK);
        let mut is_taken = true;
        loop {
            let looks = tokio::select! {
                // While the store takes none, every request adds one: to offer it all of them each time would
                // keep the worker from everything else.
                () = self.returned.notified(), if is_taken => false,
                _ = look.tick() => true,
            };
            is_taken = self.give_back(store).await;
            if looks {
                self.renew(store).await;
            }
        }
    }

    /// Whether nobody has one, and none waits for being given back.
    pub fn is_empty(&self) -> bool {
        let live = self.live.lock();
        live.held.is_empty() && live.returned.is_empty() && !live.is_returning
    }

    /// Gives back what was returned, and says whether the store took it; what it does not take stays for the next
    /// time, until its lease ends.
    pub async fn give_back(&self, store: &Store) -> bool {
        let mut returned = {
            let mut live = self.live.lock();
            live.is_returning = true;
            std::mem::take(&mut live.returned)
        };
        let now = monotonic();
        returned.retain(|held| held.due > now);
        let left = settle(store, returned, ChargeKind::GiveBack).await;
        let is_taken = left.is_empty();
        let mut live = self.live.lock();
        live.is_returning = false;
        live.returned.extend(left);
        live.returned.truncate(MOST_RETURNED);
        is_taken
    }

    /// Counts in this process as well what the store has, which can't be asked any more.
    pub fn count_here(&self, alone: &Arc<Memory>) {
        for held in self.live.lock().held.values_mut().filter(|held| held.place.here.is_none()) {
            held.place.here = Some((Arc::clone(alone), Arc::clone(&held.shares)));
            held.settle_here(ChargeKind::Renew);
        }
    }

    /// Puts into the store what was taken here while it was away, and what it may have lost.
    pub async fn put_back(&self, store: &Store) {
        let now = monotonic();
        for held in self.live.lock().held.values_mut() {
            held.place.shared = true;
            held.due = now;
        }
        self.renew(store).await;
    }

    async fn renew(&self, store: &Store) {
        let now = monotonic();
        let due: Vec<Held> = {
            let mut live = self.live.lock();
            let due = live.held.values_mut().filter(|held| held.due <= now);
            due.map(|held| {
                held.due = now + held.lease() / 3;
                held.clone()
            })
            .collect()
        };
        for held in &due {
            held.settle_here(ChargeKind::Renew);
        }
        let shared = due.into_iter().filter(|held| held.place.shared).collect();
        let missed = settle(store, shared, ChargeKind::Renew).await;
        let mut live = self.live.lock();
        for held in missed {
            // Soon again.
            if let Some(held) = live.held.get_mut(&held.charge.holder) {
                held.due = now;
            }
        }
    }
}

impl SlotSet {
    /// Keeps those slots that were given: `decisions` belong to `charges`, and none was charged unless the request
    /// passes. `None` if there are none left.
    pub fn granted(mut self, charges: &[Charge], decisions: &[Decision], passes: bool) -> Option<Self> {
        let given = |holder: Holder| {
            let own = charges.iter().zip(decisions).find(|(charge, _)| charge.holder == holder);
            passes && own.is_some_and(|(_, decision)| decision.allowed)
        };
        self.charges.retain(|charge| given(charge.holder));
        let mut live = self.slots.live.lock();
        for charge in &self.charges {
            let mut held = self.held(*charge);
            held.due += held.lease() / 3;
            live.held.insert(charge.holder, held);
        }
        drop(live);
        (!self.charges.is_empty()).then_some(self)
    }

    /// A slot as of now.
    fn held(&self, charge: Charge) -> Held {
        let (policies, shares) = (Arc::clone(&self.policies), Arc::clone(&self.shares));
        Held { policies, shares, place: self.place.clone(), charge, due: monotonic() }
    }
}

impl Drop for SlotSet {
    fn drop(&mut self) {
        let mut live = self.slots.live.lock();
        let mut is_shared = false;
        for charge in &self.charges {
            // One that was not granted yet may have been given all the same.
            let mut held = live.held.remove(&charge.holder).unwrap_or_else(|| self.held(*charge));
            held.settle_here(ChargeKind::GiveBack);
            if held.place.shared {
                is_shared = true;
                held.due = monotonic() + held.lease();
                live.returned.push(held);
            }
        }
        drop(live);
        if is_shared {
            self.slots.returned.notify_one();
        }
    }
}

impl Held {
    /// Settles it in this process, if it is counted here.
    fn settle_here(&self, manner: ChargeKind) {
        if let Some((memory, policies)) = &self.place.here {
            let _ = memory.settle(policies, &[self.charge.with(manner)]);
        }
    }

    fn lease(&self) -> Duration {
        match &self.policies[self.charge.policy].quota {
            Quota::Concurrency(slots) => slots.lease().into(),
            _ => Duration::ZERO,
        }
    }
}

fn is_slot(policies: &[Policy], charge: &Charge) -> bool {
    let has_slots = matches!(policies[charge.policy].quota, Quota::Concurrency(_));
    has_slots && charge.manner == ChargeKind::Take && charge.cost > 0
}

/// Settles slots in the store in this manner; gives back those that it did not take.
async fn settle(store: &Store, mut slots: Vec<Held>, manner: ChargeKind) -> Vec<Held> {
    let mut left = Vec::new();
    while let Some(first) = slots.first() {
        // Nearly always all of them: only a new configuration brings others.
        let policies = Arc::clone(&first.policies);
        let (same, others): (Vec<Held>, Vec<Held>) =
            slots.into_iter().partition(|held| Arc::ptr_eq(&held.policies, &policies));
        let charges: Vec<Charge> = same.iter().map(|held| held.charge.with(manner)).collect();
        if store.charge_late(&policies, &charges).await.is_err() {
            left.extend(same);
        }
        slots = others;
    }
    left
}
