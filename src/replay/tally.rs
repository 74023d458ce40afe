//! Counts what a limit would have done: by key and over time, in bounded memory.

mod counted_keys;
mod denied_keys;
mod series;

use std::sync::Arc;

pub use self::counted_keys::{CountedKeys, Number};
use self::denied_keys::DeniedKeys;
pub use self::denied_keys::KeyDenials;
pub use self::series::{Bin, Series};
use crate::limit::Key;
use crate::telemetry::KeyLabel;
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
}
