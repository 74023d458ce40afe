//! The number of distinct keys: exact as long as there are few, and an estimate beyond that.

use std::collections::HashSet;

use serde::Serialize;

use crate::limit::Key;

/// A number that was counted or estimated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Number {
    /// The number.
    pub count: u64,
    /// Its standard error relative to it; zero if it was counted.
    pub relative_error: f64,
}

/// Counts distinct keys.
#[derive(Debug)]
pub struct CountedKeys {
    most: usize,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    All(HashSet<Key>),
    Estimated(DistinctKeys),
}

impl Number {
    /// A number that was counted.
    #[must_use]
    pub fn exact(count: u64) -> Self {
        Self { count, relative_error: 0.0 }
    }
}

impl CountedKeys {
    /// Counts up to `most` keys exactly.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, seen: Seen::All(HashSet::new()) }
    }

    /// Adds a key. A key that was added before changes nothing.
    pub fn add(&mut self, key: Key) {
        match &mut self.seen {
            Seen::Estimated(estimate) => estimate.add(key),
            Seen::All(keys) => {
                keys.insert(key);
                if keys.len() > self.most {
                    let mut estimate = DistinctKeys::default();
                    for key in keys.iter() {
                        estimate.add(*key);
                    }
                    self.seen = Seen::Estimated(estimate);
                }
            }
        }
    }

    /// How many distinct keys were added.
    #[must_use]
    pub fn number(&self) -> Number {
        match &self.seen {
            Seen::All(keys) => Number::exact(keys.len() as u64),
            Seen::Estimated(estimate) => {
                Number { count: estimate.count(), relative_error: DistinctKeys::RELATIVE_ERROR }
            }
        }
    }
}

/// Bits of a hash that select a register.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash of which the zeros are counted.
const VALUE_BITS: u32 = u64::BITS - INDEX_BITS;
/// The values of a register: zero, and 1 to `VALUE_BITS` + 1.
const VALUES: usize = VALUE_BITS as usize + 2;

/// Counts distinct keys in constant memory: `HyperLogLog` (Flajolet, Fusy, Gandouet, Meunier: "`HyperLogLog`: the analysis of a
/// near-optimal cardinality estimation algorithm", 2007), with the estimator of Ertl ("New cardinality estimation algorithms for
/// `HyperLogLog` sketches", 2017, algorithm 6), which needs no corrections for small or large numbers.
///
/// Estimates have a standard error of [`DistinctKeys::RELATIVE_ERROR`]. It has 16 KiB.
#[derive(Clone, Debug)]
pub struct DistinctKeys(Box<[u8]>);

impl Default for DistinctKeys {
    fn default() -> Self {
        Self(vec![0; REGISTERS].into())
    }
}

impl DistinctKeys {
    /// The standard error of an estimate relative to the number: 1.04/√16384.
    pub const RELATIVE_ERROR: f64 = 0.008_125;

    /// Adds a key. A key that was added before changes nothing.
    #[allow(clippy::cast_possible_truncation)]
    pub fn add(&mut self, key: Key) {
        // Keys are hashes already.
        let hash = key.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        let index = (hash >> VALUE_BITS) as usize;
        // The position of the first bit that is set among the value bits, from 1 to 51: one more than these if none is.
        let value = ((hash << INDEX_BITS).leading_zeros().min(VALUE_BITS) + 1) as u8;
        self.0[index] = self.0[index].max(value);
    }

    /// About how many distinct keys were added.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn count(&self) -> u64 {
        let mut having = [0_u32; VALUES];
        for value in &self.0 {
            having[usize::from(*value)] += 1;
        }
        let registers = REGISTERS as f64;
        let share = |value: usize| f64::from(having[value]) / registers;
        let mut sum = registers * tau(1.0 - share(VALUES - 1));
        for value in (1..VALUES - 1).rev() {
            sum = 0.5 * (sum + f64::from(having[value]));
        }
        sum += registers * sigma(share(0));
        (registers * registers / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
    }
}

/// Ertl's σ: x + Σ x^(2^k)·2^(k−1) for k ≥ 1. Infinite at 1, where no key was added.
fn sigma(x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (x, 1.0, x);
    loop {
        power *= power;
        let next = power.mul_add(factor, sum);
        if next <= sum {
            return sum;
        }
        sum = next;
        factor *= 2.0;
    }
}

/// Ertl's τ: (1 − x − Σ (1 − x^(2^−k))²·2^−k)/3 for k ≥ 1.
fn tau(x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        root = root.sqrt();
        factor *= 0.5;
        let next = sum - (1.0 - root) * (1.0 - root) * factor;
        if next >= sum {
            return sum / 3.0;
        }
        sum = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{KeyHasher, PartKind, Parts};

    #[test]
    fn beyond_the_bound_the_number_is_an_estimate() {
        let hasher = KeyHasher::new(None);
        let mut keys = CountedKeys::new(1_000);
        let mut add = |number: u32| {
            let mut parts = Parts::default();
            parts.push(PartKind::Global, &number.to_le_bytes());
            keys.add(hasher.key(&parts));
            keys.number()
        };
        let numbers: Vec<Number> = (0..20_000).map(|number| add(number % 10_000)).collect();
        assert_eq!(numbers[999], Number::exact(1_000));
        let last = numbers[19_999];
        assert!(last.count.abs_diff(10_000) < 400 && last.relative_error > 0.0, "{last:?}");
    }

    fn keys(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Key> {
        let hasher = KeyHasher::new(None);
        numbers.map(move |number| {
            let mut parts = Parts::default();
            parts.push(PartKind::Global, &number.to_le_bytes());
            hasher.key(&parts)
        })
    }

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn estimates_are_within_four_standard_errors() {
        let mut distinct = DistinctKeys::default();
        assert_eq!(distinct.count(), 0);
        let mut added = 0;
        for limit in [1, 10, 100, 1_000, 10_000, 40_000, 100_000, 300_000] {
            for key in keys(added..limit) {
                distinct.add(key);
                distinct.add(key);
            }
            added = limit;
            let error = (distinct.count() as f64 - f64::from(limit)).abs() / f64::from(limit);
            assert!(error < 4.0 * DistinctKeys::RELATIVE_ERROR, "{limit}: {}", distinct.count());
        }
    }
}
