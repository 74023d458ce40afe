//! A quota: an algorithm with its numbers.

mod extra;

use std::num::NonZeroU64;

use smallvec::SmallVec;

use super::algorithm::Algorithm;
use super::bucket::Bucket;
use super::decision::{Decision, Step, StoreView};
use super::interval::Interval;
use super::rate::{QuotaError, Rate};
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::slots::{Holder, Slots};
use super::state::State;
use super::window::{Align, Window};
use crate::time::{Micros, Timestamp};

/// An algorithm with its numbers, which the constructors check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Capacity `limit`, refilled continuously.
    TokenBucket(Bucket),
    /// Capacity `limit`, refilled at intervals.
    IntervalBucket(Interval),
    /// `limit` = tolerated burst + 1, then one request per T.
    Gcra(Bucket),
    /// N requests per window.
    FixedWindow(Window),
    /// N requests in any period, wherever it starts.
    SlidingLog(SlidingLog),
    /// About N requests in any period.
    SlidingWindow(SlidingWindow),
    /// `limit` = positions in the queue + 1; one request leaves it per T.
    LeakyBucket(Bucket),
    /// N concurrent requests.
    Concurrency(Slots),
}

/// Units that were taken earlier.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// How many.
    pub units: u64,
    /// When, by the clock of the state.
    pub at: Timestamp,
    /// The holder of a slot; only concurrency limits use it.
    pub holder: Holder,
}

impl Quota {
    /// The letters of all algorithms; see [`Quota::letter`].
    pub const LETTERS: [u8; 8] = *b"bigwlsqc";

    /// A token bucket that holds `burst` tokens and is refilled at `rate`.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn token_bucket(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Ok(Self::TokenBucket(Bucket::new(rate, burst)?))
    }

    /// A token bucket that holds `burst` tokens and gets the units of `rate` all at once, each period.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn interval_bucket(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Ok(Self::IntervalBucket(Interval::new(rate, burst)?))
    }

    /// A GCRA that spaces requests evenly at `rate` and tolerates `burst` of them early.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn gcra(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Ok(Self::Gcra(Bucket::new(rate, burst.saturating_add(1))?))
    }

    /// Windows that hold the units of `rate`.
    ///
    /// # Errors
    /// Numbers that can't be counted exactly.
    pub fn fixed_window(rate: Rate, align: Align) -> Result<Self, QuotaError> {
        Ok(Self::FixedWindow(Window::new(rate, align)?))
    }

    /// A log that admits the units of every rate in any period of it, wherever that starts.
    ///
    /// # Errors
    /// No rate or too many, or numbers that a log can't count.
    pub fn sliding_log(rates: &[Rate]) -> Result<Self, QuotaError> {
        Ok(Self::SlidingLog(SlidingLog::new(rates)?))
    }

    /// Counters of `buckets` parts of the period; the oldest part is weighted by how much of it is still inside.
    ///
    /// # Errors
    /// Parts that are no whole microseconds, or numbers that can't be counted exactly.
    pub fn sliding_window(rate: Rate, buckets: u64) -> Result<Self, QuotaError> {
        Ok(Self::SlidingWindow(SlidingWindow::new(rate, buckets)?))
    }

    /// A queue of `queue` positions that drains at `rate`.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn leaky_bucket(rate: Rate, queue: u64) -> Result<Self, QuotaError> {
        Ok(Self::LeakyBucket(Bucket::new(rate, queue.saturating_add(1))?))
    }

    /// At most `max_in_flight` units at once; a holder that does not renew within `lease` loses its units.
    ///
    /// # Errors
    /// Numbers that are zero or too large.
    pub fn concurrency(max_in_flight: u64, lease: Micros) -> Result<Self, QuotaError> {
        Ok(Self::Concurrency(Slots::new(max_in_flight, lease)?))
    }

    /// Which algorithm this is.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::TokenBucket(_) | Self::IntervalBucket(_) => Algorithm::TokenBucket,
            Self::Gcra(_) => Algorithm::Gcra,
            Self::FixedWindow(_) => Algorithm::FixedWindow,
            Self::SlidingLog(_) => Algorithm::SlidingLog,
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::LeakyBucket(_) => Algorithm::LeakyBucket,
            Self::Concurrency(_) => Algorithm::Concurrency,
        }
    }

    /// The last part of a stored key: a letter for the algorithm and the version of its state layout, so
    /// that an old state is never misread. A layout that changes takes a new letter.
    #[must_use]
    pub fn letter(&self) -> u8 {
        match self {
            Self::TokenBucket(_) => b'b',
            Self::IntervalBucket(_) => b'i',
            Self::Gcra(_) => b'g',
            Self::FixedWindow(_) => b'w',
            Self::SlidingLog(_) => b'l',
            Self::SlidingWindow(_) => b's',
            Self::LeakyBucket(_) => b'q',
            Self::Concurrency(_) => b'c',
        }
    }

    /// The most units that can ever be available at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) | Self::LeakyBucket(bucket) => bucket.limit(),
            Self::IntervalBucket(interval) => interval.limit(),
            Self::FixedWindow(window) => window.limit(),
            Self::SlidingLog(log) => log.limit(),
            Self::SlidingWindow(window) => window.limit(),
            Self::Concurrency(slots) => slots.limit(),
        }
    }

    /// The most units that a charge can take at once: the limit without the slots that are reserved for other requests.
    #[must_use]
    pub fn usable(&self) -> u64 {
        if let Self::Concurrency(slots) = self { slots.usable() } else { self.limit() }
    }

    /// The bucket of a token bucket that refills continuously, or of a GCRA.
    #[must_use]
    pub fn bucket(&self) -> Option<&Bucket> {
        if let Self::TokenBucket(bucket) | Self::Gcra(bucket) = self { Some(bucket) } else { None }
    }

    /// In which time so many units come back, of a limit that refills at a constant rate.
    #[must_use]
    pub fn time_of(&self, units: u64) -> Option<Micros> {
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) | Self::LeakyBucket(bucket) => {
                Some(bucket.time_of(units))
            }
            _ => None,
        }
    }

    /// `q` and `w` of the IETF draft: the units available at once, and the seconds in which they come back. If these are
    /// no whole number: the rate itself, over at least a second.
    #[must_use]
    pub fn advertised(&self) -> (u64, u64) {
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) | Self::LeakyBucket(bucket) => {
                let [drain, unit, limit] = bucket.numbers();
                let second = drain.saturating_mul(Micros::SECOND.0);
                if (limit * unit).is_multiple_of(second) {
                    return (limit, limit * unit / second);
                }
                per_second(bucket.rate())
            }
            Self::IntervalBucket(interval) => {
                let span = interval.limit().div_ceil(interval.rate().units()) * interval.rate().period().0;
                if span.is_multiple_of(Micros::SECOND.0) {
                    return (interval.limit(), span / Micros::SECOND.0);
                }
                per_second(interval.rate())
            }
            Self::FixedWindow(window) => per_second(window.rate()),
            Self::SlidingLog(log) => log.advertised(),
            Self::SlidingWindow(window) => window.advertised(),
            // The time at which a slot is released is unknown.
            Self::Concurrency(slots) => (slots.limit(), 1),
        }
    }

    /// The share of one of `instances` proxies while each decides without the store.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        match self {
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.shared_by(instances)),
            Self::IntervalBucket(interval) => Self::IntervalBucket(interval.shared_by(instances)),
            Self::Gcra(bucket) => Self::Gcra(bucket.shared_by(instances)),
            Self::FixedWindow(window) => Self::FixedWindow(window.shared_by(instances)),
            Self::SlidingLog(log) => Self::SlidingLog(log.shared_by(instances)),
            Self::SlidingWindow(window) => Self::SlidingWindow(window.shared_by(instances)),
            Self::LeakyBucket(bucket) => Self::LeakyBucket(bucket.shared_by(instances)),
            Self::Concurrency(slots) => Self::Concurrency(slots.shared_by(instances)),
        }
    }

    /// The numbers in the script's order; those of calendar windows depend on the time.
    #[must_use]
    pub fn numbers(&self, now: Timestamp) -> SmallVec<[i64; 8]> {
        let signed = |numbers: &[u64]| numbers.iter().map(|number| number.cast_signed()).collect();
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) | Self::LeakyBucket(bucket) => {
                signed(&bucket.numbers())
            }
            Self::IntervalBucket(interval) => signed(&interval.numbers()),
            Self::FixedWindow(window) => window.numbers(now),
            Self::SlidingLog(log) => signed(&log.numbers()),
            Self::SlidingWindow(window) => signed(&window.numbers()),
            Self::Concurrency(slots) => signed(&slots.numbers()),
        }
    }

    /// Decides a request of `cost` units at `now`; pure. In a concurrency limit `holder` gets the slot.
    #[must_use]
    pub fn step(&self, state: Option<&State>, now: Timestamp, cost: u64, holder: Holder) -> Step<State> {
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) => {
                it.step(state.and_then(State::as_debt), now, cost).map(State::from)
            }
            Self::LeakyBucket(it) => it.queue(state.and_then(State::as_debt), now, cost).map(State::from),
            Self::IntervalBucket(it) => {
                it.step(state.and_then(State::as_shortfall), now, cost).map(State::from)
            }
            Self::FixedWindow(it) => it.step(state.and_then(State::as_count), now, cost).map(State::from),
            Self::SlidingLog(it) => it.step(state.and_then(State::as_log), now, cost).map(State::from),
            Self::SlidingWindow(it) => it.step(state.and_then(State::as_parts), now, cost).map(State::from),
            Self::Concurrency(it) => {
                it.step(state.and_then(State::as_leases), now, cost, holder).map(State::from)
            }
        }
    }

    /// Releases the slot of `holder`; does nothing in other algorithms.
    #[must_use]
    pub fn release(&self, state: Option<&State>, now: Timestamp, holder: Holder) -> Step<State> {
        match self {
            Self::Concurrency(it) => {
                it.release(state.and_then(State::as_leases), now, holder).map(State::from)
            }
            _ => self.step(state, now, 0, holder),
        }
    }

    /// Refunds units that were taken: exactly those, or fewer if time has brought some of them back already, so that never
    /// more is refunded than still counts.
    #[must_use]
    pub fn refund(&self, state: Option<&State>, now: Timestamp, taken: Taken) -> Step<State> {
        let Taken { units, at, holder } = taken;
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => {
                it.refund(state.and_then(State::as_debt), now, units, at).map(State::from)
            }
            Self::IntervalBucket(it) => {
                it.refund(state.and_then(State::as_shortfall), now, units, at).map(State::from)
            }
            Self::FixedWindow(it) => {
                it.refund(state.and_then(State::as_count), now, units, at).map(State::from)
            }
            Self::SlidingLog(it) => it.refund(state.and_then(State::as_log), now, units, at).map(State::from),
            Self::SlidingWindow(it) => {
                it.refund(state.and_then(State::as_parts), now, units, at).map(State::from)
            }
            Self::Concurrency(_) => self.release(state, now, holder),
        }
    }

    /// Charges units that were taken earlier and could not be charged then: not what has come back of them since, nor what
    /// exceeds the limit. Slots are not charged late, since they are renewed.
    #[must_use]
    pub fn charge_late(&self, state: Option<&State>, now: Timestamp, taken: Taken) -> Step<State> {
        let Taken { units, at, holder } = taken;
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => {
                it.charge_late(state.and_then(State::as_debt), now, units, at).map(State::from)
            }
            Self::IntervalBucket(it) => {
                it.charge_late(state.and_then(State::as_shortfall), now, units, at).map(State::from)
            }
            Self::FixedWindow(it) => {
                it.charge_late(state.and_then(State::as_count), now, units, at).map(State::from)
            }
            Self::SlidingLog(it) => {
                it.charge_late(state.and_then(State::as_log), now, units, at).map(State::from)
            }
            Self::SlidingWindow(it) => {
                it.charge_late(state.and_then(State::as_parts), now, units, at).map(State::from)
            }
            Self::Concurrency(_) => self.step(state, now, 0, holder),
        }
    }

    /// Renews the lease of `holder`; does nothing in other algorithms.
    #[must_use]
    pub fn renew(&self, state: Option<&State>, now: Timestamp, units: u64, holder: Holder) -> Step<State> {
        match self {
            Self::Concurrency(it) => {
                it.renew(state.and_then(State::as_leases), now, units, holder).map(State::from)
            }
            _ => self.step(state, now, 0, holder),
        }
    }

    /// The state in this share of one of `instances` proxies, made from the decision of the store on the whole quota, and with
    /// the units that this proxy held then; see `Policy::seed`. Slots have none: their holders renew them.
    pub(super) fn seed(&self, view: &StoreView, instances: NonZeroU64, now: Timestamp) -> Option<State> {
        let Decision { remaining, reset_after, .. } = view.decision;
        if reset_after == Micros::ZERO {
            return None;
        }
        let left = (remaining / instances).saturating_add(view.held).min(self.limit());
        let spent = self.limit().saturating_sub(left);
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => {
                Some(it.seed(reset_after, view.held, now).into())
            }
            Self::IntervalBucket(it) => Some(it.seed(spent, reset_after, now).into()),
            Self::FixedWindow(it) => Some(it.seed(spent, reset_after, now).into()),
            Self::SlidingLog(it) => it.seed(left, reset_after, now).map(State::from),
            Self::SlidingWindow(it) => it.seed(spent, reset_after, now).map(State::from),
            Self::Concurrency(_) => None,
        }
    }

    /// How long `state` differs from no state at all, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, state: &State, now: Timestamp) -> Micros {
        match (self, state) {
            (Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it), State::Debt(debt)) => {
                it.lifetime(debt, now)
            }
            (Self::IntervalBucket(it), State::Shortfall(missing)) => it.lifetime(missing, now),
            (Self::FixedWindow(it), State::Count(count)) => it.lifetime(count, now),
            (Self::SlidingLog(it), State::Log(log)) => it.lifetime(log, now),
            (Self::SlidingWindow(it), State::Parts(parts)) => it.lifetime(parts, now),
            (Self::Concurrency(it), State::Leases(leases)) => it.lifetime(leases, now),
            // A state of another algorithm is the same as none.
            _ => Micros::ZERO,
        }
    }
}

/// The units of a rate and their seconds, at least one.
fn per_second(rate: Rate) -> (u64, u64) {
    let (units, period) = (rate.units(), rate.period());
    if Micros::SECOND.0.is_multiple_of(period.0) {
        return (units.saturating_mul(Micros::SECOND.0 / period.0), 1);
    }
    (units, period.ceil_secs())
}

#[cfg(test)]
mod tests;
