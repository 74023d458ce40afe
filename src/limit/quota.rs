//! A quota: an algorithm with its numbers.

use std::num::NonZeroU64;

use super::bucket::{Bucket, Debt};
use super::decision::Step;
use super::rate::{QuotaError, Rate};
use crate::time::{Micros, Timestamp};

/// The algorithms, as names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A full bucket that refills smoothly.
    #[default]
    TokenBucket,
    /// Even spacing with a tolerance.
    Gcra,
}

impl Algorithm {
    /// Every algorithm, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::TokenBucket, Self::Gcra];

    /// The name in the configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
        }
    }

    /// The last part of a stored key: a letter for the algorithm and the version of its state layout, so
    /// that an old state is never misread. A layout that changes takes a new letter.
    #[must_use]
    pub fn letter(self) -> u8 {
        match self {
            Self::TokenBucket => b'b',
            Self::Gcra => b'g',
        }
    }
}

/// An algorithm with its numbers, which are right by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Capacity `limit`, refilled smoothly.
    TokenBucket(Bucket),
    /// `limit` = tolerated burst + 1, then one each T.
    Gcra(Bucket),
}

/// What a store remembers for one limit and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a token bucket or GCRA.
    Debt(Debt),
}

impl Quota {
    /// A token bucket that holds `burst` tokens and is refilled at `rate`.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn token_bucket(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Ok(Self::TokenBucket(Bucket::new(rate, burst)?))
    }

    /// A GCRA that spaces requests evenly at `rate` and tolerates `burst` of them early.
    ///
    /// # Errors
    /// Numbers that are zero or can't be counted exactly.
    pub fn gcra(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Ok(Self::Gcra(Bucket::new(rate, burst.saturating_add(1))?))
    }

    /// Which algorithm this is.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::TokenBucket(_) => Algorithm::TokenBucket,
            Self::Gcra(_) => Algorithm::Gcra,
        }
    }

    /// The most that could ever be available at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) => bucket.limit(),
        }
    }

    /// What a client is told of it: the units that can be had at once, and the whole seconds in which they come
    /// back. Where that is no whole number of seconds: the rate itself, over at least a second.
    #[must_use]
    pub fn advertised(&self) -> (u64, u64) {
        let (Self::TokenBucket(bucket) | Self::Gcra(bucket)) = self;
        let [drain, unit, limit] = bucket.numbers();
        let second = drain.saturating_mul(Micros::SECOND.0);
        if (limit * unit).is_multiple_of(second) {
            return (limit, limit * unit / second);
        }
        let (units, period) = (bucket.rate().units(), bucket.rate().period());
        if Micros::SECOND.0.is_multiple_of(period.0) {
            return (units.saturating_mul(Micros::SECOND.0 / period.0), 1);
        }
        (units, period.ceil_secs())
    }

    /// The share of one of `instances` proxies when each has to decide alone.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        match self {
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.shared_by(instances)),
            Self::Gcra(bucket) => Self::Gcra(bucket.shared_by(instances)),
        }
    }

    /// The numbers as the script takes them.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        match self {
            Self::TokenBucket(bucket) | Self::Gcra(bucket) => bucket.numbers(),
        }
    }

    /// Decides a request of `cost` units at `now`; pure.
    #[must_use]
    pub fn step(&self, state: Option<&State>, now: Timestamp, cost: u64) -> Step {
        match (self, state) {
            (Self::TokenBucket(bucket) | Self::Gcra(bucket), Some(State::Debt(debt))) => {
                bucket.step(Some(debt), now, cost)
            }
            (Self::TokenBucket(bucket) | Self::Gcra(bucket), None) => bucket.step(None, now, cost),
        }
    }

    /// How long `state` differs from no state at all, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, state: &State, now: Timestamp) -> Micros {
        match (self, state) {
            (Self::TokenBucket(bucket) | Self::Gcra(bucket), State::Debt(debt)) => bucket.lifetime(debt, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_as_small_as_its_numbers() {
        assert_eq!(size_of::<State>(), 24);
    }

    #[test]
    fn what_is_advertised_comes_back_in_whole_seconds() {
        let bucket = |units, period, burst| {
            Quota::token_bucket(Rate::new(units, Micros(period)).unwrap(), burst).unwrap().advertised()
        };
        assert_eq!(bucket(100, 60_000_000, 500), (500, 300));
        assert_eq!(bucket(5, 60_000_000, 5), (5, 60));
        assert_eq!(bucket(100, 1_000_000, 5), (100, 1));
        assert_eq!(bucket(5, 100_000, 7), (50, 1));
        assert_eq!(bucket(7, 1_500_000, 1), (7, 2));
    }

    #[test]
    fn letters_are_unique() {
        assert_ne!(Algorithm::TokenBucket.letter(), Algorithm::Gcra.letter());
    }

    #[test]
    fn gcra_counts_the_even_one_and_its_burst() {
        let rate = Rate::new(100, Micros::SECOND).unwrap();
        assert_eq!(Quota::gcra(rate, 5).unwrap().limit(), 6);
        assert_eq!(Quota::gcra(rate, 0).unwrap().limit(), 1);
    }
}
