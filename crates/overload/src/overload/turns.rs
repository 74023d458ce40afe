//! The waiting requests of one class: a queue for each key, and turns by start time.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// A turn, in units of start times.
const TURN: u64 = 1 << 32;

/// A queue for each key. A key's start time is a turn after that of its request before, or the present, whichever is later. The key
/// with the earliest start is next (start-time fair queueing). The present goes on by a turn while each key that waits is served
/// once, so that keys which come for the first time get no more than others.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    keys: HashMap<u64, KeyQueue<T>>,
    /// The keys that have requests, by start and number of the first request.
    starts: BTreeSet<(u64, u64, u64)>,
    /// The keys that have requests, by their number of requests.
    lengths: BTreeSet<(usize, u64)>,
    len: usize,
    /// The start of a key that comes now.
    present: u64,
    /// Keys that are remembered at most, those without requests included.
    most_keys: usize,
}

#[derive(Debug)]
struct KeyQueue<T> {
    /// The start of the first request, or of the next one that comes.
    start: u64,
    requests: VecDeque<(u64, T)>,
}

impl<T> Turns<T> {
    /// No requests. `most` are expected.
    pub fn new(most: usize) -> Self {
        Self {
            keys: HashMap::new(),
            starts: BTreeSet::new(),
            lengths: BTreeSet::new(),
            len: 0,
            present: 0,
            most_keys: most.saturating_mul(2).max(64),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The requests of a key.
    pub fn len_of(&self, key: u64) -> usize {
        self.keys.get(&key).map_or(0, |queue| queue.requests.len())
    }

    /// The requests of the key that has the most.
    pub fn heaviest(&self) -> usize {
        self.lengths.last().map_or(0, |(len, _)| *len)
    }

    /// Adds a request with a number that is greater than those before.
    pub fn push(&mut self, key: u64, number: u64, item: T) {
        if self.keys.len() >= self.most_keys {
            let present = self.present;
            self.keys.retain(|_, queue| !queue.requests.is_empty() || queue.start > present);
        }
        let present = self.present;
        let queue = self.keys.entry(key).or_insert_with(|| KeyQueue { start: 0, requests: VecDeque::new() });
        if queue.requests.is_empty() {
            queue.start = queue.start.max(present);
            self.starts.insert((queue.start, number, key));
        }
        let before = queue.requests.len();
        queue.requests.push_back((number, item));
        self.set_length(key, before, before + 1);
    }

    /// Takes the request whose turn it is.
    pub fn pop_next(&mut self) -> Option<(u64, T)> {
        let (start, _, key) = *self.starts.first()?;
        let share = TURN / u64::try_from(self.starts.len()).unwrap_or(u64::MAX).max(1);
        self.present = self.present.saturating_add(share).max(start);
        self.take(key, VecDeque::pop_front, TURN)
    }

    /// Takes the newest request of the key that has the most.
    pub fn pop_newest_of_heaviest(&mut self) -> Option<(u64, T)> {
        let (_, key) = *self.lengths.last()?;
        self.take(key, VecDeque::pop_back, 0)
    }

    /// Takes the request of this number.
    pub fn remove(&mut self, key: u64, number: u64) -> Option<T> {
        let find = |requests: &mut VecDeque<(u64, T)>| {
            let position = requests.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            requests.remove(position)
        };
        self.take(key, find, 0).map(|(_, item)| item)
    }

    /// Takes a request of a key, whose start moves on by `turns`.
    fn take(
        &mut self,
        key: u64,
        take: impl FnOnce(&mut VecDeque<(u64, T)>) -> Option<(u64, T)>,
        turns: u64,
    ) -> Option<(u64, T)> {
        let Entry::Occupied(mut entry) = self.keys.entry(key) else { return None };
        let queue = entry.get_mut();
        let (before, first) = (queue.requests.len(), queue.requests.front()?.0);
        let taken = take(&mut queue.requests)?;
        self.starts.remove(&(queue.start, first, key));
        queue.start += turns;
        if let Some((number, _)) = queue.requests.front() {
            self.starts.insert((queue.start, *number, key));
        }
        self.set_length(key, before, before - 1);
        Some(taken)
    }

    fn set_length(&mut self, key: u64, before: usize, after: usize) {
        self.lengths.remove(&(before, key));
        if after > 0 {
            self.lengths.insert((after, key));
        }
        self.len = self.len + after - before;
    }

    /// The keys in memory.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.keys.len()
    }
}
