//! The records of a policy's share, made from decisions of the store on the whole.

use std::num::NonZeroU64;

use super::Policy;
use crate::limit::charge::{Charge, PolicyId};
use crate::limit::decision::{Decision, DenyReason, ShareUpdate, StoreView};
use crate::limit::interval::Shortfall;
use crate::limit::key::Key;
use crate::limit::penalty::Penalty;
use crate::limit::quota::Quota;
use crate::limit::record::Record;
use crate::limit::state::State;
use crate::limit::window::Count;
use crate::time::Timestamp;

fn peek() -> Charge {
    Charge::take(PolicyId(0), Key([0; 16]), 0)
}

/// Charges units, or refunds them if there are less than none.
fn adjustment(units: i64, now: Timestamp) -> Charge {
    let charge = Charge { cost: units.unsigned_abs(), ..peek() };
    if units < 0 { charge.refund(now) } else { charge.late(now) }
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
                let state = self.quota.seed(&StoreView::of(*decided), instances, now);
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
        let peek = |record: &Record| self.decide(Some(record), now, &peek()).decision;
        let has_less = |known: &Record| {
            let (known, seed) = (peek(known), peek(&seed));
            // With settled costs, units may be back later although none remains in both.
            if self.settles() { !seed.is_stricter(&known) } else { known.remaining <= seed.remaining }
        };
        match known {
            Some(known) if decided.reason == DenyReason::Quota && has_less(known) => known.clone(),
            _ => seed,
        }
    }

    /// The record of a key in this share of one of `instances` proxies, `known`, after `update`.
    ///
    /// The units that the process held are available to its share, besides its part of what no process holds; so those that it
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
            let then = Timestamp(now.0.saturating_sub(age.0));
            let own = view.own.and_then(|own| self.quota.seed(&StoreView::of(own), NonZeroU64::MIN, then));
            record.state = self.quota.seed(view, instances, then);
            record = self.strictest(record, own, now);
        }
        let charge = adjustment(update.taken, now);
        self.decide(Some(&record), now, &charge).next.unwrap_or(record)
    }

    /// `record` with the state of the two that leaves fewer units. If windows or the grids of buckets start with a first request,
    /// the state with fewer units may be the one that is refilled first: then the later start and the smaller rest are combined.
    fn strictest(&self, record: Record, other: Option<State>, now: Timestamp) -> Record {
        let other = match (&record.state, other) {
            (_, None) => return record,
            (Some(State::Shortfall(one)), Some(State::Shortfall(other))) => {
                let (tick, tokens) = (one.tick.max(other.tick), one.tokens.max(other.tokens));
                State::Shortfall(Shortfall { tick, tokens, ..*one })
            }
            (Some(State::Count(one)), Some(State::Count(other))) => {
                let (start, units) = (one.start.max(other.start), one.units.max(other.units));
                State::Count(Count { start, units, ..*one })
            }
            (_, Some(other)) => other,
        };
        let other = Record { state: Some(other), ..record.clone() };
        let peek = |record: &Record| self.decide(Some(record), now, &peek()).decision;
        if peek(&other).is_stricter(&peek(&record)) { other } else { record }
    }

    /// The state of the units that a process itself has taken, as its share counts them, with these units more at `now`; and
    /// the decision of the share.
    ///
    /// Proxies learn from replies of the store what others have taken, so they know it late. But if each of them has no more
    /// than its share of the units, all of them have no more than the limit, whatever they know. `None` if the units of the
    /// algorithm, or of requests that may be refunded, are not counted.
    #[must_use]
    pub fn own_usage(
        &self,
        own: Option<State>,
        units: i64,
        now: Timestamp,
    ) -> Option<(Option<State>, Decision)> {
        if self.reserves() || matches!(self.quota, Quota::SlidingLog(_)) {
            return None;
        }
        let record = Record { state: own, ..Record::default() };
        let outcome = self.decide(Some(&record), now, &adjustment(units, now));
        Some((outcome.next.unwrap_or(record).state, outcome.decision))
    }
}
