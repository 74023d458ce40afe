//! Counts what a limit would have done: by key and over time, in bounded memory.

mod counted_keys;
mod series;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

pub use self::counted_keys::{CountedKeys, Number};
pub use self::series::{Bin, Series};
use crate::limit::Key;
use crate::telemetry::{KeyLabel, Sketch, Summary};
use crate::time::Timestamp;

/// What one limit did with the requests of a log.
#[derive(Debug)]
pub struct Tally {
    requests: u64,
    denied: u64,
    keys: CountedKeys,
    denied_keys: CountedKeys,
    most_denied: DeniedKeys,
    series: Series,
}

impl Tally {
    /// A tally that counts up to `most_keys` keys exactly, and estimates the number of more.
    #[must_use]
    pub fn new(most_keys: usize) -> Self {
        Self {
            requests: 0,
            denied: 0,
            keys: CountedKeys::new(most_keys),
            denied_keys: CountedKeys::new(most_keys),
            most_denied: DeniedKeys::default(),
            series: Series::default(),
        }
    }

    /// Counts a request that the limit decided. `label` is called for keys that are denied.
    pub fn record(
        &mut self,
        key: Key,
        at: Timestamp,
        is_denied: bool,
        label: impl FnOnce() -> Arc<KeyLabel>,
    ) {
        self.requests += 1;
        self.keys.add(key);
        self.series.record(at, is_denied);
        if is_denied {
            self.denied += 1;
            self.denied_keys.add(key);
            self.most_denied.record(key, at, label);
        }
    }

    /// The requests that the limit decided.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Those that it denied.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.denied
    }

    /// The number of keys with requests.
    #[must_use]
    pub fn keys(&self) -> Number {
        self.keys.number()
    }

    /// The number of keys with denied requests.
    #[must_use]
    pub fn denied_keys(&self) -> Number {
        self.denied_keys.number()
    }

    /// Requests and denials over time.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The keys with the most denials first.
    #[must_use]
    pub fn into_most_denied(self) -> Vec<KeyDenials> {
        self.most_denied.into_most_denied()
    }
}

/// How many keys are kept with the times of their denials.
const MOST_KEYS: usize = 1_000;
/// Microseconds of an hour.
const HOUR: u64 = 3_600_000_000;

/// The keys with the most denials. As long as there are few keys all are counted. Of more, those with the fewest denials are
/// dropped, and Space-Saving counters bound the error.
#[derive(Debug, Default)]
struct DeniedKeys {
    kept: HashMap<Key, KeyDenials>,
    has_dropped: bool,
    frequent: Sketch,
}

/// The denials of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDenials {
    /// The key.
    pub key: Key,
    /// Its name.
    pub label: Arc<KeyLabel>,
    /// Its denials, perhaps up to `error` too many.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
    /// The first denial.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// Denials by the hour of the day, in UTC.
    pub hours: [u64; 24],
}

impl DeniedKeys {
    /// Counts a denial. `label` is called for keys that are not kept yet.
    pub fn record(&mut self, key: Key, at: Timestamp, label: impl FnOnce() -> Arc<KeyLabel>) {
        self.frequent.add(key, None, Arc::default);
        if self.kept.len() >= MOST_KEYS && !self.kept.contains_key(&key) {
            self.halve();
        }
        let denials = self.kept.entry(key).or_insert_with(|| KeyDenials::new(key, at, label()));
        denials.count += 1;
        denials.last = at;
        // There are 24 hours.
        denials.hours[(at.0 / HOUR % 24) as usize] += 1;
    }

    /// The keys with the most denials first.
    pub fn into_most_denied(self) -> Vec<KeyDenials> {
        let mut most: Vec<KeyDenials> = if self.has_dropped {
            let frequent: Summary = self.frequent.into();
            let counted = frequent.counters().iter().filter_map(|counter| {
                let kept = self.kept.get(&counter.key)?;
                Some(KeyDenials { count: counter.count, error: counter.error, ..kept.clone() })
            });
            counted.collect()
        } else {
            self.kept.into_values().collect()
        };
        most.sort_by_key(|denials| (Reverse(denials.count), denials.first, denials.key));
        most
    }

    fn halve(&mut self) {
        self.has_dropped = true;
        let mut counts: Vec<u64> = self.kept.values().map(|denials| denials.count).collect();
        let (_, median, _) = counts.select_nth_unstable(MOST_KEYS / 2);
        let median = *median;
        let mut to_drop = MOST_KEYS / 2;
        self.kept.retain(|_, denials| {
            let is_dropped = denials.count <= median && to_drop > 0;
            to_drop -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

impl KeyDenials {
    fn new(key: Key, at: Timestamp, label: Arc<KeyLabel>) -> Self {
        Self { key, label, count: 0, error: 0, first: at, last: at, hours: [0; 24] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_requests_keys_and_denials() {
        let mut tally = Tally::new(100);
        for number in 0..50_u8 {
            for attempt in 0..=number {
                let at = Timestamp(u64::from(attempt) * 1_000_000);
                tally.record(Key([number; 16]), at, attempt >= 40, Arc::default);
            }
        }
        assert_eq!((tally.requests(), tally.denied()), (1_275, 55));
        assert_eq!((tally.keys(), tally.denied_keys()), (Number::exact(50), Number::exact(10)));
        let denied: u64 = tally.series().bins().map(|bin| bin.denied).sum();
        assert_eq!(denied, 55);
        let most = tally.into_most_denied();
        assert_eq!((most[0].key, most[0].count), (Key([49; 16]), 10));
    }

    fn key(number: u64) -> Key {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        Key(key)
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut denied = DeniedKeys::default();
        for at in 0..200 * 7 {
            denied.record(key(at % 200), Timestamp(at), Arc::default);
        }
        let most = denied.into_most_denied();
        assert_eq!(most.len(), 200);
        assert!(most.iter().all(|denials| (denials.count, denials.error) == (7, 0)));
        assert_eq!(most[0].key, key(0));
    }

    #[test]
    fn of_many_keys_the_frequent_ones_are_kept() {
        let mut denied = DeniedKeys::default();
        for number in 0..20_000 {
            denied.record(key(number), Timestamp(number), Arc::default);
            denied.record(key(7), Timestamp(number), Arc::default);
            assert!(denied.kept.len() <= MOST_KEYS);
        }
        let most = denied.into_most_denied();
        let first = &most[0];
        assert_eq!((first.key, first.first, first.last), (key(7), Timestamp(0), Timestamp(19_999)));
        assert!(first.count >= 20_001 && first.count - first.error <= 20_001, "{first:?}");
    }
}
