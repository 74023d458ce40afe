//! Fixed windows: a counter for each window of time.
//!
//! Twin of `lua/fixed_window.lua`. A window never holds more than N; across an edge up to 2N can be admitted at once.

use std::num::NonZeroU64;

use super::calendar::Calendar;
use super::clock::MAX_SKEW;
use super::decision::{Decision, Step};
use super::rate::{MAX_TICKS, QuotaError, Rate};
use crate::time::{Micros, Timestamp};

/// When windows start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Align {
    /// At whole multiples of the period since the Unix epoch.
    Clock,
    /// With the first request that is charged.
    FirstRequest,
    /// With the days, weeks, months or years of a time zone.
    Calendar(Calendar),
}

/// The numbers of a fixed window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    rate: Rate,
    align: Align,
    /// The units by which settled costs may exceed the limit.
    extra: u64,
}

/// The state of a key: the count of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// When it last changed.
    pub stamp: Timestamp,
    /// When its window started.
    pub start: Timestamp,
    /// Which period and alignment its window has; see [`Window::grid`].
    pub grid: i64,
    /// Units in the window.
    pub units: u64,
}

/// A state as of the present: the window that `at` lies in, and its count.
struct Updated {
    at: Timestamp,
    start: Timestamp,
    end: Timestamp,
    units: u64,
    set_back: bool,
}

impl Window {
    /// Windows that hold the units of `rate`.
    ///
    /// # Errors
    /// Numbers that do not stay exact in a double.
    pub fn new(rate: Rate, align: Align) -> Result<Self, QuotaError> {
        // The end of a window that starts now has to be exact too.
        let is_too_long = rate.period().0 > MAX_TICKS / 2;
        if is_too_long || rate.units() > MAX_TICKS {
            return Err(QuotaError::TooLarge { largest: if is_too_long { 0 } else { MAX_TICKS } });
        }
        Ok(Self { rate, align, extra: 0 })
    }

    /// Units that a window holds.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.rate.units()
    }

    /// These windows, in which settled costs may exceed the limit by this number of units, as far as they can be counted exactly.
    #[must_use]
    pub fn with_extra(self, units: u64) -> Self {
        Self { extra: units.min(MAX_TICKS.saturating_sub(self.limit())), ..self }
    }

    /// The most units that a window can hold with settled costs.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        self.limit() + self.extra
    }

    /// The rate as configured; of a calendar window the nominal one.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// When its windows start.
    #[must_use]
    pub fn align(&self) -> &Align {
        &self.align
    }

    /// Identifies period and alignment, so that a count of another grid is ignored: the period if aligned to the clock, the
    /// negated period if aligned to the first request, and lower numbers for the calendar.
    #[must_use]
    pub fn grid(&self) -> i64 {
        let period = self.rate.period().0.cast_signed();
        match &self.align {
            Align::Clock => period,
            Align::FirstRequest => -period,
            Align::Calendar(calendar) => calendar.unit() as i64 - MAX_TICKS.cast_signed(),
        }
    }

    /// `[N, grid]`, and of a calendar window the edges around `now`: the numbers in the script's order.
    #[must_use]
    pub fn numbers(&self, now: Timestamp) -> smallvec::SmallVec<[i64; 8]> {
        let mut numbers = smallvec::smallvec![self.limit().cast_signed(), self.grid()];
        if let Align::Calendar(calendar) = &self.align {
            numbers.extend(calendar.edges(now).map(|edge| edge.0.cast_signed()));
        }
        numbers
    }

    /// The share of one of `instances` proxies, in whole units: together they admit no more than N in a window.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        let share = Self::new(self.rate.whole_share(instances), self.align.clone());
        match (share, &self.align) {
            (Ok(share), Align::Clock | Align::FirstRequest) => share,
            _ => Self { rate: self.rate.divided_by(instances), align: self.align.clone(), extra: 0 },
        }
    }

    /// Decides a request of `cost` units at `now`. A cost of zero changes nothing.
    #[must_use]
    pub fn step(&self, state: Option<&Count>, now: Timestamp, cost: u64) -> Step<Count> {
        let updated = self.update(state, now);
        let room = self.limit().saturating_sub(updated.units);
        if cost > room {
            let retry_after = (cost <= self.limit()).then(|| Micros(updated.end.0 - now.0));
            let decision = Decision { allowed: false, retry_after, ..self.decision(&updated, now) };
            return Step { decision, next: updated.set_back.then(|| self.state(&updated)) };
        }
        let after = Updated { units: updated.units + cost, ..updated };
        Step { decision: self.decision(&after, now), next: (cost > 0).then(|| self.state(&after)) }
    }

    /// Refunds `cost` units that were taken at `taken`, if its window is still open.
    #[must_use]
    pub fn refund(&self, state: Option<&Count>, now: Timestamp, cost: u64, taken: Timestamp) -> Step<Count> {
        let updated = self.update(state, now);
        let back = if updated.start <= taken { cost.min(updated.units) } else { 0 };
        let after = Updated { units: updated.units - back, ..updated };
        Step { decision: self.decision(&after, now), next: (back > 0).then(|| self.state(&after)) }
    }

    /// Charges `cost` units that were taken at `taken`, if their window is still open, and no more than a window can hold.
    #[must_use]
    pub fn charge_late(
        &self,
        state: Option<&Count>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
    ) -> Step<Count> {
        let updated = self.update(state, now);
        let start = self.start_of_late(state, &updated, taken.min(updated.at));
        let units = updated.units.saturating_add(cost).min(self.most_units());
        let Some(start) = start.filter(|_| units > updated.units) else {
            return Step { decision: self.decision(&updated, now), next: None };
        };
        let end = if start == updated.start { updated.end } else { start.after(self.rate.period()) };
        let after = Updated { start, end, units, ..updated };
        Step { decision: self.decision(&after, now), next: Some(self.state(&after)) }
    }

    /// The start of the window that counts what was taken at `taken`, if it is still open.
    fn start_of_late(&self, state: Option<&Count>, updated: &Updated, taken: Timestamp) -> Option<Timestamp> {
        if self.align != Align::FirstRequest {
            return (updated.start <= taken).then_some(updated.start);
        }
        let period = self.rate.period();
        let start = if updated.units > 0 { updated.start } else { taken };
        // If no window is open, the one of `taken` has ended, or would have started at `taken`.
        let own = state.filter(|count| updated.units == 0 && count.grid == self.grid());
        let has_ended = own.is_some_and(|own| own.start <= taken && taken.since(own.start) < period);
        (!has_ended && updated.at.since(taken) < period).then_some(start)
    }

    /// The state of a window that holds `units` and ends after `reset_after`, or on a grid of the clock with its window.
    pub(super) fn seed(&self, units: u64, reset_after: Micros, now: Timestamp) -> Count {
        let start = match self.align {
            Align::FirstRequest => {
                Timestamp(now.after(reset_after).0.saturating_sub(self.rate.period().0)).min(now)
            }
            _ => self.window(now, None).0,
        };
        Count { stamp: now, start, grid: self.grid(), units }
    }

    /// Whether these times lie in the same window of a grid that depends on the clock.
    pub(super) fn is_same_window(&self, a: Timestamp, b: Timestamp) -> bool {
        self.window(a, None).0 == self.window(b, None).0
    }

    /// The start and the end of the window at `now`, and whether it holds units.
    pub(super) fn present(&self, state: Option<&Count>, now: Timestamp) -> (Timestamp, Timestamp, bool) {
        let updated = self.update(state, now);
        (updated.start, updated.end, updated.units > 0)
    }

    /// How long `count` differs from no state, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, count: &Count, now: Timestamp) -> Micros {
        let updated = self.update(Some(count), now);
        if updated.units == 0 { Micros::ZERO } else { Micros(updated.end.0 - now.0) }
    }

    fn decision(&self, updated: &Updated, now: Timestamp) -> Decision {
        let reset = if updated.units == 0 { Micros::ZERO } else { Micros(updated.end.0 - now.0) };
        Decision::allowed(self.limit(), self.limit().saturating_sub(updated.units), reset)
    }

    fn state(&self, updated: &Updated) -> Count {
        let Updated { at: stamp, start, units, .. } = *updated;
        Count { stamp, start, grid: self.grid(), units }
    }

    fn update(&self, state: Option<&Count>, now: Timestamp) -> Updated {
        let Some(count) = state.filter(|count| count.grid == self.grid()) else {
            let (start, end) = self.window(now, None);
            return Updated { at: now, start, end, units: 0, set_back: false };
        };
        let units = count.units.min(self.most_units());
        if count.stamp > now.after(MAX_SKEW) {
            // The count is kept: in the present window, or with its own window moved.
            let own = count.start.0.saturating_sub(count.stamp.0 - now.0);
            let (start, end) = self.window(now, Some(Timestamp(own)));
            return Updated { at: now, start, end, units, set_back: true };
        }
        let at = now.max(count.stamp);
        let (start, end) = self.window(at, Some(count.start));
        Updated { at, start, end, units: if start == count.start { units } else { 0 }, set_back: false }
    }

    /// The window that `at` lies in; `own` is the start of the state's window.
    fn window(&self, at: Timestamp, own: Option<Timestamp>) -> (Timestamp, Timestamp) {
        let period = self.rate.period();
        match &self.align {
            Align::Clock => {
                let start = Timestamp(at.0 - at.0 % period.0);
                (start, start.after(period))
            }
            Align::FirstRequest => {
                let start = own.filter(|own| at.0 - own.0 < period.0).unwrap_or(at);
                (start, start.after(period))
            }
            Align::Calendar(calendar) => calendar.window(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::CalendarUnit;

    fn window(units: u64, period: u64, align: Align) -> Window {
        Window::new(Rate::new(units, Micros(period)).unwrap(), align).unwrap()
    }

    fn count(step: &Step<Count>) -> Count {
        step.next.unwrap()
    }

    #[test]
    fn windows_start_at_whole_periods() {
        let window = window(3, 60_000_000, Align::Clock);
        let mut state = None;
        for _ in 0..3 {
            let step = window.step(state.as_ref(), Timestamp(59_000_000), 1);
            assert!(step.decision.allowed);
            state = Some(count(&step));
        }
        let denied = window.step(state.as_ref(), Timestamp(59_000_000), 1).decision;
        assert_eq!((denied.allowed, denied.retry_after), (false, Some(Micros::SECOND)));
        let next = window.step(state.as_ref(), Timestamp(60_000_000), 3).decision;
        assert_eq!((next.allowed, next.remaining), (true, 0));
    }

    #[test]
    fn the_first_request_opens_a_window() {
        let window = window(2, 1_000, Align::FirstRequest);
        let first = count(&window.step(None, Timestamp(700), 2));
        assert_eq!(window.step(Some(&first), Timestamp(1_699), 1).decision.retry_after, Some(Micros(1)));
        let second = count(&window.step(Some(&first), Timestamp(5_000), 1));
        assert_eq!(second.start, Timestamp(5_000));
    }

    #[test]
    fn a_count_survives_a_change_of_the_limit_but_not_of_the_period() {
        let wide = window(10, 1_000, Align::Clock);
        let state = count(&wide.step(None, Timestamp(5_100), 8));
        let narrow = window(5, 1_000, Align::Clock).step(Some(&state), Timestamp(5_200), 0).decision;
        assert_eq!((narrow.remaining, narrow.reset_after), (0, Micros(800)));
        let other = window(5, 5_000, Align::Clock).step(Some(&state), Timestamp(5_200), 0).decision;
        assert_eq!(other.remaining, 5);
        let aligned = window(10, 1_000, Align::FirstRequest).step(Some(&state), Timestamp(5_200), 0).decision;
        assert_eq!(aligned.remaining, 10);
    }

    #[test]
    fn a_clock_set_back_keeps_the_count() {
        for align in [Align::Clock, Align::FirstRequest] {
            let window = window(2, 10_000_000, align);
            let state = count(&window.step(None, Timestamp(95_000_000), 2));
            let denied = window.step(Some(&state), Timestamp(41_000_000), 1);
            assert!(!denied.decision.allowed);
            assert_eq!(count(&denied).stamp, Timestamp(41_000_000));
            assert!(window.step(Some(&count(&denied)), Timestamp(51_000_000), 1).decision.allowed);
        }
    }

    #[test]
    fn calendar_months_have_their_own_lengths() {
        let calendar = Calendar::new(CalendarUnit::Month, "Europe/Berlin").unwrap();
        let window = window(1, 30 * 86_400_000_000, Align::Calendar(calendar));
        // 2026-02-10 12:00:00 in UTC; the month ends on 2026-03-01 at 00:00 in Berlin.
        let now = Timestamp(1_770_724_800_000_000);
        let state = count(&window.step(None, now, 1));
        let denied = window.step(Some(&state), now, 1).decision;
        assert_eq!(denied.retry_after, Some(Micros(1_772_319_600_000_000 - now.0)));
    }
}
