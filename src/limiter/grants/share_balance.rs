//! What the share of this process in a key does not count yet: units that were taken from grants.
//!
//! The share is seeded by each reply of the store, and counts all reserved units as spent then. So nothing has to be recorded
//! there while the store replies. When this process has to decide by its share, the units that it held at the last reply are
//! made available, and those that it has taken from grants since are charged.

use crate::limit::{Decision, Policy, ShareUpdate, State, StoreView};
use crate::time::BootTime;

/// The store's reply to a charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChargeReply {
    pub decision: Decision,
    /// The units that were charged.
    pub cost: u64,
    /// The units that this process holds after it.
    pub held: u64,
}

/// The difference between a share and the grants of its key.
#[derive(Clone, Debug, Default)]
pub(super) struct ShareBalance {
    /// The last decision of the store and the units held then, unless the share has them; and when the reply arrived.
    view: Option<(StoreView, BootTime)>,
    /// Units taken from grants, less those that were put back, that the share does not count.
    taken: i64,
    /// Units that the share still counts as held, although they were returned to the store.
    returned: u64,
    /// Units taken from grants since the last call was sent, less those that were put back.
    since_call: i64,
    /// What this process has taken of the key, as its share counts it, by the clock of the store.
    own: Option<State>,
}

impl ShareBalance {
    /// Records that units were taken from a grant.
    pub fn take(&mut self, units: u64) {
        self.add(units.cast_signed());
    }

    /// Records that units were put back into a grant, or are not charged.
    pub fn put_back(&mut self, units: u64) {
        self.add(-units.cast_signed());
    }

    /// Records that held units are returned to the store, which may grant them to other processes.
    pub fn return_to_store(&mut self, units: u64) {
        match &mut self.view {
            Some((view, _)) => view.held = view.held.saturating_sub(units),
            None => self.returned = self.returned.saturating_add(units),
        }
    }

    fn add(&mut self, units: i64) {
        self.taken = self.taken.saturating_add(units);
        self.since_call = self.since_call.saturating_add(units);
    }

    /// Records that a call is sent.
    pub fn begin_call(&mut self) {
        self.since_call = 0;
    }

    /// Records the reply to a call. What was taken during the call was held before it. `share` is the policy of this process's
    /// share, if there are other processes.
    pub fn record_reply(&mut self, share: Option<&Policy>, reply: ChargeReply, now: BootTime) {
        let ChargeReply { decision, cost, held } = reply;
        let units = (self.taken - self.since_call).saturating_add_unsigned(cost);
        let own_usage = |share: &Policy| share.own_usage(self.own.take(), units, decision.at);
        let (own, counted) = share.and_then(own_usage).unzip();
        self.own = own.flatten();
        let held = held.saturating_add_signed(self.since_call);
        self.view = Some((StoreView { decision, held, own: counted }, now));
        self.taken = self.since_call;
        self.returned = 0;
    }

    /// What the share has to count from now on; `None` if nothing has changed.
    pub fn take_update(&mut self, now: BootTime) -> Option<ShareUpdate> {
        let (view, taken) = (self.view.take(), std::mem::take(&mut self.taken));
        let taken = taken.saturating_add_unsigned(std::mem::take(&mut self.returned));
        let view = view.map(|(view, at)| (view, now.since(at)));
        (view.is_some() || taken != 0).then_some(ShareUpdate { view, taken })
    }
}
