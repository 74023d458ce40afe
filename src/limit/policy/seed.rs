//! The records of a policy's share, made from decisions of the store on the whole.

use std::num::NonZeroU64;

use super::Policy;
use crate::limit::charge::{Charge, PolicyId};
use crate::limit::decision::{Decision, DenyReason, StoreView};
use crate::limit::key::Key;
use crate::limit::penalty::Penalty;
use crate::limit::record::Record;
use crate::time::{Micros, Timestamp};

/// What the share of a process in a key does not count yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareUpdate {
    /// The last view of the store, and how old it is; `None` if the share has it.
    pub view: Option<(StoreView, Micros)>,
    /// Units taken from grants since; less than zero if more were put back.
    pub taken: i64,
}

impl Policy {
    /// The record of a key in this share of one of `instances` proxies, made from the decision of the store on the whole
    /// quota, `decided`; `known` is the record before.
    ///
    /// A proxy decides by it if the store becomes unavailable. A decision has the remaining units, and the time until all
    /// units are available: in the share of one of k proxies a k-th of them remains, and all are available at the same
    /// time. Whole units are rounded down, since together the proxies must not have more units than the store had.
    #[must_use]
    pub fn seed(
        &self,
        known: Option<&Record>,
        decided: &Decision,
        instances: NonZeroU64,
        now: Timestamp,
    ) -> Record {
        let rest = decided.retry_after.unwrap_or(decided.reset_after);
        let none = Penalty { stamp: now, ..Penalty::default() };
        let penalty = match decided.reason {
            DenyReason::Quota => {
                let state = self.quota.seed(&StoreView { decision: *decided, held: 0 }, instances, now);
                return Record { state, ..Record::default() };
            }
            DenyReason::Ban => Penalty { banned: none.end_after(rest), ..none },
            DenyReason::Block => Penalty { blocked: none.end_after(rest), ..none },
        };
        // The denial of a banned or blocked key does not show what remains of its quota.
        Record { penalty: Some(penalty), ..known.cloned().unwrap_or_default() }
    }

    /// Like [`Policy::seed`], while the store may not have been charged for everything yet: `known` stays if it has less
    /// remaining.
    #[must_use]
    pub fn stricter_seed(
        &self,
        known: Option<&Record>,
        decided: &Decision,
        instances: NonZeroU64,
        now: Timestamp,
    ) -> Record {
        let seed = self.seed(known, decided, instances, now);
        let peek = Charge::take(PolicyId(0), Key([0; 16]), 0);
        let remaining = |record: &Record| self.decide(Some(record), now, &peek).decision.remaining;
        match known {
            Some(known) if decided.reason == DenyReason::Quota && remaining(known) <= remaining(&seed) => {
                known.clone()
            }
            _ => seed,
        }
    }

    /// The record of a key in this share of one of `instances` proxies, `known`, after `update`.
    ///
    /// The units that the process held are available to its share, besides its part of what nobody holds; so those that it
    /// spends are charged to its share when they are spent, and refill from then on.
    #[must_use]
    pub fn updated_share(
        &self,
        known: Option<&Record>,
        update: &ShareUpdate,
        instances: NonZeroU64,
        now: Timestamp,
    ) -> Record {
        let mut record = known.cloned().unwrap_or_default();
        if let Some((view, age)) = &update.view {
            record.state = self.quota.seed(view, instances, Timestamp(now.0.saturating_sub(age.0)));
        }
        let charge = Charge::take(PolicyId(0), Key([0; 16]), update.taken.unsigned_abs());
        let charge = if update.taken < 0 { charge.refund(now) } else { charge.late(now) };
        self.decide(Some(&record), now, &charge).next.unwrap_or(record)
    }
}
