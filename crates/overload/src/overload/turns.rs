//! A queue in which keys take turns: a queue for each key, and turns by start time.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// A turn, in units of start times: divided by the number of waiting keys it is still more than nothing, and 64 bits are enough for
/// 2^42 turns.
const TURN: u64 = 1 << 22;
/// Keys that are remembered without a search for those that need not be.
const FEW_KEYS: usize = 64;

/// A queue for each key, such as a client. A key's start time is a turn after that of its request before, or the present, whichever is later. The key
/// with the earliest start is next (start-time fair queueing). The present goes on by a turn while each key that waits is served
/// once, so that keys which come for the first time get no more than others.
///
/// All operations take a logarithmic number of steps in the number of keys.
#[derive(Debug)]
pub struct Turns<K, T> {
    keys: HashMap<K, KeyQueue<T>>,
    /// The keys that have requests, by start and number of the first request.
    starts: BTreeSet<(u64, u64, K)>,
    /// The keys that have requests, by their number of requests.
    lengths: BTreeSet<(usize, K)>,
    len: usize,
    /// The start of a key that comes now.
    present: u64,
    /// When so many keys are remembered, those without requests whose start has passed are forgotten.
    most_keys: usize,
}

#[derive(Debug)]
struct KeyQueue<T> {
    /// The start of the first request, or of the next one that comes.
    start: u64,
    requests: VecDeque<(u64, T)>,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self {
            keys: HashMap::new(),
            starts: BTreeSet::new(),
            lengths: BTreeSet::new(),
            len: 0,
            // Not 0, so that a key can be brought forward.
            present: TURN,
            most_keys: FEW_KEYS,
        }
    }
}

impl<K: Copy + Ord + Hash, T> Turns<K, T> {
    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of requests of a key.
    #[must_use]
    pub fn len_of(&self, key: K) -> usize {
        self.keys.get(&key).map_or(0, |queue| queue.requests.len())
    }

    /// Whether there is a request of another key.
    #[must_use]
    pub fn has_others(&self, key: K) -> bool {
        self.len > self.len_of(key)
    }

    /// The number of requests of the key that has the most.
    #[must_use]
    pub fn heaviest(&self) -> usize {
        self.lengths.last().map_or(0, |(len, _)| *len)
    }

    /// Adds a request with a number that is greater than those before.
    pub fn push(&mut self, key: K, number: u64, item: T) {
        if self.keys.len() >= self.most_keys {
            let present = self.present;
            self.keys.retain(|_, queue| !queue.requests.is_empty() || queue.start > present);
            self.most_keys = (2 * self.keys.len()).max(FEW_KEYS);
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

    /// The request whose turn it is, and its key.
    #[must_use]
    pub fn front(&self) -> Option<(K, &T)> {
        let (.., key) = self.starts.first()?;
        self.keys.get(key)?.requests.front().map(|(_, item)| (*key, item))
    }

    /// The keys that have requests, in the order of their turns.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.starts.iter().map(|(.., key)| *key)
    }

    /// Makes it the turn of a key.
    pub fn bring_forward(&mut self, key: K) {
        let Some((earliest, ..)) = self.starts.first().copied() else { return };
        let Some(queue) = self.keys.get_mut(&key) else { return };
        let Some((first, _)) = queue.requests.front() else { return };
        self.starts.remove(&(queue.start, *first, key));
        queue.start = earliest.saturating_sub(1);
        self.starts.insert((queue.start, *first, key));
    }

    /// Takes the request whose turn it is.
    pub fn pop_next(&mut self) -> Option<(u64, T)> {
        let (start, _, key) = *self.starts.first()?;
        let next = self.pop_next_of(key);
        self.present = self.present.max(start);
        next
    }

    /// Takes the next request of a key, which has one turn less.
    pub fn pop_next_of(&mut self, key: K) -> Option<(u64, T)> {
        let share = TURN / u64::try_from(self.starts.len()).unwrap_or(u64::MAX).max(1);
        let next = self.take(key, VecDeque::pop_front, TURN)?;
        self.present = self.present.saturating_add(share);
        Some(next)
    }

    /// Takes the newest request of the key that has the most.
    pub fn pop_newest_of_heaviest(&mut self) -> Option<(u64, T)> {
        let (_, key) = *self.lengths.last()?;
        self.take(key, VecDeque::pop_back, 0)
    }

    /// Takes the request of this number.
    pub fn remove(&mut self, key: K, number: u64) -> Option<T> {
        let find = |requests: &mut VecDeque<(u64, T)>| {
            let position = requests.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            requests.remove(position)
        };
        self.take(key, find, 0).map(|(_, item)| item)
    }

    /// Takes a request of a key, whose start moves on by `turns`.
    fn take(
        &mut self,
        key: K,
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

    fn set_length(&mut self, key: K, before: usize, after: usize) {
        self.lengths.remove(&(before, key));
        if after > 0 {
            self.lengths.insert((after, key));
        }
        self.len = self.len + after - before;
    }

    /// The keys in memory.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(requests: &[(u8, char)]) -> Turns<u8, char> {
        let mut turns = Turns::default();
        for (number, (key, item)) in (0..).zip(requests) {
            turns.push(*key, number, *item);
        }
        turns
    }

    fn drain(turns: &mut Turns<u8, char>) -> String {
        std::iter::from_fn(|| turns.pop_next()).map(|(_, item)| item).collect()
    }

    #[test]
    fn keys_take_turns_and_each_keeps_its_order() {
        let mut turns = turns(&[(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x'), (1, 'd'), (3, 'y'), (2, 'z')]);
        assert_eq!((turns.len(), turns.front()), (7, Some((1, &'a'))));
        assert_eq!(drain(&mut turns), "axybzcd");
        assert!(turns.is_empty() && turns.front().is_none());
    }

    #[test]
    fn the_newest_request_of_the_heaviest_key_is_taken() {
        let mut turns = turns(&[(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x')]);
        assert_eq!((turns.heaviest(), turns.len_of(2)), (3, 1));
        assert_eq!(turns.pop_newest_of_heaviest(), Some((2, 'c')));
        assert_eq!((turns.len(), turns.heaviest()), (3, 2));
        assert_eq!(drain(&mut turns), "axb");
    }

    #[test]
    fn a_key_can_be_brought_forward() {
        let mut turns = turns(&[(1, 'a'), (1, 'b'), (2, 'x'), (3, 'y')]);
        turns.bring_forward(3);
        turns.bring_forward(4);
        assert_eq!(turns.front(), Some((3, &'y')));
        turns.bring_forward(2);
        assert_eq!(drain(&mut turns), "xyab");
    }

    #[test]
    fn the_next_request_of_any_key_can_be_taken() {
        let mut turns = turns(&[(1, 'a'), (2, 'x'), (2, 'y'), (3, 'z')]);
        assert_eq!((turns.pop_next_of(2), turns.pop_next_of(4)), (Some((1, 'x')), None));
        // Its turn is used.
        assert_eq!(turns.keys().collect::<Vec<u8>>(), [1, 3, 2]);
        assert_eq!(drain(&mut turns), "azy");
    }

    #[test]
    fn removed_requests_are_skipped() {
        let mut turns = turns(&[(1, 'a'), (2, 'x'), (1, 'b')]);
        assert!(turns.has_others(1) && turns.has_others(3));
        assert_eq!((turns.remove(2, 1), turns.remove(2, 1)), (Some('x'), None));
        assert!(!turns.has_others(1) && turns.has_others(3) && turns.len() == 2);
        assert_eq!(drain(&mut turns), "ab");
    }

    #[test]
    fn keys_without_requests_are_forgotten() {
        let mut turns = Turns::default();
        (0..1000_u64).for_each(|key| turns.push(key, key, ()));
        while turns.pop_next().is_some() {}
        assert_eq!(turns.remembered(), 1000);
        for key in 1000..2000_u64 {
            turns.push(key, key, ());
            turns.pop_next();
        }
        assert!(turns.remembered() <= FEW_KEYS, "{}", turns.remembered());
    }
}
