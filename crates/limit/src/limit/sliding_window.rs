//! Sliding window: counters of the period's parts in place of a log.
//!
//! Twin of `lua/sliding_window.lua`. Parts have the width `w` and start at whole multiples of it since the
//! Unix epoch. All units in the parts inside the period are counted; the oldest part is covered only partially, and
//! its units `old` count as `old·s/w` for the `s` microseconds that are left of the present part, so all numbers are
//! whole.

use std::num::NonZeroU64;

use smallvec::{SmallVec, smallvec};

use super::decision::{Decision, Step};
use super::rate::{MAX_TICKS, QuotaError, Rate};
use super::timeline::{DecisionTime, LONGEST_PERIOD, NewEntry, Timeline};
use crate::time::{Micros, Timestamp};

/// The largest number of units: a list of parts holds at most twice the limit, and totals have 48 bits.
const MOST_UNITS: u64 = (1 << 47) - 1;
/// The largest number of parts. Ages of parts have 16 bits.
const MOST_BUCKETS: u64 = 10_000;

/// The numbers of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
    buckets: NonZeroU64,
    width: NonZeroU64,
    /// The units by which settled costs may exceed the limit.
    extra: u64,
}

/// The counters of one key: a position is the number of a part since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartCounts {
    /// How long a part is; counters of another width are ignored.
    pub width: NonZeroU64,
    /// The units of each part. A part without any has no entry.
    pub timeline: Timeline<16>,
}

/// The counters as of one request.
struct View<'a> {
    timeline: &'a Timeline<16>,
    now: Timestamp,
    present: DecisionTime,
    /// The number of the present part.
    part: u64,
    /// The number of the newest part that has an entry.
    newest: u64,
    /// The index of the first entry that is at least partially inside.
    first: usize,
    /// The index of the first entry that is entirely inside.
    whole: usize,
}

/// The oldest part while it leaves the period, and the units after it.
struct Leaving {
    /// The number of the present part while it is the oldest.
    part: u64,
    old: u64,
    full: u64,
}

impl SlidingWindow {
    /// A window over the period of `rate`, cut into `buckets` parts.
    ///
    /// # Errors
    /// A number of parts that is not 1 to 10,000 or does not cut the period into whole microseconds, a period
    /// that is too long, or units that can't be counted exactly.
    pub fn new(rate: Rate, buckets: u64) -> Result<Self, QuotaError> {
        let period = rate.period().0;
        if period > LONGEST_PERIOD {
            return Err(QuotaError::TooLong { longest: Micros(LONGEST_PERIOD) });
        }
        let fits = (1..=MOST_BUCKETS).contains(&buckets) && period.is_multiple_of(buckets);
        let width = NonZeroU64::new(if fits { period / buckets } else { 0 });
        let (Some(buckets), Some(width)) = (NonZeroU64::new(buckets), width) else {
            return Err(uneven(period, buckets));
        };
        let largest = largest(width);
        if rate.units() > largest {
            return Err(QuotaError::TooLarge { largest });
        }
        Ok(Self { rate, buckets, width, extra: 0 })
    }

    /// The most units that can be available at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.rate.units()
    }

    /// This window, in which settled costs may exceed the limit by this number of units, as far as they can be counted exactly.
    #[must_use]
    pub fn with_extra(self, units: u64) -> Self {
        Self { extra: units.min(largest(self.width).saturating_sub(self.limit())), ..self }
    }

    /// The most units that a period can have with settled costs.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        self.limit() + self.extra
    }

    /// The rate as configured.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Into how many parts the period is cut.
    pub(super) fn buckets(&self) -> u64 {
        self.buckets.get()
    }

    /// `[N, w, buckets]`: the numbers in the script's order.
    #[must_use]
    pub fn numbers(&self) -> SmallVec<[u64; 8]> {
        smallvec![self.limit(), self.width.get(), self.buckets.get()]
    }

    /// The limit as clients see it: N, and P in whole seconds.
    #[must_use]
    pub fn advertised(&self) -> (u64, u64) {
        (self.limit(), self.rate.period().ceil_secs())
    }

    /// The share of one of `instances` proxies, in whole units; at least one in a period that can be counted.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        let divided = || Self { rate: self.rate.divided_by(instances), extra: 0, ..*self };
        Self::new(self.rate.whole_share(instances), self.buckets.get()).unwrap_or_else(|_| divided())
    }

    /// Decides a request of `cost` units at `now`, and returns the new state if it has changed. A cost of
    /// zero changes nothing.
    #[must_use]
    pub fn step(&self, state: Option<&PartCounts>, now: Timestamp, cost: u64) -> Step<PartCounts> {
        let nothing = Timeline::empty(now);
        let known = state.filter(|parts| parts.width == self.width);
        let view = self.view(known.map_or(&nothing, |parts| &parts.timeline), now);
        let remaining = self.remaining(&view);
        let newest = (view.first < view.timeline.len()).then_some(view.newest);
        if cost <= remaining {
            let newest = if cost > 0 { Some(view.part) } else { newest };
            let decision = Decision::allowed(self.limit(), remaining - cost, self.until_expired(newest, now));
            return Step { decision, next: (cost > 0).then(|| self.parts(view.charged(cost))) };
        }
        let decision = Decision {
            allowed: false,
            retry_after: self.limit().checked_sub(cost).map(|room| self.until_within(&view, room)),
            ..Decision::allowed(self.limit(), remaining, self.until_expired(newest, now))
        };
        Step { decision, next: view.present.set_back.then(|| self.parts(view.timeline.moved(view.present))) }
    }

    /// Refunds `cost` units that were taken at `taken`, if their part still counts.
    #[must_use]
    pub fn refund(
        &self,
        state: Option<&PartCounts>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
    ) -> Step<PartCounts> {
        let next = state.filter(|parts| parts.width == self.width).and_then(|parts| {
            let view = self.view(&parts.timeline, now);
            let age = (parts.timeline.stamp.0 / self.width).checked_sub(taken.0 / self.width)?;
            let (line, gap) = parts.timeline.refunded(view.first, age, cost)?;
            // The stamp must lie in the newest part, and as late in it as possible.
            let end = (view.newest - gap + 1) * self.width.get() - 1;
            let stamp = Timestamp(view.present.stamp.0.min(end));
            Some(self.parts(Timeline { stamp, ..line }))
        });
        Step { decision: self.step(next.as_ref().or(state), now, 0).decision, next }
    }

    /// Charges `cost` units that were taken at `taken`, if their part still counts, and no more than a period can have.
    #[must_use]
    pub fn charge_late(
        &self,
        state: Option<&PartCounts>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
    ) -> Step<PartCounts> {
        let nothing = Timeline::empty(now);
        let known = state.filter(|parts| parts.width == self.width);
        let view = self.view(known.map_or(&nothing, |parts| &parts.timeline), now);
        let taken = taken.min(view.present.at);
        let part = taken.0 / self.width;
        let units = cost.min(self.room_in(&view, part));
        let counts = units > 0 && view.part - part <= self.buckets.get();
        let next = counts.then(|| self.parts(view.charged_late(units, taken, part)));
        Step { decision: self.step(next.as_ref().or(state), now, 0).decision, next }
    }

    /// Counters with `units` spent, which expire after `reset_after`; none if there are no units.
    pub(super) fn seed(&self, units: u64, reset_after: Micros, now: Timestamp) -> Option<PartCounts> {
        let width = self.width.get();
        let present = now.0 / width;
        let out = now.after(reset_after).0.div_ceil(width);
        let part = out.saturating_sub(self.buckets.get() + 1).min(present);
        let is_old = present - part >= self.buckets.get();
        // The oldest part counts only partially.
        let left = if is_old { (present + 1) * width - now.0 } else { width };
        let units = units.saturating_mul(width).div_ceil(left).min(self.limit());
        let stamp = Timestamp(now.0.min((part + 1) * width - 1));
        (units > 0).then(|| {
            self.parts(
                Timeline::empty(stamp).charged(0, NewEntry { at: stamp, position: part, ahead: 0, units }),
            )
        })
    }

    /// The width of a part, and how many of them are a period.
    pub(super) fn width_and_buckets(&self) -> [u64; 2] {
        [self.width.get(), self.buckets.get()]
    }

    /// How long `parts` differ from no state, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, parts: &PartCounts, now: Timestamp) -> Micros {
        if parts.width != self.width || parts.timeline.len() == 0 {
            return Micros::ZERO;
        }
        self.until_expired(Some(parts.timeline.stamp.0 / self.width), now)
    }

    fn parts(&self, line: Timeline<16>) -> PartCounts {
        PartCounts { width: self.width, timeline: line }
    }

    fn view<'a>(&self, line: &'a Timeline<16>, now: Timestamp) -> View<'a> {
        // Moves by whole parts: otherwise the units of a part would count less than they should.
        let present = line.present(now, self.width);
        let (part, newest) = (present.at.0 / self.width, present.stamp.0 / self.width);
        // How far before the newest the oldest part lies.
        let oldest = self.buckets.get().checked_sub(part - newest);
        let first = oldest.map_or(line.len(), |oldest| line.first_younger(oldest + 1));
        let is_old = first < line.len() && Some(line.age(first)) == oldest;
        View { timeline: line, now, present, part, newest, first, whole: first + usize::from(is_old) }
    }

    fn remaining(&self, view: &View<'_>) -> u64 {
        self.room(view, self.limit())
    }

    /// The units that fit into the present part up to `most`.
    fn room(&self, view: &View<'_>, most: u64) -> u64 {
        let Leaving { old, full, .. } = view.leaving();
        let left = (view.part + 1) * self.width.get() - view.present.at.0;
        most.saturating_sub(full).saturating_sub((old * left).div_ceil(self.width.get()))
    }

    /// The units that can be added to a part now; more fit into the oldest, which counts only partially.
    fn room_in(&self, view: &View<'_>, part: u64) -> u64 {
        if view.part - part < self.buckets.get() {
            return self.room(view, self.most_units());
        }
        let Leaving { old, full, .. } = view.leaving();
        let left = (view.part + 1) * self.width.get() - view.present.at.0;
        let most = self.most_units().saturating_sub(full) * self.width.get() / left;
        most.min(self.most_units()).saturating_sub(old)
    }

    /// Time until the estimate is no more than `room`, which it is above now.
    ///
    /// It falls monotonically. While a part is the oldest, it falls linearly from the units of that part and all later ones
    /// to those of the later ones; so the first part after which at most `room` was spent determines the wait.
    fn until_within(&self, view: &View<'_>, room: u64) -> Micros {
        let mut leaving = view.leaving();
        if leaving.full > room {
            let index = view.timeline.first_before(view.whole, room);
            leaving = Leaving {
                part: view.newest + self.buckets.get() - view.timeline.age(index),
                old: view.timeline.spent_at(index),
                full: view.timeline.spent_from(index + 1),
            };
        }
        let width = self.width.get();
        // The most microseconds before the end of that part at which it fits.
        let left = ((room - leaving.full) * width).checked_div(leaving.old).unwrap_or(width);
        Timestamp((leaving.part + 1) * width - left).since(view.now)
    }

    /// Time until a charge in the part `newest` has expired.
    fn until_expired(&self, newest: Option<u64>, now: Timestamp) -> Micros {
        let end = |part| Timestamp((part + self.buckets.get() + 1) * self.width.get());
        newest.map_or(Micros::ZERO, |part| end(part).since(now))
    }
}

impl View<'_> {
    /// The units that count partially, and those that count fully, in the present part.
    fn leaving(&self) -> Leaving {
        let old = if self.first < self.whole { self.timeline.spent_at(self.first) } else { 0 };
        Leaving { part: self.part, old, full: self.timeline.spent_from(self.whole) }
    }

    fn charged(&self, cost: u64) -> Timeline<16> {
        let (at, position, ahead) = (self.present.at, self.part, self.part - self.newest);
        self.timeline.charged(self.first, NewEntry { at, position, ahead, units: cost })
    }

    /// The counters with `units` in the part of `taken`.
    fn charged_late(&self, units: u64, taken: Timestamp, part: u64) -> Timeline<16> {
        let stamp = self.present.stamp;
        if self.first == self.timeline.len() {
            return self
                .timeline
                .charged(self.first, NewEntry { at: taken, position: part, ahead: 0, units });
        }
        if part >= self.newest {
            let (at, ahead) = (stamp.max(taken), part - self.newest);
            return self.timeline.charged(self.first, NewEntry { at, position: part, ahead, units });
        }
        Timeline { stamp, ..self.timeline.inserted(self.first, self.newest - part, units) }
    }
}

/// The most units that can be counted exactly in parts of this width.
fn largest(width: NonZeroU64) -> u64 {
    MOST_UNITS.min(MAX_TICKS / width)
}

/// The error with the numbers of parts next to `buckets` that divide `period` evenly; one part always does.
fn uneven(period: u64, buckets: u64) -> QuotaError {
    let fits = |&parts: &u64| period.is_multiple_of(parts);
    let below = (1..=buckets.min(MOST_BUCKETS)).rev().find(fits);
    let above = (buckets.max(1)..=MOST_BUCKETS).find(fits);
    let nearest = below.or(above).unwrap_or(1);
    QuotaError::Uneven { below: nearest, above: above.unwrap_or(nearest) }
}

#[cfg(test)]
mod tests;
