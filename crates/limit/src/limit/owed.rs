//! Units that one proxy has admitted without the store and owes it: counted by its share, and paid by late charges.
//!
//! A bucket owes what its share holds beyond its level before the outage; that level drains first, and only then the debt.
//! The other algorithms count by time, so for them a list of units and their times is enough, with a resolution of a
//! hundredth of the period.

use smallvec::SmallVec;

use super::decision::Decision;
use super::quota::Quota;
use super::window::Align;
use crate::time::{Micros, Timestamp};

/// How many steps a period has: this bounds the memory of a key, and each step counts late by a hundredth of the period at
/// most.
const STEPS: u64 = 100;

/// The debt of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwedCharges {
    /// The debt of a bucket.
    Bucket(OwedBucket),
    /// The debt of an algorithm that counts by time: when the last units of each step were taken, and how many.
    Steps(Vec<(Timestamp, u64)>),
}

/// The debt of a bucket, in ticks or missing tokens of the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwedBucket {
    /// The time of these numbers; of a bucket that refills at intervals its last tick.
    as_of: Timestamp,
    /// The level of the bucket before, which drains first.
    before: u64,
    /// The units owed.
    owed: u64,
}

/// Units that a share has admitted.
#[derive(Clone, Copy, Debug)]
pub struct Admitted<'a> {
    /// The share that has admitted them.
    pub share: &'a Quota,
    /// The quota that the store counts by.
    pub whole: &'a Quota,
    /// The decision of the share.
    pub decision: &'a Decision,
    /// How many units the share has taken.
    pub taken: u64,
    /// How many of them are owed.
    pub cost: u64,
    /// When they were admitted.
    pub at: Timestamp,
    /// Whether they were charged without asking, and may exceed the limit.
    pub is_extra: bool,
}

/// Units to charge, and when they were taken.
pub type LateCharges = SmallVec<[(u64, Timestamp); 2]>;

impl OwedCharges {
    /// The debt after the first units of a key.
    #[must_use]
    pub fn new(admitted: Admitted<'_>) -> Self {
        match OwedBucket::new(admitted) {
            Some(bucket) => Self::Bucket(bucket),
            None => Self::Steps(vec![(admitted.counts_from(), admitted.cost)]),
        }
    }

    /// Adds units that were admitted later.
    pub fn add(&mut self, admitted: Admitted<'_>) {
        let Admitted { share, whole, cost, at, is_extra, .. } = admitted;
        match self {
            Self::Bucket(bucket) => {
                bucket.update(share, at);
                let Some(mut new) = OwedBucket::new(admitted) else { return };
                if is_extra {
                    // A decision on a bucket that exceeds its limit does not tell its exact level.
                    new.before = bucket.before.min(new.before);
                }
                if bucket.owed > 0 {
                    // Another worker may have admitted units earlier and record them later: these were not in the bucket before.
                    bucket.before = bucket.before.min(new.before);
                    bucket.owe(ticks(share, cost), share, whole);
                } else {
                    *bucket = new;
                }
            }
            Self::Steps(steps) => {
                steps.retain(|(taken, _)| still_counts(share, *taken, at));
                push(steps, share, (admitted.counts_from(), cost));
            }
        }
    }

    /// Counts `cost` units that the share has admitted and that are not owed, since the store may have charged them.
    pub fn add_unowed(&mut self, share: &Quota, cost: u64, now: Timestamp) {
        if let Self::Bucket(bucket) = self {
            bucket.update(share, now);
            bucket.before = bucket.before.saturating_add(ticks(share, cost));
        }
    }

    /// Adds a debt that could not be paid, and that is older than this one.
    pub fn merge(&mut self, mut earlier: Self, share: &Quota) {
        match (self, &mut earlier) {
            (Self::Bucket(bucket), Self::Bucket(earlier)) => {
                earlier.update(share, bucket.as_of);
                // What was in the bucket before includes the earlier debt.
                bucket.before = bucket.before.saturating_sub(earlier.owed);
                bucket.owed = bucket.owed.saturating_add(earlier.owed);
            }
            (Self::Steps(steps), Self::Steps(earlier)) => {
                let later = std::mem::replace(steps, std::mem::take(earlier));
                for step in later {
                    push(steps, share, step);
                }
            }
            // A key is always counted by the same algorithm, which is part of its identity.
            _ => {}
        }
    }

    /// Subtracts the units that have drained by `now`.
    pub fn update(&mut self, share: &Quota, now: Timestamp) {
        if let Self::Bucket(bucket) = self {
            bucket.update(share, now);
        }
    }

    /// Converts the debt to another share, after the numbers of the limit have changed.
    pub fn convert(&mut self, from: &Quota, to: &Quota) {
        if let Self::Bucket(bucket) = self {
            let (from, to) = (ticks(from, 1), ticks(to, 1));
            let converted = |debt: u64| {
                let debt = (u128::from(debt) * u128::from(to)).div_ceil(u128::from(from));
                // A late charge is bounded by the limit, so saturation is harmless.
                u64::try_from(debt).unwrap_or(u64::MAX)
            };
            (bucket.before, bucket.owed) = (converted(bucket.before), converted(bucket.owed));
        }
    }

    /// Owed units, rounded up.
    #[must_use]
    pub fn units(&self, share: &Quota) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.owed.div_ceil(ticks(share, 1)),
            Self::Steps(steps) => steps.iter().map(|(_, units)| units).sum(),
        }
    }

    /// The late charges at `now` that pay the debt to a store which counts by `whole`. For logs and sliding
    /// windows the newest come first: where they exceed the limit, the store drops those that expire first.
    #[must_use]
    pub fn late_charges(mut self, share: &Quota, whole: &Quota, now: Timestamp) -> LateCharges {
        self.update(share, now);
        let units = self.units(share);
        match self {
            Self::Steps(steps) => {
                let left = steps.into_iter().filter(|(at, _)| still_counts(share, *at, now));
                let mut charges: LateCharges = left.map(|(at, units)| (units, at)).collect();
                if !matches!(share, Quota::FixedWindow(_)) {
                    charges.reverse();
                }
                charges
            }
            Self::Bucket(_) if units == 0 => LateCharges::new(),
            Self::Bucket(bucket) => {
                let age = bucket.age(units, share, whole, now);
                std::iter::once((units, Timestamp(now.0.saturating_sub(age)))).collect()
            }
        }
    }
}

impl Admitted<'_> {
    /// The time at which the store counts the units: the start of the window if windows start with their first request and
    /// no other proxy can have opened one; otherwise the time of the request.
    fn counts_from(&self) -> Timestamp {
        let Self { share, decision, at, .. } = *self;
        match share {
            Quota::FixedWindow(it) if *it.align() == Align::FirstRequest && share == self.whole => {
                Timestamp(at.after(decision.reset_after).0.saturating_sub(span(share))).min(at)
            }
            _ => at,
        }
    }
}

impl OwedBucket {
    /// The debt after these units; `None` if the algorithm is no bucket.
    fn new(admitted: Admitted<'_>) -> Option<Self> {
        let Admitted { share, whole, decision, taken, cost, at: now, is_extra } = admitted;
        let taken = ticks(share, taken);
        let mut bucket = match share {
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
                let [drain, ..] = it.numbers();
                let before = decision.reset_after.0.saturating_mul(drain).saturating_sub(taken);
                Self { as_of: now, before, owed: 0 }
            }
            Quota::IntervalBucket(it) => {
                let [units, period, limit] = it.numbers();
                let missing = match decision.remaining {
                    0 if is_extra => it.missing_until(decision.reset_after).max(limit),
                    left => limit.saturating_sub(left),
                };
                let until_back = Micros(missing.div_ceil(units).saturating_mul(period));
                let as_of =
                    Timestamp(now.after(decision.reset_after).0.saturating_sub(until_back.0)).min(now);
                Self { as_of, before: missing.saturating_sub(taken), owed: 0 }
            }
            _ => return None,
        };
        bucket.owe(ticks(share, cost), share, whole);
        Some(bucket)
    }

    /// Adds to the debt; the bucket holds at most the limit, or more with settled costs. The store would not have charged more,
    /// and the excess must not delay the refill.
    fn owe(&mut self, more: u64, share: &Quota, whole: &Quota) {
        let rounding = match share {
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => it.numbers()[0],
            _ => 0,
        };
        let most = ticks(share, whole.most_units()).saturating_add(rounding).saturating_sub(self.before);
        self.owed = self.owed.saturating_add(more).min(most.max(self.owed));
    }

    /// Subtracts what has drained by `now`, first from what was in the bucket before.
    fn update(&mut self, share: &Quota, now: Timestamp) {
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

    /// How long ago, in microseconds, these whole `units` must have been taken for this debt to be left of them; of a bucket
    /// that refills at intervals, how long ago its last tick was.
    fn age(&self, units: u64, share: &Quota, whole: &Quota, now: Timestamp) -> u64 {
        match whole {
            Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
                let [drain, unit, _] = it.numbers();
                let one = u128::from(ticks(share, 1));
                let back = (u128::from(units) * one).saturating_sub(u128::from(self.owed));
                // What has drained is less than one unit, since `units` is the debt rounded up.
                let age = back * u128::from(unit) / (one * u128::from(drain));
                #[expect(clippy::expect_used, reason = "back < one, and unit / drain fits")]
                u64::try_from(age).expect("draining less than a unit takes no longer than draining one")
            }
            Quota::IntervalBucket(it) => {
                let [_, period, _] = it.numbers();
                now.since(self.as_of).0 % period
            }
            _ => 0,
        }
    }
}

/// Adds units to the last step, or as a new one.
fn push(steps: &mut Vec<(Timestamp, u64)>, share: &Quota, (taken, cost): (Timestamp, u64)) {
    match steps.last_mut() {
        Some((at, units)) if is_one_step(share, *at, taken) => {
            (*at, *units) = (taken, units.saturating_add(cost));
        }
        _ => steps.push((taken, cost)),
    }
}

/// Units in ticks; algorithms without ticks count units.
fn ticks(share: &Quota, units: u64) -> u64 {
    match share {
        Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => {
            let [_, unit, _] = it.numbers();
            units.saturating_mul(unit)
        }
        _ => units,
    }
}

/// Whether units that were taken at `at` can still count at `now`.
fn still_counts(share: &Quota, at: Timestamp, now: Timestamp) -> bool {
    match share {
        Quota::FixedWindow(it) if *it.align() != Align::FirstRequest => it.is_same_window(at, now),
        _ => now.since(at).0 < span(share),
    }
}

/// Whether units that were taken at these times are stored in one step.
fn is_one_step(share: &Quota, at: Timestamp, now: Timestamp) -> bool {
    match share {
        Quota::FixedWindow(it) if *it.align() != Align::FirstRequest => it.is_same_window(at, now),
        Quota::SlidingWindow(it) => {
            let [width, buckets] = it.width_and_buckets();
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
        Quota::SlidingLog(it) => it.longest_period().0,
        Quota::SlidingWindow(it) => {
            let [width, buckets] = it.width_and_buckets();
            width.saturating_mul(buckets + 1)
        }
        _ => 0,
    }
}
