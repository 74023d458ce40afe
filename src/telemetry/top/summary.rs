//! The most frequent keys of what several sketches have counted.

use std::cmp::Reverse;
use std::sync::Arc;

use super::label::KeyLabel;
use crate::limit::Key;

/// The counters of a sketch or summary. After `n` events no count is more than `n / COUNTERS` too high, and every key with
/// more events than that has a counter.
pub(super) const COUNTERS: usize = 100;

/// How often a key was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The key.
    pub key: Key,
    /// Its events, or more.
    pub count: u64,
    /// How many of `count` may be events of other keys.
    pub error: u64,
    /// Who has the key, if that was looked up.
    pub label: Option<Arc<KeyLabel>>,
}

/// The most frequent keys of some events.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// In descending order of their counts, which add up to `events` at most.
    counters: Vec<Counter>,
    events: u64,
}

impl Summary {
    pub(super) fn new(counters: Vec<Counter>, events: u64) -> Self {
        let mut summary = Self { counters, events };
        summary.sort();
        summary.counters.shrink_to_fit();
        summary
    }

    /// Adds the events of another summary. The bound on the error stays (Cafaro, Pulimeno, Tempesta: A parallel Space Saving
    /// algorithm for frequent items and the Hurwitz zeta distribution, 2016).
    pub(super) fn merge(&mut self, other: &Self) {
        // A key without a counter may have had as many events as the least frequent one.
        let (own_floor, other_floor) = (self.floor(), other.floor());
        let is_new = |counter: &&Counter| self.find(counter.key).is_none();
        let new = other.counters.iter().filter(is_new).map(|counter| counter.plus(own_floor, own_floor));
        let new: Vec<Counter> = new.collect();
        for counter in &mut self.counters {
            match other.find(counter.key) {
                Some(same) => {
                    let label = KeyLabel::merged(counter.label.as_ref(), same.label.as_ref());
                    *counter = Counter { label, ..counter.plus(same.count, same.error) };
                }
                None => *counter = counter.plus(other_floor, other_floor),
            }
        }
        self.counters.extend(new);
        self.sort();
        self.counters.truncate(COUNTERS);
        self.counters.shrink_to_fit();
        self.events += other.events;
    }

    /// The most frequent keys, in descending order of their counts.
    #[must_use]
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// The events of all keys.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// By how many events a count may be too high at most, and the most events of a key without a counter.
    #[must_use]
    pub fn max_error(&self) -> u64 {
        let errors = self.counters.iter().map(|counter| counter.error);
        errors.max().unwrap_or_default().max(self.floor())
    }

    pub(super) fn find(&self, key: Key) -> Option<&Counter> {
        self.counters.iter().find(|counter| counter.key == key)
    }

    /// The most events that a key without a counter had.
    fn floor(&self) -> u64 {
        let is_full = self.counters.len() >= COUNTERS;
        self.counters.last().filter(|_| is_full).map_or(0, |least| least.count)
    }

    fn sort(&mut self) {
        self.counters.sort_by_key(|counter| (Reverse(counter.count), counter.error, counter.key));
    }
}

impl Counter {
    fn plus(&self, count: u64, error: u64) -> Self {
        Self { count: self.count + count, error: self.error + error, ..self.clone() }
    }
}
