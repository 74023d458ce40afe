//! What a final status refunds of units in the in-process store, before the response has told its cost.

use smallvec::SmallVec;

use super::{Changes, InProcessUnits};
use crate::limit::{Charge, DecidedCharge};
use crate::limiter::reservation::{Delivery, StatusRule};
use crate::limiter::status::LimitStatuses;

impl InProcessUnits {
    /// Refunds the units that a request with this final status is not charged. Returns the decisions of their limits after that,
    /// and what the cost of the response may still change.
    #[must_use]
    pub fn respond(mut self: Box<Self>, status: u16) -> (LimitStatuses, Option<Box<Self>>) {
        let (mut refunds, mut kept) = (Changes::new(), SmallVec::new());
        for held in std::mem::take(&mut self.held) {
            let policy = self.policy(&held);
            match StatusRule::of(policy, status, Delivery::Answered) {
                StatusRule::Charged => {}
                StatusRule::Awaited => kept.push(held),
                StatusRule::Refunded => {
                    refunds.push(held.refund());
                    // A cost that is found later is charged all the same.
                    if policy.settles() {
                        kept.push(DecidedCharge { charge: Charge { cost: 0, ..held.charge }, ..held });
                    }
                }
            }
        }
        self.held = kept;
        let statuses = self.apply(&refunds);
        (statuses, (!self.held.is_empty()).then_some(self))
    }
}
