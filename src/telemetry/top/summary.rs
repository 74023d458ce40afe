//! The most frequent keys of what several sketches have counted, and who has a key.

use std::cmp::Reverse;
use std::sync::Arc;

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

/// Who has a key, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLabel {
    /// The consumer of its requests.
    pub consumer: KeyConsumer,
    /// The values of its parts.
    pub name: Option<Box<str>>,
}

/// The consumer of all requests of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyConsumer {
    /// None of its requests has a consumer.
    #[default]
    None,
    /// All of its requests have the consumer of this name.
    One(Box<str>),
    /// Its requests differ in their consumers: the key does not belong to one.
    Several,
}

impl KeyConsumer {
    /// The consumer of one request.
    pub(super) fn of(name: Option<&str>) -> Self {
        name.map_or(Self::None, |name| Self::One(name.into()))
    }

    fn is(&self, name: Option<&str>) -> bool {
        match self {
            Self::None => name.is_none(),
            Self::One(own) => name == Some(own),
            Self::Several => true,
        }
    }
}

impl KeyLabel {
    /// Adds the consumer of a further request of the key.
    pub(super) fn add_consumer(label: &mut Arc<Self>, consumer: Option<&str>) {
        if !label.consumer.is(consumer) {
            Arc::make_mut(label).consumer = KeyConsumer::Several;
        }
    }

    /// The label of a key that has both.
    pub(super) fn merged(one: Option<&Arc<Self>>, other: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let (Some(label), Some(other)) = (one, other) else { return one.or(other).cloned() };
        let is_same = label.consumer == other.consumer;
        if is_same && (label.name.is_some() || other.name.is_none()) {
            return Some(Arc::clone(label));
        }
        let consumer = if is_same { label.consumer.clone() } else { KeyConsumer::Several };
        Some(Arc::new(Self { consumer, name: label.name.clone().or_else(|| other.name.clone()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(consumer: Option<&str>, name: Option<&str>) -> Arc<KeyLabel> {
        Arc::new(KeyLabel { consumer: KeyConsumer::of(consumer), name: name.map(Into::into) })
    }

    #[test]
    fn a_key_has_a_consumer_only_if_all_requests_have_it() {
        let mut acme = label(Some("acme"), Some("10.0.0.1"));
        KeyLabel::add_consumer(&mut acme, Some("acme"));
        assert_eq!(acme.consumer, KeyConsumer::One("acme".into()));
        KeyLabel::add_consumer(&mut acme, None);
        assert_eq!(acme.consumer, KeyConsumer::Several);
        KeyLabel::add_consumer(&mut acme, Some("acme"));
        assert_eq!(acme.consumer, KeyConsumer::Several);
        assert_eq!(acme.name.as_deref(), Some("10.0.0.1"));
    }

    #[test]
    fn labels_complete_each_other() {
        let merged = |one, other| KeyLabel::merged(Some(&one), Some(&other)).unwrap();
        let (plain, hashed) = (label(Some("acme"), Some("k")), label(Some("acme"), None));
        assert_eq!(merged(Arc::clone(&hashed), Arc::clone(&plain)), plain);
        assert_eq!(merged(Arc::clone(&plain), hashed), plain);
        assert_eq!(merged(plain, label(Some("globex"), None)).consumer, KeyConsumer::Several);
        assert_eq!(KeyLabel::merged(None, Some(&label(None, None))), Some(label(None, None)));
    }
}
