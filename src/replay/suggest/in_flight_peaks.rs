//! How many requests of a key are in flight at once, for limits on concurrency.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::Serialize;

use super::distribution::{Distribution, Quantiles};
use super::limits::with_headroom;
use super::settings::SuggestSettings;
use super::warning::allowed_exceptions;
use crate::limit::Key;
use crate::time::Timestamp;

/// The most keys that are counted.
const MOST_KEYS: usize = 200_000;

/// Counts the requests of each key that are in flight at once.
#[derive(Debug, Default)]
pub struct InFlightPeaks {
    keys: HashMap<Key, InFlightOfKey>,
    /// When requests end.
    ends: BinaryHeap<Reverse<(Timestamp, Key)>>,
    requests: u64,
    /// Requests of which the log has no duration.
    without_duration: u64,
    /// Requests of keys beyond [`MOST_KEYS`].
    left_out: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct InFlightOfKey {
    now: u64,
    peak: u64,
    requests: u64,
}

/// A suggested number of requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotsSuggestion {
    /// The name of the limit.
    pub name: String,
    /// The parts of its key.
    pub key: Vec<String>,
    /// The number that the configuration has.
    pub current: u64,
    /// The keys.
    pub clients: u64,
    /// The most requests of a key that were in flight at once.
    pub peaks: Quantiles,
    /// The number that at most the stated share of keys exceeds, with headroom; none if the log has no durations.
    pub suggested: Option<u64>,
    /// How many keys have more than that in flight at times.
    pub exceeded_by: u64,
    /// How many keys have more in flight at times than the configuration allows.
    pub current_exceeded_by: u64,
    /// Requests of which the log has no duration.
    pub without_duration: u64,
    /// Requests of keys that were not counted, since there are too many.
    pub left_out: u64,
}

impl InFlightPeaks {
    /// Counts a request from its arrival to its end; none if the log has no duration. Arrivals come in the order of time.
    pub fn record(&mut self, key: Key, arrival: Timestamp, end: Option<Timestamp>) {
        self.requests += 1;
        let Some(end) = end else {
            self.without_duration += 1;
            return;
        };
        while let Some(Reverse((at, ended))) = self.ends.peek().copied()
            && at <= arrival
        {
            self.ends.pop();
            if let Some(of_key) = self.keys.get_mut(&ended) {
                of_key.now -= 1;
            }
        }
        if self.keys.len() >= MOST_KEYS && !self.keys.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let of_key = self.keys.entry(key).or_default();
        of_key.now += 1;
        of_key.requests += 1;
        of_key.peak = of_key.peak.max(of_key.now);
        self.ends.push(Reverse((end, key)));
    }

    /// The suggestion for a limit of this name and key, which allows `current` requests in flight; none without requests.
    #[must_use]
    pub fn suggest(
        &self,
        name: &str,
        key: Vec<String>,
        current: u64,
        settings: &SuggestSettings,
    ) -> Option<SlotsSuggestion> {
        let mut peaks = Distribution::default();
        for of_key in self.keys.values() {
            peaks.add(of_key.peak, of_key.requests);
        }
        let above = |most: u64| self.keys.values().filter(|of_key| of_key.peak > most).count() as u64;
        let clients = self.keys.len() as u64;
        let exceptions = allowed_exceptions(settings.deny_at_most, clients);
        let suggested = with_headroom(peaks.exceeded_by(exceptions), settings.headroom).max(1);
        (self.requests > 0).then(|| SlotsSuggestion {
            name: name.to_owned(),
            key,
            current,
            clients,
            peaks: peaks.of_clients(),
            suggested: (clients > 0).then_some(suggested),
            exceeded_by: above(suggested),
            current_exceeded_by: above(current),
            without_duration: self.without_duration,
            left_out: self.left_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_overlap_are_in_flight_at_once() {
        let mut peaks = InFlightPeaks::default();
        let mut record = |key: u8, at: u64, end: Option<u64>| {
            peaks.record(Key([key; 16]), Timestamp(at), end.map(Timestamp));
        };
        // A request that ends when another arrives is no longer in flight.
        for (at, end) in [(0, 10), (5, 20), (10, 30), (20, 30)] {
            record(1, at, Some(end));
        }
        record(2, 20, Some(90));
        record(2, 40, None);
        let settings = SuggestSettings { deny_at_most: 0.0, headroom: 1.0, ..SuggestSettings::default() };
        let found = peaks.suggest("slots", vec!["client_ip".to_owned()], 1, &settings).unwrap();
        assert_eq!((found.peaks.p50, found.peaks.max, found.suggested), (1, 2, Some(2)));
        assert_eq!((found.exceeded_by, found.current_exceeded_by, found.without_duration), (0, 1, 1));
        assert_eq!(InFlightPeaks::default().suggest("slots", Vec::new(), 1, &settings), None);
    }
}
