//! The arrivals of all keys of one limit, in bounded memory.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::Mutex;
use serde::Serialize;

use super::arrival_log::{Arrival, ArrivalLog};
use super::majority::{Majority, Texts};
use crate::limit::Key;
use crate::time::{Micros, Timestamp};

/// After how many arrivals of a key its name is asked for: of many keys only frequent ones are shown.
const NAMED_AFTER: u32 = 16;
/// So many keys have their names from their first arrival on.
const NAMED_AT_ONCE: usize = 4_096;
/// The parts of equal length in which the time with requests is measured.
const SLOTS: usize = 1_000;
/// The bytes of a slot of the index: a position, and a byte of the hash.
const SLOT: usize = size_of::<u32>() + 1;
/// The fewest entries that are added to the table at once.
const FEWEST_ADDED: usize = 64;

/// The arrivals of the keys of one limit. While there is memory all keys are kept. Otherwise a sample is: the keys whose hash
/// ends with as many zero bits as needed. The sample does not depend on how frequent a key is, so shares of clients are
/// estimated without bias (adaptive sampling: Flajolet, On adaptive sampling, Computing 43, 1990).
#[derive(Debug, Default)]
pub struct History {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    names: HashMap<Key, Box<str>>,
    /// The user agents and the consumers of most requests of the keys, by the positions of the entries.
    agents: Majority,
    consumers: Majority,
    /// Bytes of logs and names outside of the tables.
    heap: usize,
    /// How many zero bits the hash of a kept key ends with.
    level: u32,
    requests: u64,
    span: Option<HistoryPart>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    log: ArrivalLog,
}

/// A part of the time of a history: from `from`, and before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryPart {
    /// The first instant, in microseconds since 1970.
    #[serde(rename = "from_us", serialize_with = "micros")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(rename = "until_us", serialize_with = "micros")]
    pub until: Timestamp,
}

/// The number of distinct keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KeyCount {
    /// How many there were, or about how many.
    pub keys: u64,
    /// How many were kept.
    pub kept: u64,
    /// The standard error of `keys` relative to it; zero if they were counted.
    pub relative_error: f64,
}

/// One key with its arrivals.
#[derive(Debug)]
pub(super) struct KeyArrivals<'a> {
    pub key: Key,
    /// Its position, which stays the same until the next arrival is recorded.
    pub position: usize,
    /// Those in the part of time that was asked for.
    pub arrivals: &'a [Arrival],
}

impl History {
    /// An empty history, which shares the texts of user agents and of consumers with others.
    pub(super) fn sharing([agents, consumers]: &[Arc<Mutex<Texts>>; 2]) -> Self {
        let (agents, consumers) = (Majority::sharing(agents), Majority::sharing(consumers));
        Self { agents, consumers, ..Self::default() }
    }

    /// Records an arrival. `name` is called for keys that turn out to be frequent, for their readable form. `longest_log` is
    /// the most bytes for one key. Arrivals come in the order of time.
    pub fn record(
        &mut self,
        key: Key,
        arrival: Arrival,
        longest_log: usize,
        name: impl FnOnce() -> Option<Box<str>>,
    ) {
        self.requests += 1;
        let end = arrival.at.after(Micros(1));
        let span = self.span.get_or_insert(HistoryPart { from: arrival.at, until: end });
        span.until = span.until.max(end);
        if !self.is_sampled(key) {
            return;
        }
        let position = self.position(key);
        let log = &mut self.entries[position].log;
        self.heap += log.push(arrival, longest_log);
        let is_first = log.logged() == 1 && position < NAMED_AT_ONCE;
        if (is_first || log.logged() == NAMED_AFTER && !self.names.contains_key(&key))
            && log.unlogged() == 0
            && let Some(name) = name()
        {
            self.heap += name.len() + 2 * size_of::<(Key, Box<str>)>();
            self.names.insert(key, name);
        }
    }

    /// Adds the user agent and the consumer of a request of a key.
    pub fn describe(&mut self, key: Key, agent: Option<&[u8]>, consumer: Option<&[u8]>) {
        let Self { index, entries, agents, consumers, .. } = self;
        let found = index.find(hash(key), |&position| entries[position as usize].key == key);
        let Some(position) = found.map(|position| *position as usize) else { return };
        for (majority, text) in [(agents, agent), (consumers, consumer)] {
            if let Some(text) = text {
                majority.add(position, text);
            }
        }
    }

    /// The memory that it uses, in bytes, without the texts of user agents and consumers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.index.capacity() / 7 * 8 * SLOT
            + self.heap
            + self.agents.bytes()
            + self.consumers.bytes()
    }

    /// Drops about half of the keys.
    pub fn halve(&mut self) {
        self.level += 1;
        let level = self.level;
        for majority in [&mut self.agents, &mut self.consumers] {
            majority.retain(|position| {
                self.entries.get(position).is_some_and(|entry| ends_with_zeros(entry.key, level))
            });
        }
        self.entries.retain(|entry| ends_with_zeros(entry.key, level));
        self.entries.shrink_to_fit();
        self.names.retain(|key, _| ends_with_zeros(*key, level));
        self.names.shrink_to_fit();
        let names: usize =
            self.names.values().map(|name| name.len() + 2 * size_of::<(Key, Box<str>)>()).sum();
        self.heap = names + self.entries.iter().map(|entry| entry.log.heap_bytes()).sum::<usize>();
        self.index = HashTable::with_capacity(self.entries.len());
        for (position, entry) in (0..).zip(&self.entries) {
            self.index
                .insert_unique(hash(entry.key), position, |&other| hash(self.entries[other as usize].key));
        }
    }

    /// All requests, also those of keys that were not kept.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The time from the first to the last arrival; none without arrivals.
    #[must_use]
    pub fn span(&self) -> Option<HistoryPart> {
        self.span
    }

    /// Divides the time in two: the part with the first `share` of the time with requests, and the rest; none if all requests
    /// would be in one part. Time without requests does not count, so that both parts have requests. None without arrivals.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn split(&self, share: f64) -> Option<(HistoryPart, Option<HistoryPart>)> {
        let span = self.span?;
        let slot = span.length().0.div_ceil(SLOTS as u64).max(1);
        let mut is_used = [false; SLOTS];
        for arrival in self.entries.iter().flat_map(|entry| entry.log.iter()) {
            is_used[((arrival.at.since(span.from).0 / slot) as usize).min(SLOTS - 1)] = true;
        }
        let used: Vec<usize> = (0..SLOTS).filter(|slot| is_used[*slot]).collect();
        if share >= 1.0 || used.len() < 2 {
            return Some((span, None));
        }
        let first = ((used.len() as f64 * share).round() as usize).clamp(1, used.len() - 1);
        let at = span.from.after(Micros(used[first] as u64 * slot));
        Some((HistoryPart { until: at, ..span }, Some(HistoryPart { from: at, ..span })))
    }

    /// The number of distinct keys; if not all were kept an estimate, with a standard error of 1.2/√kept (Flajolet, 1990).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn key_count(&self) -> KeyCount {
        let kept = self.entries.len() as u64;
        let keys = kept.checked_shl(self.level).unwrap_or(u64::MAX);
        let relative_error = if self.level == 0 { 0.0 } else { 1.2 / (kept.max(1) as f64).sqrt() };
        KeyCount { keys, kept, relative_error }
    }

    /// How many of the kept keys have more arrivals than were logged.
    #[must_use]
    pub fn cut_logs(&self) -> usize {
        self.entries.iter().filter(|entry| entry.log.unlogged() > 0).count()
    }

    /// The readable name of a key that was frequent enough to ask for it.
    #[must_use]
    pub fn name(&self, key: Key) -> Option<&str> {
        self.names.get(&key).map(|name| &**name)
    }

    /// The user agent and the consumer of most requests of the key at this position, which made so many.
    #[must_use]
    pub(super) fn description(&self, position: usize, requests: u64) -> [Option<Arc<str>>; 2] {
        [&self.agents, &self.consumers].map(|majority| majority.text(position, requests))
    }

    /// Calls `visit` for each kept key that has arrivals in this part of time.
    pub(super) fn visit(&self, part: HistoryPart, mut visit: impl FnMut(KeyArrivals<'_>)) {
        let mut buffer = Vec::new();
        for position in 0..self.entries.len() {
            if let Some(arrivals) = self.read(position, part, &mut buffer) {
                visit(arrivals);
            }
        }
    }

    /// The arrivals of the key at `position` in this part of time, in `buffer`; none if it has no arrival there.
    pub(super) fn read<'b>(
        &self,
        position: usize,
        part: HistoryPart,
        buffer: &'b mut Vec<Arrival>,
    ) -> Option<KeyArrivals<'b>> {
        let entry = &self.entries[position];
        buffer.clear();
        buffer.extend(entry.log.iter().filter(|arrival| part.contains(arrival.at)));
        (!buffer.is_empty()).then_some(KeyArrivals { key: entry.key, position, arrivals: buffer })
    }

    fn is_sampled(&self, key: Key) -> bool {
        self.level == 0 || ends_with_zeros(key, self.level)
    }

    fn position(&mut self, key: Key) -> usize {
        let Self { index, entries, .. } = self;
        let found = index.find(hash(key), |&position| entries[position as usize].key == key);
        if let Some(&position) = found {
            return position as usize;
        }
        let position = entries.len();
        if position == entries.capacity() {
            // A table that doubles would need three times its memory while it moves.
            entries.reserve_exact((position / 8).max(FEWEST_ADDED));
        }
        entries.push(Entry { key, log: ArrivalLog::default() });
        #[expect(clippy::expect_used, reason = "the budget of memory is reached long before")]
        let new = u32::try_from(position).expect("fewer than 2^32 keys are kept");
        index.insert_unique(hash(key), new, |&other| hash(entries[other as usize].key));
        position
    }
}

impl HistoryPart {
    /// Whether it has this instant.
    #[must_use]
    pub fn contains(self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }

    /// How long it is.
    #[must_use]
    pub fn length(self) -> Micros {
        self.until.since(self.from)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn micros<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(at.0)
}

/// Keys are hashes already. The table uses their first half, the sample the second.
fn hash(key: Key) -> u64 {
    key.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

fn ends_with_zeros(key: Key, bits: u32) -> bool {
    key.0.last_chunk().map_or(0, |last| u64::from_be_bytes(*last)).trailing_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes().to_be_bytes());
        Key(key)
    }

    fn record(history: &mut History, number: u64, at: u64) {
        let arrival = Arrival { at: Timestamp(at), cost: 1 };
        history.record(key(number), arrival, usize::MAX, || Some(format!("client {number}").into()));
    }

    #[test]
    fn arrivals_of_a_part_of_the_time_are_read_by_key() {
        let mut history = History::default();
        for at in 0..100 {
            record(&mut history, at % 3, at);
        }
        let mut seen = Vec::new();
        history.visit(HistoryPart { from: Timestamp(10), until: Timestamp(14) }, |key| {
            seen.push(key.arrivals.iter().map(|arrival| arrival.at.0).collect::<Vec<_>>());
        });
        assert_eq!(seen, [vec![12], vec![10, 13], vec![11]]);
        assert_eq!(history.span(), Some(HistoryPart { from: Timestamp(0), until: Timestamp(100) }));
        assert_eq!(history.name(key(1)), Some("client 1"));
    }

    #[test]
    fn time_without_requests_is_not_divided() {
        let mut history = History::default();
        assert_eq!(history.split(0.5), None);
        let day = 86_400_000_000;
        record(&mut history, 0, 0);
        let all = HistoryPart { from: Timestamp(0), until: Timestamp(1) };
        assert_eq!(history.split(0.5), Some((all, None)), "one part would be empty");
        // One request, and days later one in each second for an hour.
        for second in 0..3_600 {
            record(&mut history, second % 3, 9 * day + second * 1_000_000);
        }
        let (first, rest) = history.split(0.8).unwrap();
        let rest = rest.unwrap();
        assert_eq!(
            (first.from, first.until, rest.until),
            (Timestamp(0), rest.from, history.span().unwrap().until)
        );
        for part in [first, rest] {
            let mut requests = 0;
            history.visit(part, |key| requests += key.arrivals.len());
            assert!(requests > 300, "{part:?}: {requests}");
        }
        assert_eq!(history.split(1.0), Some((history.span().unwrap(), None)));
    }

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn a_sample_estimates_the_number_of_keys() {
        let mut history = History::default();
        for number in 0..200_000 {
            record(&mut history, number, number);
        }
        let full = history.bytes();
        assert_eq!(history.key_count(), KeyCount { keys: 200_000, kept: 200_000, relative_error: 0.0 });
        history.halve();
        history.halve();
        for number in 0..200_000 {
            record(&mut history, number, 200_000 + number);
        }
        let count = history.key_count();
        let error = count.keys.abs_diff(200_000) as f64 / 200_000.0;
        assert!(error < 3.0 * count.relative_error && count.relative_error < 0.01, "{count:?}");
        assert!(history.bytes() < full / 3, "{} of {full}", history.bytes());
        assert_eq!(history.requests(), 400_000);
    }

    #[test]
    fn an_entry_is_a_line_of_the_cache() {
        assert_eq!(size_of::<Entry>(), 64);
    }
}
