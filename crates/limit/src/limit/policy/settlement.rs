//! Policies whose requests reserve an estimate on arrival, which their response corrects.
//!
//! What a response costs less is refunded. What it costs more is charged when it is known ([`ChargeKind::Extra`]), whatever the
//! limit allows, so a state may exceed the limit: by [`FACTOR`] times the most that one response can cost, or less if numbers
//! would not be exact otherwise. All units above the limit have to come back before the next request is allowed.
//!
//! # Refunds to a debt
//! A debt drains at a constant rate, whoever has caused it. So a refund that subtracts what has drained since from each request
//! returns nearly nothing to a key with many slow responses at once. With settlement a refund returns all of the difference, if
//! the key has been in debt without interruption since the units were taken. For that, [`Record::created`] is the start of this
//! time: a debt that has drained is followed by a new one. Then all units that were reserved or settled in it are at most the
//! limit and what has drained since its start, if each estimate was an upper bound.

use super::Policy;
use crate::limit::charge::{Charge, ChargeKind};
use crate::limit::quota::{Quota, Taken};
use crate::limit::rate::MAX_TICKS;
use crate::limit::record::Record;
use crate::limit::state::State;
use crate::time::{Micros, Timestamp};

/// How many times the most that a response can cost a key may exceed its limit.
const FACTOR: u64 = 16;

impl Policy {
    /// This policy, whose requests reserve units on arrival and settle them by their response; a settled cost is at most `max`.
    #[must_use]
    pub fn with_settlement(self, max: u64) -> Self {
        let quota = self.quota.with_extra(extra(Some(max)));
        Self { settled_max: Some(max), quota, ..self }.with_own_salt()
    }

    /// Whether the cost of a request is settled by its response.
    #[must_use]
    pub fn settles(&self) -> bool {
        self.settled_max.is_some()
    }

    /// The most that a settled cost can be; `None` if the cost of a request is known when it arrives.
    #[must_use]
    pub fn settled_max(&self) -> Option<u64> {
        self.settled_max
    }

    /// These numbers, in which a key may owe what it may owe in this policy.
    pub(super) fn with_own_extra(&self, quota: Quota) -> Quota {
        quota.with_extra(extra(self.settled_max))
    }

    /// Whether a refund returns all of the units that were taken from the present debt; those of other policies return what has
    /// not come back since. With granted units, which are charged later, a debt may drain although units are in use.
    fn refunds_debts_whole(&self) -> bool {
        let has_debt = self.quota.bucket().is_some() || matches!(self.quota, Quota::IntervalBucket(_));
        self.settles() && self.ahead.is_none() && has_debt
    }

    /// The units that a refund returns.
    pub(super) fn refunded(&self, record: Option<&Record>, now: Timestamp, charge: &Charge) -> Taken {
        let created = record.map_or(now, |record| record.created.min(now));
        let units = if charge.taken < created { 0 } else { charge.cost };
        // As if they had been taken now.
        let at = if self.refunds_debts_whole() { Timestamp(MAX_TICKS) } else { charge.taken };
        Taken { units, at, holder: charge.holder }
    }

    /// Units that a response has cost more than was reserved. Queues and slots have none.
    pub(super) fn extra(&self, charge: &Charge) -> Taken {
        debug_assert_eq!(charge.kind, ChargeKind::Extra);
        let is_queue = matches!(self.quota, Quota::LeakyBucket(_));
        Taken {
            units: if is_queue { 0 } else { charge.cost },
            at: Timestamp(MAX_TICKS),
            holder: charge.holder,
        }
    }

    /// When the state of the record `next` was created, which replaces `record` at `now`. Clocks of proxies may differ, so it
    /// is never in the future: what is taken now is in this state.
    pub(super) fn created(&self, next: &Record, record: Option<&Record>, now: Timestamp) -> Timestamp {
        let has_state = |record: &&Record| record.state.as_ref().is_some_and(|state| !state.is_empty());
        if !self.records_creation() || !has_state(&next) {
            return Timestamp::default();
        }
        // A denial that counts towards a ban changes the record and not its state.
        let continues = |record: &&Record| {
            has_state(record) && (!self.has_drained(record.state.as_ref(), now) || record.state == next.state)
        };
        record.filter(continues).map_or(now, |record| record.created.min(now))
    }

    /// Whether a debt has drained, so that the next one is another.
    fn has_drained(&self, state: Option<&State>, now: Timestamp) -> bool {
        let is_over = |state| self.quota.lifetime(state, now) == Micros::ZERO;
        self.refunds_debts_whole() && state.is_none_or(is_over)
    }
}

/// By how many units a key may exceed its limit.
fn extra(settled_max: Option<u64>) -> u64 {
    settled_max.unwrap_or(0).saturating_mul(FACTOR)
}
