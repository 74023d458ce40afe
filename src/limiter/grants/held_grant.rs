//! One grant of the store, and counters of what becomes of its units.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limit::{Decision, Grant, GrantReport, Quota};
use crate::telemetry::GrantEvent;
use crate::time::{BootTime, Micros, Timestamp};

/// How the grants of a key would decide a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::limiter) enum HeldDecision {
    /// There is no grant: the store decides, without a report.
    NoGrant,
    /// They have the units, or the store decides when it has the report of a grant.
    Undecided,
    /// The units of a paced grant are not available yet.
    Denied(Decision),
}

/// A grant for a key, with its units by their state.
///
/// Units are held until a request takes them. Units that were taken are spent once the request passes, or put back.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldGrant {
    /// Identifies the grant in this process.
    pub serial: u64,
    /// Its generation, for reports: when it was opened, by the clock of the store.
    pub opened: Timestamp,
    /// When it ends, by the clock of the store.
    until: Timestamp,
    /// When it ends for this process, which is earlier.
    ends: BootTime,
    /// How long it lasts from when the store made it.
    duration: Micros,
    /// How many units it had.
    size: u64,
    /// How many of them are held.
    units: u64,
    /// How many were taken for requests that may still be denied, or not be charged.
    pending: u64,
    /// How many were spent since the last report.
    spent: u64,
    /// When its units become available; `None` if all are available at once.
    pace: Option<Pace>,
}

/// The call whose reply has a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantCall {
    /// When the call was sent: the store has not made the grant before that.
    pub sent: BootTime,
    /// When the reply arrived: the store has made the grant before that.
    pub received: BootTime,
    /// When the store has made the grant, by its clock.
    pub decided: Timestamp,
}

/// When the units of a paced grant become available, one after the other. Spans are a thousandth longer than those of the
/// store, since clocks differ in speed.
#[derive(Clone, Copy, Debug)]
struct Pace {
    first: BootTime,
    /// Thousandths of the ticks that make one unit, and a thousandth more.
    unit: u128,
    /// Thousandths of the ticks that drain in a microsecond.
    drain: u128,
}

impl HeldGrant {
    /// The grant in the reply to `call`, from a limit with this quota.
    pub fn new(serial: u64, grant: &Grant, call: GrantCall, quota: &Quota) -> Self {
        Self {
            serial,
            opened: grant.opened,
            until: call.decided.after(grant.duration),
            ends: call.sent.after(Micros(grant.duration.0 / 1_000 * 999)),
            duration: grant.duration,
            size: grant.units,
            units: grant.units,
            pending: 0,
            spent: 0,
            pace: grant.first.and_then(|first| Pace::new(first, call.received, quota)),
        }
    }

    /// How many units it had.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many units are held.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// When it ends for this process.
    pub fn ends(&self) -> BootTime {
        self.ends
    }

    /// How long it lasts from when the store made it.
    pub fn duration(&self) -> Micros {
        self.duration
    }

    /// Whether all of its units were spent and reported.
    pub fn is_used_up(&self) -> bool {
        self.units == 0 && self.pending == 0 && self.spent == 0
    }

    /// How many units can be taken now.
    pub fn available(&self, now: BootTime) -> u64 {
        match self.pace {
            _ if now >= self.ends => 0,
            None => self.units,
            Some(pace) => pace.available(now).saturating_sub(self.size - self.units).min(self.units),
        }
    }

    /// When `cost` units can be taken at the earliest; `None` if it has fewer, or ends before.
    pub fn ready_at(&self, cost: u64) -> Option<BootTime> {
        if self.units < cost {
            return None;
        }
        let last = (self.size - self.units + cost).saturating_sub(1);
        let at = self.pace.map_or(BootTime(0), |pace| pace.available_at(last));
        (at < self.ends).then_some(at)
    }

    /// Takes units that are available for a request that may still be denied.
    pub fn take(&mut self, cost: u64) {
        self.units = self.units.saturating_sub(cost);
        self.pending += cost;
    }

    /// Puts back the units of a request that is denied, or not charged.
    pub fn put_back(&mut self, cost: u64) {
        self.units = (self.units + cost).min(self.size);
        self.pending = self.pending.saturating_sub(cost);
    }

    /// Records that the request which has taken units passes.
    pub fn spend(&mut self, cost: u64) {
        self.spent += cost;
        self.pending = self.pending.saturating_sub(cost);
    }

    /// The units spent since the last report, which are not reported again. With `returns` the held units are returned.
    /// `None` if there is nothing to report.
    pub fn report(&mut self, returns: bool) -> Option<GrantReport> {
        let returned = if returns { std::mem::take(&mut self.units) } else { 0 };
        let spent = std::mem::take(&mut self.spent);
        let report = GrantReport { opened: self.opened, until: self.until, spent, returned };
        (spent > 0 || returned > 0).then_some(report)
    }
}

impl Pace {
    /// `None` if the quota is not a smooth bucket: the store paces no grants of others.
    fn new(first: Micros, received: BootTime, quota: &Quota) -> Option<Self> {
        let (Quota::TokenBucket(bucket) | Quota::Gcra(bucket)) = quota else { return None };
        let [drain, unit, _] = bucket.numbers();
        let first = received.after(Micros(first.0.saturating_add(first.0.div_ceil(1_000))));
        Some(Self { first, unit: u128::from(unit) * 1_001, drain: u128::from(drain) * 1_000 })
    }

    /// When the unit with this index becomes available.
    fn available_at(&self, index: u64) -> BootTime {
        let span = (u128::from(index) * self.unit).div_ceil(self.drain);
        self.first.after(Micros(u64::try_from(span).unwrap_or(u64::MAX)))
    }

    /// How many units have become available so far, including those that were taken.
    fn available(&self, now: BootTime) -> u64 {
        if now < self.first {
            return 0;
        }
        let last = u128::from(now.since(self.first).0) * self.drain / self.unit;
        u64::try_from(last).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// The units of one limit by their event, in the order of [`GrantEvent`].
#[derive(Debug, Default)]
pub(super) struct UnitCounts([AtomicU64; GrantEvent::COUNT]);

impl UnitCounts {
    /// Counts units.
    pub fn add(&self, event: GrantEvent, units: u64) {
        if units > 0 {
            self.0[event as usize].fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Counts the units that a report returns. The store takes them back only before the grant has ended; `decided` is when it
    /// has applied the report, if that is known.
    pub fn add_returned(&self, report: &GrantReport, decided: Option<Timestamp>) {
        let is_in_time = decided.is_some_and(|at| at < report.until);
        self.add(if is_in_time { GrantEvent::Returned } else { GrantEvent::Lapsed }, report.returned);
    }

    /// The counts.
    pub fn values(&self) -> [u64; GrantEvent::COUNT] {
        self.0.each_ref().map(|units| units.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;

    fn held(first: Option<Micros>) -> HeldGrant {
        let grant = Grant { units: 10, opened: Timestamp(5), duration: Micros::SECOND, first };
        let call = GrantCall { sent: BootTime(1_000), received: BootTime(3_000), decided: Timestamp(50) };
        let quota = Quota::token_bucket(Rate::new(300, Micros::SECOND).unwrap(), 300).unwrap();
        HeldGrant::new(1, &grant, call, &quota)
    }

    #[test]
    fn a_grant_ends_before_it_ends_in_the_store() {
        let grant = held(None);
        assert_eq!((grant.ends(), grant.until), (BootTime(1_000_000), Timestamp(1_000_050)));
        assert_eq!((grant.available(BootTime(999_999)), grant.available(BootTime(1_000_000))), (10, 0));
        assert_eq!((grant.ready_at(10), grant.ready_at(11)), (Some(BootTime(0)), None));
    }

    #[test]
    fn units_are_reported_once() {
        let mut grant = held(None);
        grant.take(4);
        grant.spend(3);
        grant.put_back(1);
        let reported = |report: Option<GrantReport>| {
            report.map(|report| (report.opened.0, report.spent, report.returned))
        };
        assert_eq!(reported(grant.report(false)), Some((5, 3, 0)));
        assert_eq!(grant.report(false), None);
        grant.take(2);
        grant.spend(2);
        assert_eq!(reported(grant.report(true)), Some((5, 2, 5)));
        assert!(grant.is_used_up());
        assert_eq!(grant.report(true), None);
    }

    #[test]
    fn the_units_of_a_paced_grant_become_available_one_by_one() {
        let mut grant = held(Some(Micros(2_000)));
        // A thousandth later than 2 ms after the reply; then a unit each 3,336.7 µs.
        let times: Vec<u64> = (1..=4).map(|cost| grant.ready_at(cost).unwrap().0).collect();
        assert_eq!(times, [5_002, 8_339, 11_676, 15_012]);
        assert_eq!([5_001, 5_002, 8_338, 8_339].map(|now| grant.available(BootTime(now))), [0, 1, 1, 2]);
        grant.take(1);
        assert_eq!((grant.available(BootTime(8_338)), grant.ready_at(1)), (0, Some(BootTime(8_339))));
        grant.put_back(1);
        assert_eq!(grant.available(BootTime(8_338)), 1);
    }

    #[test]
    fn units_that_become_available_after_the_end_are_not_ready() {
        assert_eq!(held(Some(Micros(990_000))).ready_at(10), None);
    }
}
