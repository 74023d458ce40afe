//! Sliding log: every admitted request of the last period, so that no period, wherever it starts, has
//! more than the limit.
//!
//! Twin of `lua/sliding_log.lua`. An entry that is exactly one period old has expired. Several rates share one
//! log, which covers the longest of their periods; a request passes if it fits all of them.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use super::decision::{Decision, Step};
use super::rate::{QuotaError, Rate};
use super::timeline::{DecisionTime, LONGEST_PERIOD, NewEntry, Timeline};
use crate::time::{Micros, Timestamp};

/// The log of one key: a position is a time in microseconds.
pub type Log = Timeline<45>;

/// The largest number of units that an entry can represent: totals have 19 bits.
const MOST_UNITS: u64 = (1 << 19) - 1;
/// How many rates one log may have.
const MOST_RATES: usize = 16;

/// The rates of a sliding log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    longest: Rate,
    /// The other rates, each with a shorter period and fewer units than the one before it. A rate that
    /// allows as much in less time as another in more can never decide, so it is not kept.
    shorter: Box<[Rate]>,
    /// The units by which settled costs may exceed those of the longest period.
    extra: u64,
}

/// A log as of one request.
struct View<'a> {
    log: &'a Log,
    now: Timestamp,
    present: DecisionTime,
    /// The index of the first entry that is inside the longest period.
    first: usize,
}

impl SlidingLog {
    /// A log with all of `rates`.
    ///
    /// # Errors
    /// No rate or too many, a period that is too long, or more units than an entry can represent.
    pub fn new(rates: &[Rate]) -> Result<Self, QuotaError> {
        if rates.len() > MOST_RATES {
            return Err(QuotaError::TooManyRates { most: MOST_RATES });
        }
        if rates.iter().any(|rate| rate.units() > MOST_UNITS) {
            return Err(QuotaError::TooLarge { largest: MOST_UNITS });
        }
        if rates.iter().any(|rate| rate.period().0 > LONGEST_PERIOD) {
            return Err(QuotaError::TooLong { longest: Micros(LONGEST_PERIOD) });
        }
        Self::of(rates).ok_or(QuotaError::ZeroRate)
    }

    fn of(rates: &[Rate]) -> Option<Self> {
        let mut sorted: SmallVec<[Rate; 4]> = rates.into();
        sorted.sort_by_key(|rate| (std::cmp::Reverse(rate.period()), rate.units()));
        let (&longest, others) = sorted.split_first()?;
        let mut fewest = longest.units();
        let decides = |rate: &Rate| {
            let decides = rate.units() < fewest;
            fewest = fewest.min(rate.units());
            decides
        };
        let shorter: Vec<Rate> = others.iter().copied().filter(decides).collect();
        Some(Self { longest, shorter: shorter.into(), extra: 0 })
    }

    /// The most units that can be available at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.shorter.last().unwrap_or(&self.longest).units()
    }

    /// This log, in which settled costs may exceed the limit by this number of units, as far as a log can count them.
    #[must_use]
    pub fn with_extra(self, units: u64) -> Self {
        Self { extra: units.min(MOST_UNITS.saturating_sub(self.longest.units())), ..self }
    }

    /// The most units that a log can have with settled costs.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        self.longest.units() + self.extra
    }

    /// The most entries that a state has.
    #[must_use]
    pub fn max_entries(&self) -> u64 {
        self.most_units()
    }

    /// `[N, P]` of each rate that can decide, the longest period first: the numbers in the script's order.
    #[must_use]
    pub fn numbers(&self) -> SmallVec<[u64; 8]> {
        self.rates().flat_map(|rate| [rate.units(), rate.period().0]).collect()
    }

    /// The limit as clients see it: the units available at once, and the seconds in which all of them come back.
    #[must_use]
    pub fn advertised(&self) -> (u64, u64) {
        let limit = self.limit();
        // A rate of at least twice the units allows the limit a second time, so it is not the one to wait for.
        let holds_back = self.rates().find(|rate| rate.units() < 2 * limit).unwrap_or(&self.longest);
        (limit, holds_back.period().ceil_secs())
    }

    /// The share of one of `instances` proxies, in whole units of each rate; at least one unit in a period that can be
    /// counted.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        let share = |rate: &Rate| {
            let share = rate.whole_share(instances);
            if share.period().0 <= LONGEST_PERIOD { share } else { rate.divided_by(instances) }
        };
        let shares: SmallVec<[Rate; 4]> = self.rates().map(share).collect();
        Self::of(&shares).unwrap_or_else(|| self.clone())
    }

    /// Decides a request of `cost` units at `now`, and returns the new state if it has changed. A cost of
    /// zero changes nothing.
    #[must_use]
    pub fn step(&self, state: Option<&Log>, now: Timestamp, cost: u64) -> Step<Log> {
        let nothing = Log::empty(now);
        let view = self.view(state.unwrap_or(&nothing), now);
        let remaining = self.remaining(&view);
        if cost <= remaining {
            let decision =
                Decision::allowed(self.limit(), remaining - cost, self.until_fits(&view, self.limit(), cost));
            return Step { decision, next: (cost > 0).then(|| view.charged(cost)) };
        }
        let decision = Decision {
            allowed: false,
            retry_after: (cost <= self.limit()).then(|| self.until_fits(&view, cost, 0)),
            ..Decision::allowed(self.limit(), remaining, self.until_fits(&view, self.limit(), 0))
        };
        Step { decision, next: view.present.set_back.then(|| view.log.moved(view.present)) }
    }

    /// Refunds `cost` units that were taken at `taken`, if they still count.
    #[must_use]
    pub fn refund(&self, state: Option<&Log>, now: Timestamp, cost: u64, taken: Timestamp) -> Step<Log> {
        let next = state.and_then(|log| {
            let view = self.view(log, now);
            let age = log.stamp.0.checked_sub(taken.0)?;
            let (line, gap) = log.refunded(view.first, age, cost)?;
            Some(Log { stamp: Timestamp(view.present.stamp.0 - gap), ..line })
        });
        Step { decision: self.step(next.as_ref().or(state), now, 0).decision, next }
    }

    /// Charges `cost` units that were taken at `taken`, if they still count, and no more than a log can have.
    #[must_use]
    pub fn charge_late(&self, state: Option<&Log>, now: Timestamp, cost: u64, taken: Timestamp) -> Step<Log> {
        let nothing = Log::empty(now);
        let view = self.view(state.unwrap_or(&nothing), now);
        let taken = taken.min(view.present.at);
        let units = cost.min(self.most_units().saturating_sub(view.log.spent_from(view.first)));
        let counts = units > 0 && view.present.at.since(taken) < self.longest.period();
        let next = counts.then(|| view.charged_late(units, taken));
        Step { decision: self.step(next.as_ref().or(state), now, 0).decision, next }
    }

    /// A log with one entry, which leaves `left` units, and all of them after `reset_after`; none if it would be empty.
    /// Of several rates it is the shortest whose period is not shorter.
    pub(super) fn seed(&self, left: u64, reset_after: Micros, now: Timestamp) -> Option<Log> {
        let lasts = |rate: &&Rate| rate.period() >= reset_after;
        let rate = self.shorter.iter().rev().find(lasts).unwrap_or(&self.longest);
        let units = rate.units().saturating_sub(left);
        let made = Timestamp(now.after(reset_after).0.saturating_sub(rate.period().0)).min(now);
        (units > 0)
            .then(|| Log::empty(made).charged(0, NewEntry { at: made, position: made.0, ahead: 0, units }))
    }

    /// The longest period of its rates.
    pub(super) fn longest_period(&self) -> Micros {
        self.longest.period()
    }

    /// How long `log` differs from no state, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, log: &Log, now: Timestamp) -> Micros {
        if log.len() == 0 {
            return Micros::ZERO;
        }
        log.stamp.after(self.longest.period()).since(now)
    }

    pub(super) fn rates(&self) -> impl Iterator<Item = &Rate> {
        std::iter::once(&self.longest).chain(&self.shorter)
    }

    fn view<'a>(&self, log: &'a Log, now: Timestamp) -> View<'a> {
        let present = log.present(now, NonZeroU64::MIN);
        View { log, now, present, first: log.first_younger(present.reach(self.longest.period())) }
    }

    fn remaining(&self, view: &View<'_>) -> u64 {
        let left = |rate: &Rate, first| rate.units().saturating_sub(view.log.spent_from(first));
        let of_longest = left(&self.longest, view.first);
        let reach = |rate: &Rate| view.log.first_younger(view.present.reach(rate.period()));
        self.shorter.iter().map(|rate| left(rate, reach(rate))).fold(of_longest, u64::min)
    }

    /// Time until `units`, at most the limit, would fit if nothing else is spent after the `charge` of this
    /// request: the longest of all rates. `remaining` is back at the limit when so much would fit.
    fn until_fits(&self, view: &View<'_>, units: u64, charge: u64) -> Micros {
        let waits = self.rates().map(|rate| view.until_within(rate.period(), rate.units() - units, charge));
        waits.max().unwrap_or_default()
    }
}

impl View<'_> {
    /// Time until no more than `room` units are inside `period`.
    fn until_within(&self, period: Micros, room: u64, charge: u64) -> Micros {
        if self.log.spent_from(self.first) + charge <= room {
            return Micros::ZERO;
        }
        // The last entry that has to expire, or else the charge itself. It may have left a shorter period already; then
        // another rate determines the wait.
        let made = |index| self.present.stamp.after(period).0.saturating_sub(self.log.age(index));
        let out = match room.checked_sub(charge) {
            Some(left) => Timestamp(made(self.log.first_before(self.first, left))),
            None => self.present.at.after(period),
        };
        out.since(self.now)
    }

    fn charged(&self, cost: u64) -> Log {
        let at = self.present.at;
        let ahead = at.0 - self.present.stamp.0;
        self.log.charged(self.first, NewEntry { at, position: at.0, ahead, units: cost })
    }

    /// The log with `units` at the position of their time.
    fn charged_late(&self, units: u64, taken: Timestamp) -> Log {
        let stamp = self.present.stamp;
        if self.first == self.log.len() || taken >= stamp {
            let ahead = taken.since(stamp).0;
            return self.log.charged(self.first, NewEntry { at: taken, position: taken.0, ahead, units });
        }
        Log { stamp, ..self.log.inserted(self.first, stamp.since(taken).0, units) }
    }
}

#[cfg(test)]
mod tests;
