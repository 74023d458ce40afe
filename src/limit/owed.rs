//! What one proxy has admitted by itself and owes the store: kept by its share, and paid by late charges.
//!
//! A bucket owes what its share holds beyond what was there before: that drains first, and only then what is owed. The
//! other algorithms count by time, so it is enough to know when how much was taken; a period is kept in a hundred
//! steps.

use smallvec::SmallVec;

use super::decision::Decision;
use super::quota::Quota;
use super::window::Align;
use crate::time::{Micros, Timestamp};

/// How many steps a period is kept in: what is owed of a key is bounded, and late by a hundredth of it at most.
const STEPS: u64 = 100;

/// What is owed of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwedCharges {
    /// Of a bucket.
    Account(OwedBucket),
    /// Of what counts by time: when the last units of each step were taken, and how many.
    Steps(Vec<(Timestamp, u64)>),
}

/// A debt in ticks, or missing tokens; in the terms of the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwedBucket {
    /// When it was so; of a bucket that refills at intervals the last tick.
    as_of: Timestamp,
    /// What was there before, which comes back first.
    before: u64,
    /// What is owed.
    owed: u64,
}

/// Units to be charged, and when they were taken.
pub type LateCharges = SmallVec<[(u64, Timestamp); 2]>;

impl OwedCharges {
    /// What is owed after the first `cost` units, to a store that counts by `whole`; `said` is what the share said when
    /// it admitted them.
    #[must_use]
    pub fn new(share: &Quota, whole: &Quota, said: &Decision, cost: u64, now: Timestamp) -> Self {
        match OwedBucket::new(share, whole, said, cost, now) {
            Some(account) => Self::Account(account),
            None => Self::Steps(vec![(taken(share, whole, said, now), cost)]),
        }
    }

    /// Adds what was admitted after that.
    pub fn add(&mut self, share: &Quota, whole: &Quota, said: &Decision, cost: u64, now: Timestamp) {
        match self {
            Self::Account(account) => {
                account.settle(share, now);
                let Some(anew) = OwedBucket::new(share, whole, said, cost, now) else { return };
                if account.owed > 0 {
                    // Another worker may have admitted a unit earlier and write it down later: it was not there before.
                    account.before = account.before.min(anew.before);
                    account.owe(ticks(share, cost), share, whole);
                } else {
                    *account = anew;
                }
            }
            Self::Steps(steps) => {
                steps.retain(|(at, _)| still_counts(share, *at, now));
                let taken = taken(share, whole, said, now);
                push(steps, share, (taken, cost));
            }
        }
    }

    /// Minds `cost` units that the share has admitted and that are not owed, because the store may have them.
    pub fn pass(&mut self, share: &Quota, cost: u64, now: Timestamp) {
        if let Self::Account(account) = self {
            account.settle(share, now);
            account.before = account.before.saturating_add(ticks(share, cost));
        }
    }

    /// Takes back what could not be paid, and was admitted before this.
    pub fn join(&mut self, mut earlier: Self, share: &Quota) {
        match (self, &mut earlier) {
            (Self::Account(account), Self::Account(earlier)) => {
                earlier.settle(share, account.as_of);
                // What was there before this is that, or part of it.
                account.before = account.before.saturating_sub(earlier.owed);
                account.owed = account.owed.saturating_add(earlier.owed);
            }
            (Self::Steps(steps), Self::Steps(earlier)) => {
                let later = std::mem::replace(steps, std::mem::take(earlier));
                for step in later {
                    push(steps, share, step);
                }
            }
            // Of one key all is owed by one algorithm.
            _ => {}
        }
    }

    /// Lets come back what has by `now`.
    pub fn settle(&mut self, share: &Quota, now: Timestamp) {
        if let Self::Account(account) = self {
            account.settle(share, now);
        }
    }

    /// Says the same in the terms of another share: the limit has got other numbers.
    pub fn convert(&mut self, from: &Quota, to: &Quota) {
        if let Self::Account(account) = self {
            let (from, to) = (ticks(from, 1), ticks(to, 1));
            let converted = |debt: u64| {
                let debt = (u128::from(debt) * u128::from(to)).div_ceil(u128::from(from));
                u64::try_from(debt).unwrap_or(u64::MAX)
            };
            (account.before, account.owed) = (converted(account.before), converted(account.owed));
        }
    }

    /// Units that it is about, those begun included.
    #[must_use]
    pub fn units(&self, share: &Quota) -> u64 {
        match self {
            Self::Account(account) => account.owed.div_ceil(ticks(share, 1)),
            Self::Steps(steps) => steps.iter().map(|(_, units)| units).sum(),
        }
    }

    /// The late charges, at `now`, that pay it to a store which counts by `whole`.
    #[must_use]
    pub fn late(mut self, share: &Quota, whole: &Quota, now: Timestamp) -> LateCharges {
        self.settle(share, now);
        let units = self.units(share);
        match self {
            Self::Steps(steps) => {
                let left = steps.into_iter().filter(|(at, _)| still_counts(share, *at, now));
                left.map(|(at, units)| (units, at)).collect()
            }
            Self::Account(_) if units == 0 => LateCharges::new(),
            Self::Account(account) => {
                let age = account.age(units, share, whole, now);
                std::iter::once((units, Timestamp(now.0.saturating_sub(age)))).collect()
            }
        }
    }
}

impl OwedBucket {
    fn new(share: &Quota, whole: &Quota, said: &Decision, cost: u64, now: Timestamp) -> Option<Self> {
        let taken = ticks(share, cost.min(said.limit));
        let mut account = match share {
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
                let [drain, ..] = it.numbers();
                let before = said.reset_after.0.saturating_mul(drain).saturating_sub(taken);
                Self { as_of: now, before, owed: 0 }
            }
            Quota::IntervalBucket(it) => {
                let [units, period, limit] = it.numbers();
                let missing = limit.saturating_sub(said.remaining);
                let until_back = Micros(missing.div_ceil(units).saturating_mul(period));
                let as_of = Timestamp(now.after(said.reset_after).0.saturating_sub(until_back.0)).min(now);
                Self { as_of, before: missing.saturating_sub(taken), owed: 0 }
            }
            _ => return None,
        };
        account.owe(ticks(share, cost), share, whole);
        Some(account)
    }

    /// Adds to what is owed. All together is never more than the limit: what is charged for an answer takes of it what
    /// is there, and what the store would not have charged must not keep it from filling up.
    fn owe(&mut self, more: u64, share: &Quota, whole: &Quota) {
        let rounding = match share {
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => it.numbers()[0],
            _ => 0,
        };
        let most = ticks(share, whole.limit()).saturating_add(rounding).saturating_sub(self.before);
        self.owed = self.owed.saturating_add(more).min(most.max(self.owed));
    }

    /// Lets come back what has by `now`: first what was there before.
    fn settle(&mut self, share: &Quota, now: Timestamp) {
        let passed = now.since(self.as_of).0;
        let back = match share {
            Quota::IntervalBucket(it) => {
                let [units, period, _] = it.numbers();
                self.as_of = self.as_of.after(Micros(passed / period * period));
                (passed / period).saturating_mul(units)
            }
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
                let [drain, ..] = it.numbers();
                self.as_of = self.as_of.max(now);
                passed.saturating_mul(drain)
            }
            _ => 0,
        };
        self.owed = self.owed.saturating_sub(back.saturating_sub(self.before));
        self.before = self.before.saturating_sub(back);
    }

    /// How long ago, in microseconds, so many `units` were taken, of which this is left; of a bucket that refills at
    /// intervals, how long ago its grid had a tick.
    fn age(&self, units: u64, share: &Quota, whole: &Quota, now: Timestamp) -> u64 {
        match whole {
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
                let [drain, unit, _] = it.numbers();
                let one = u128::from(ticks(share, 1));
                let back = (u128::from(units) * one).saturating_sub(u128::from(self.owed));
                // A fraction of a unit, by the whole rate.
                u64::try_from(back * u128::from(unit) / (one * u128::from(drain))).unwrap_or(0)
            }
            Quota::IntervalBucket(it) => {
                let [_, period, _] = it.numbers();
                now.since(self.as_of).0 % period
            }
            _ => 0,
        }
    }
}

/// Adds units to those of their step, or as the next one.
fn push(steps: &mut Vec<(Timestamp, u64)>, share: &Quota, (taken, cost): (Timestamp, u64)) {
    match steps.last_mut() {
        Some((at, units)) if is_one_step(share, *at, taken) => {
            (*at, *units) = (taken, units.saturating_add(cost));
        }
        _ => steps.push((taken, cost)),
    }
}

/// So many units in ticks, where there are ticks.
fn ticks(share: &Quota, units: u64) -> u64 {
    match share {
        Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
            let [_, unit, _] = it.numbers();
            units.saturating_mul(unit)
        }
        _ => units,
    }
}

/// When units count as taken that are admitted now. Where a request opens the window, it is with that request, if no other
/// proxy can have opened another one.
fn taken(share: &Quota, whole: &Quota, said: &Decision, now: Timestamp) -> Timestamp {
    match share {
        Quota::FixedWindow(it) if *it.align() == Align::FirstRequest && share == whole => {
            Timestamp(now.after(said.reset_after).0.saturating_sub(span(share))).min(now)
        }
        _ => now,
    }
}

/// Whether units that were taken at `at` can still count at `now`.
fn still_counts(share: &Quota, at: Timestamp, now: Timestamp) -> bool {
    match share {
        Quota::FixedWindow(it) if *it.align() != Align::FirstRequest => it.is_one_window(at, now),
        _ => now.since(at).0 < span(share),
    }
}

/// Whether units that were taken at these times are kept together.
fn is_one_step(share: &Quota, at: Timestamp, now: Timestamp) -> bool {
    match share {
        Quota::FixedWindow(it) if *it.align() != Align::FirstRequest => it.is_one_window(at, now),
        Quota::SlidingWindow(it) => {
            let [width, buckets] = it.parts_of_period();
            let step = width.saturating_mul(buckets.div_ceil(STEPS));
            at.0 / step == now.0 / step
        }
        _ => {
            let step = (span(share) / STEPS).max(1);
            at.0 / step == now.0 / step
        }
    }
}

/// How long units count, in microseconds.
fn span(share: &Quota) -> u64 {
    match share {
        Quota::FixedWindow(it) => it.rate().period().0,
        Quota::SlidingLog(it) => it.longest().0,
        Quota::SlidingWindow(it) => {
            let [width, buckets] = it.parts_of_period();
            width.saturating_mul(buckets + 1)
        }
        _ => 0,
    }
}
