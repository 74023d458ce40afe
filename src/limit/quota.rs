//! A quota: an algorithm with its numbers.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use super::bucket::{Bucket, Debt};
use super::decision::Step;
use super::interval::{Interval, Shortfall};
use super::rate::{QuotaError, Rate};
use super::sliding_log::{Log, SlidingLog};
use super::sliding_window::{PartCounts, SlidingWindow};
use super::slots::{Holder, Leases, Slots};
use super::window::{Align, Count, Window};
use crate::time::{Micros, Timestamp};

/// The algorithms, as names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A full bucket that refills.
    #[default]
    TokenBucket,
    /// Even spacing with a tolerance.
    Gcra,
    /// A count for each stretch of time.
    FixedWindow,
    /// Every admitted request of the last period.
    SlidingLog,
    /// Counts of the parts of the last period.
    SlidingWindow,
    /// A queue that drains at a steady rate; who waits in it is delayed.
    LeakyBucket,
    /// So many at once.
    Concurrency,
}

impl Algorithm {
    /// Every algorithm, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::TokenBucket,
        Self::Gcra,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::LeakyBucket,
        Self::Concurrency,
    ];

    /// The name in the configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
            Self::SlidingWindow => "sliding_window",
            Self::LeakyBucket => "leaky_bucket",
            Self::Concurrency => "concurrency",
        }
    }
}

/// An algorithm with its numbers, which are right by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Capacity `limit`, refilled smoothly.
    TokenBucket(Bucket),
    /// Capacity `limit`, refilled at intervals.
    IntervalBucket(Interval),
    /// `limit` = tolerated burst + 1, then one each T.
    Gcra(Bucket),
    /// N for each stretch of time.
    FixedWindow(Window),
    /// N in any stretch of time.
    SlidingLog(SlidingLog),
    /// About N in any stretch of time.
    SlidingWindow(SlidingWindow),
    /// `limit` = places in the queue + 1; one leaves it each T.
    LeakyBucket(Bucket),
    /// N at once.
    Concurrency(Slots),
}

/// What an algorithm remembers of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a token bucket that refills smoothly, a GCRA, or a leaky bucket.
    Debt(Debt),
    /// Of a token bucket that refills at intervals.
    Missing(Shortfall),
    /// Of a fixed window.
    Count(Count),
    /// Of a sliding log.
    Log(Box<Log>),
    /// Of a sliding window.
    Parts(Box<PartCounts>),
    /// Of a concurrency limit.
    Leases(Box<Leases>),
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

    /// A token bucket that holds `burst` tokens and gets the units of `rate` at once, each period.
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

    /// A log that admits the units of every rate in any stretch of its period, wherever that begins.
    ///
    /// # Errors
    /// No rate or too many, or numbers that a log can't count.
    pub fn sliding_log(rates: &[Rate]) -> Result<Self, QuotaError> {
        Ok(Self::SlidingLog(SlidingLog::new(rates)?))
    }

    /// Counters of `buckets` parts of the period; the oldest counts by the share that is still inside.
    ///
    /// # Errors
    /// Parts that are no whole microseconds, or numbers that can't be counted exactly.
    pub fn sliding_window(rate: Rate, buckets: u64) -> Result<Self, QuotaError> {
        Ok(Self::SlidingWindow(SlidingWindow::new(rate, buckets)?))
    }

    /// A queue of `queue` places that drains at `rate`.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn leaky_bucket(rate: Rate, queue: u64) -> Result<Self, QuotaError> {
        Ok(Self::LeakyBucket(Bucket::new(rate, queue.saturating_add(1))?))
    }

    /// At most `max_in_flight` units at once, each for as long as its holder renews it within `lease`.
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

    /// The most that could ever be available at once.
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

    /// What the IETF draft's `q` and `w` say: what can be had at once, and the seconds in which it comes
    /// back. Where that is no whole number of seconds: the rate itself, over at least a second.
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
            // Nobody knows when a slot comes free.
            Self::Concurrency(slots) => (slots.limit(), 1),
        }
    }

    /// The share of one of `instances` proxies when each has to decide alone.
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

    /// The numbers as the script takes them; those of calendar windows depend on the time.
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

    /// Decides a request of `cost` units at `now`; pure. `holder` takes the slot where there is one to take.
    #[must_use]
    pub fn step(&self, state: Option<&State>, now: Timestamp, cost: u64, holder: Holder) -> Step {
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) => bucket.step(debt(state), now, cost),
            Self::LeakyBucket(bucket) => bucket.queue(debt(state), now, cost),
            Self::IntervalBucket(interval) => interval.step(missing(state), now, cost),
            Self::FixedWindow(window) => window.step(count(state), now, cost),
            Self::SlidingLog(it) => it.step(log(state), now, cost).into(),
            Self::SlidingWindow(it) => it.step(parts(state), now, cost).into(),
            Self::Concurrency(slots) => slots.step(leases(state), now, cost, holder),
        }
    }

    /// Gives back the slot of `holder`, where there are slots.
    #[must_use]
    pub fn give_back(&self, state: Option<&State>, now: Timestamp, holder: Holder) -> Step {
        match self {
            Self::Concurrency(slots) => slots.give_back(leases(state), now, holder),
            _ => self.step(state, now, 0, holder),
        }
    }

    /// Gives back `cost` units that `holder` took at `taken`: exactly those, or fewer where time has brought back some
    /// of them already, so that never too much returns.
    #[must_use]
    pub fn refund(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
        holder: Holder,
    ) -> Step {
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => {
                it.refund(debt(state), now, cost, taken)
            }
            Self::IntervalBucket(it) => it.refund(missing(state), now, cost, taken),
            Self::FixedWindow(it) => it.refund(count(state), now, cost, taken),
            Self::SlidingLog(it) => it.refund(log(state), now, cost, taken).into(),
            Self::SlidingWindow(it) => it.refund(parts(state), now, cost, taken).into(),
            Self::Concurrency(_) => self.give_back(state, now, holder),
        }
    }

    /// Charges `cost` units that were taken at `taken` and could not be charged then: what has come back of them since is
    /// not charged, nor what goes beyond the limit. Slots have leases for that.
    #[must_use]
    pub fn late(&self, state: Option<&State>, now: Timestamp, cost: u64, taken: Timestamp) -> Step {
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => {
                it.late(debt(state), now, cost, taken)
            }
            Self::IntervalBucket(it) => it.late(missing(state), now, cost, taken),
            Self::FixedWindow(it) => it.late(count(state), now, cost, taken),
            Self::SlidingLog(it) => it.late(log(state), now, cost, taken).into(),
            Self::SlidingWindow(it) => it.late(parts(state), now, cost, taken).into(),
            Self::Concurrency(_) => self.step(state, now, 0, Holder::default()),
        }
    }

    /// Renews the lease of `holder`, where there are leases.
    #[must_use]
    pub fn renew(&self, state: Option<&State>, now: Timestamp, units: u64, holder: Holder) -> Step {
        match self {
            Self::Concurrency(slots) => slots.renew(leases(state), now, units, holder),
            _ => self.step(state, now, 0, holder),
        }
    }

    /// How long `state` differs from no state at all, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, state: &State, now: Timestamp) -> Micros {
        match (self, state) {
            (Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it), State::Debt(debt)) => {
                it.lifetime(debt, now)
            }
            (Self::IntervalBucket(it), State::Missing(missing)) => it.lifetime(missing, now),
            (Self::FixedWindow(it), State::Count(count)) => it.lifetime(count, now),
            (Self::SlidingLog(it), State::Log(log)) => it.lifetime(log, now),
            (Self::SlidingWindow(it), State::Parts(parts)) => it.lifetime(parts, now),
            (Self::Concurrency(it), State::Leases(leases)) => it.lifetime(leases, now),
            // A state of another algorithm is none.
            _ => Micros::ZERO,
        }
    }
}

fn debt(state: Option<&State>) -> Option<&Debt> {
    if let Some(State::Debt(debt)) = state { Some(debt) } else { None }
}

fn missing(state: Option<&State>) -> Option<&Shortfall> {
    if let Some(State::Missing(missing)) = state { Some(missing) } else { None }
}

fn count(state: Option<&State>) -> Option<&Count> {
    if let Some(State::Count(count)) = state { Some(count) } else { None }
}

fn log(state: Option<&State>) -> Option<&Log> {
    if let Some(State::Log(log)) = state { Some(log) } else { None }
}

fn parts(state: Option<&State>) -> Option<&PartCounts> {
    if let Some(State::Parts(parts)) = state { Some(parts) } else { None }
}

fn leases(state: Option<&State>) -> Option<&Leases> {
    if let Some(State::Leases(leases)) = state { Some(leases) } else { None }
}

/// Units of a rate and the seconds they take, at least one.
fn per_second(rate: Rate) -> (u64, u64) {
    let (units, period) = (rate.units(), rate.period());
    if Micros::SECOND.0.is_multiple_of(period.0) {
        return (units.saturating_mul(Micros::SECOND.0 / period.0), 1);
    }
    (units, period.ceil_secs())
}

#[cfg(test)]
mod tests;
