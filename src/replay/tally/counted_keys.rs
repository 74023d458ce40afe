//! The number of distinct keys: exact as long as there are few, and an estimate beyond that.

use std::collections::HashSet;

use serde::Serialize;

use super::super::distinct::DistinctKeys;
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
}
