//! Counts the most frequent keys of a stream in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: Efficient
//! computation of frequent and top-k elements in data streams, 2005).

use std::sync::Arc;

use hashbrown::HashTable;

use super::summary::{COUNTERS, Counter, KeyLabel, Summary};
use crate::limit::Key;

/// The capacity of an index, twice the number of counters: in a fuller table, removed entries leave marks, and it is rebuilt
/// after each few of them.
const INDEX_CAPACITY: usize = 2 * COUNTERS;

/// The counters of one worker. An event takes constant time, apart from the search for the least counter, which takes
/// constant time on average.
#[derive(Debug, Default)]
pub struct Sketch {
    counters: Vec<Counter>,
    /// The positions of the counters, by the hash of their keys.
    index: HashTable<u8>,
    events: u64,
    /// No counter has fewer events.
    least: u64,
    /// The counters before this position have more than `least` events.
    cursor: usize,
}

impl Sketch {
    /// Counts an event of a key whose request has this consumer. `label` is called for keys that occur among the first or
    /// repeatedly, so that a flood of keys with one event each costs no labels.
    pub fn add(&mut self, key: Key, consumer: Option<&str>, label: impl FnOnce() -> Arc<KeyLabel>) {
        self.events += 1;
        let Self { counters, index, .. } = self;
        if let Some(&position) = index.find(hash(key), |&other| counters[usize::from(other)].key == key) {
            let counter = &mut counters[usize::from(position)];
            counter.count += 1;
            match &mut counter.label {
                Some(label) => KeyLabel::add_consumer(label, consumer),
                missing => *missing = Some(label()),
            }
            return;
        }
        self.add_new(key, label);
    }

    #[inline(never)]
    fn add_new(&mut self, key: Key, label: impl FnOnce() -> Arc<KeyLabel>) {
        if self.index.capacity() == 0 {
            self.index = HashTable::with_capacity(INDEX_CAPACITY);
        }
        let position = if self.counters.len() < COUNTERS {
            self.counters.push(Counter { key, count: 1, error: 0, label: Some(label()) });
            self.counters.len() - 1
        } else {
            // The key may have had as many events as the least frequent one, whose counter it takes over.
            let position = self.least_frequent();
            let counter = &mut self.counters[position];
            let (replaced, error) = (counter.key, counter.count);
            *counter = Counter { key, count: error + 1, error, label: None };
            let same = |&other: &u8| usize::from(other) == position;
            if let Ok(entry) = self.index.find_entry(hash(replaced), same) {
                entry.remove();
            }
            position
        };
        let rehash = |&other: &u8| hash(self.counters[usize::from(other)].key);
        // There are at most 256 counters.
        self.index.insert_unique(hash(key), u8::try_from(position).unwrap_or_default(), rehash);
    }

    /// The position of a counter with the fewest events.
    fn least_frequent(&mut self) -> usize {
        let has_least = |counter: &Counter| counter.count == self.least;
        let next = self.counters[self.cursor..].iter().position(has_least);
        let position = next.map_or_else(
            || {
                // All have more events now: the search starts again at the first of those that have the fewest.
                let least = self.counters.iter().enumerate().min_by_key(|(_, counter)| counter.count);
                self.least = least.map_or(0, |(_, counter)| counter.count);
                least.map_or(0, |(position, _)| position)
            },
            |offset| self.cursor + offset,
        );
        self.cursor = position + 1;
        position
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }
}

impl From<Sketch> for Summary {
    fn from(sketch: Sketch) -> Self {
        Self::new(sketch.counters, sketch.events)
    }
}

/// Keys are hashes already. Keys that are chosen to collide only make a look-up compare all counters.
fn hash(key: Key) -> u64 {
    key.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

/// The requests of which the keys are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopBy {
    /// Requests that the limit denied, or in shadow mode would have denied.
    Denials,
    /// Requests that the limit decided.
    Traffic,
}

/// The denied requests and all requests of a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedAndAll<T> {
    pub denials: T,
    pub traffic: T,
}

impl<T> DeniedAndAll<T> {
    pub fn get(&self, by: TopBy) -> &T {
        match by {
            TopBy::Denials => &self.denials,
            TopBy::Traffic => &self.traffic,
        }
    }
}

impl DeniedAndAll<Summary> {
    pub fn merge(&mut self, other: &Self) {
        self.denials.merge(&other.denials);
        self.traffic.merge(&other.traffic);
    }
}

impl From<DeniedAndAll<Sketch>> for DeniedAndAll<Summary> {
    fn from(DeniedAndAll { denials, traffic }: DeniedAndAll<Sketch>) -> Self {
        Self { denials: denials.into(), traffic: traffic.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> Key {
        let mut key = [0; 16];
        key[..2].copy_from_slice(&number.to_le_bytes());
        Key(key)
    }

    /// A stream in which a few keys are frequent and many are rare.
    fn stream() -> impl Strategy<Value = Vec<u16>> {
        let key = prop_oneof![0..5_u16, 0..80_u16, 0..150_u16, 0..u16::MAX];
        prop::collection::vec(key, 0..1_500)
    }

    fn sketch(events: &[u16]) -> Sketch {
        let mut sketch = Sketch::default();
        for number in events {
            sketch.add(key(*number), None, Arc::default);
        }
        sketch
    }

    fn assert_guarantee(summary: &Summary, events: &[u16]) -> Result<(), TestCaseError> {
        let mut exact: HashMap<Key, u64> = HashMap::new();
        for number in events {
            *exact.entry(key(*number)).or_default() += 1;
        }
        prop_assert_eq!(summary.events(), events.len() as u64);
        let bound = events.len() as u64 / COUNTERS as u64;
        prop_assert!(summary.max_error() <= bound);
        prop_assert!(summary.counters().len() <= COUNTERS);
        prop_assert!(summary.counters().is_sorted_by(|one, next| one.count >= next.count));
        for counter in summary.counters() {
            let exact = exact.remove(&counter.key).unwrap_or_default();
            prop_assert!(counter.error <= summary.max_error(), "{counter:?}");
            prop_assert!(
                counter.count - counter.error <= exact && exact <= counter.count,
                "{counter:?}, {exact}"
            );
        }
        for (key, count) in exact {
            prop_assert!(count <= summary.max_error(), "{key} has {count} events and no counter");
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counts_are_within_the_error_bound(events in stream()) {
            assert_guarantee(&sketch(&events).into(), &events)?;
        }

        #[test]
        fn merged_counts_are_within_the_error_bound(streams in prop::collection::vec(stream(), 1..4)) {
            let mut merged = Summary::default();
            for events in &streams {
                merged.merge(&sketch(events).into());
            }
            assert_guarantee(&merged, &streams.concat())?;
        }

        #[test]
        fn the_index_has_every_counter(events in stream()) {
            let sketch = sketch(&events);
            prop_assert_eq!(sketch.index.len(), sketch.counters.len());
            for (position, counter) in sketch.counters.iter().enumerate() {
                let found = sketch.index.find(hash(counter.key), |&other| usize::from(other) == position);
                prop_assert!(found.is_some(), "{:?}", counter);
            }
        }
    }

    #[test]
    fn a_key_that_is_new_to_a_full_sketch_gets_a_label_with_its_second_event() {
        let mut sketch = sketch(&(0..200).collect::<Vec<_>>());
        let mut labels = 0;
        let mut add = |number: u16| {
            sketch.add(key(number), None, || {
                labels += 1;
                Arc::default()
            });
        };
        add(1_000);
        add(1_001);
        add(1_001);
        add(1_001);
        assert_eq!(labels, 1);
    }
}
