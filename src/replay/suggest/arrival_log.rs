//! The arrivals of one key, compressed: a few bytes for each; and the histories of several limits, which share one budget of
//! memory.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::history::History;
use super::majority::Texts;
use crate::limit::Key;
use crate::time::Timestamp;

/// A request that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrived.
    pub at: Timestamp,
    /// The units that it spends.
    pub cost: u64,
}

/// The arrivals of one key in the order of time: of each the microseconds since the one before, and its cost unless that is
/// one, as integers of variable length (LEB128).
#[derive(Clone, Debug, Default)]
pub(super) struct ArrivalLog {
    bytes: SmallVec<[u8; 20]>,
    last: Timestamp,
    logged: u32,
    unlogged: u32,
}

impl ArrivalLog {
    /// Adds an arrival unless the log has `longest` bytes; returns by how many bytes its memory grew. A time before the last
    /// arrival is taken for that of the last arrival, as a limit does.
    pub fn push(&mut self, arrival: Arrival, longest: usize) -> usize {
        if self.bytes.len() >= longest || self.logged == u32::MAX {
            self.unlogged = self.unlogged.saturating_add(1);
            return 0;
        }
        let before = self.heap_bytes();
        let is_single = arrival.cost == 1;
        let gap = arrival.at.since(self.last).0;
        self.write((gap << 1) | u64::from(!is_single));
        if !is_single {
            self.write(arrival.cost);
        }
        self.last = self.last.max(arrival.at);
        self.logged += 1;
        self.heap_bytes() - before
    }

    /// The number of arrivals that can be read back.
    pub fn logged(&self) -> u32 {
        self.logged
    }

    /// The number of arrivals for which the log was too long.
    pub fn unlogged(&self) -> u32 {
        self.unlogged
    }

    /// Bytes outside of the value itself.
    pub fn heap_bytes(&self) -> usize {
        if self.bytes.spilled() { self.bytes.capacity() } else { 0 }
    }

    /// The arrivals in the order of time.
    pub fn iter(&self) -> impl Iterator<Item = Arrival> + '_ {
        let mut bytes = self.bytes.iter().copied();
        let mut at = Timestamp::default();
        std::iter::from_fn(move || {
            let head = read(&mut bytes)?;
            at = Timestamp(at.0 + (head >> 1));
            let cost = if head & 1 == 0 { 1 } else { read(&mut bytes)? };
            Some(Arrival { at, cost })
        })
    }

    fn write(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(low_bits(number) | 0x80);
            number >>= 7;
        }
        self.bytes.push(low_bits(number));
    }
}

fn low_bits(number: u64) -> u8 {
    (number & 0x7f) as u8
}

fn read(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

/// The part of the budget that the log of one key may use.
const LARGEST_LOG: usize = 8;

/// Histories by a number that the caller gives, within one budget of memory.
#[derive(Debug)]
pub struct Histories {
    all: Vec<History>,
    budget: usize,
    /// Bytes of all histories.
    used: usize,
}

impl Histories {
    /// `count` empty histories, which use at most about `budget` bytes, and in addition about 1 MiB together for the texts of user
    /// agents and consumers.
    #[must_use]
    pub fn new(count: usize, budget: usize) -> Self {
        let texts = <[Arc<Mutex<Texts>>; 2]>::default();
        let all = std::iter::repeat_with(|| History::sharing(&texts)).take(count);
        Self { all: all.collect(), budget, used: 0 }
    }

    /// Records an arrival in history `number`; see [`History::record`]. If the budget is exceeded, the largest history keeps
    /// half of its keys.
    ///
    /// # Panics
    /// If there is no such history.
    pub fn record(
        &mut self,
        number: usize,
        key: Key,
        arrival: Arrival,
        name: impl FnOnce() -> Option<Box<str>>,
    ) {
        let history = &mut self.all[number];
        let before = history.bytes();
        history.record(key, arrival, self.budget / LARGEST_LOG, name);
        self.used = self.used + history.bytes() - before;
        while self.used > self.budget {
            let Some(largest) = self.all.iter_mut().max_by_key(|history| history.bytes()) else {
                return;
            };
            largest.halve();
            let used = self.all.iter().map(History::bytes).sum();
            if used >= self.used {
                // Nothing is left to drop.
                return;
            }
            self.used = used;
        }
    }

    /// Adds the user agent and the consumer of a request of a key to history `number`.
    ///
    /// # Panics
    /// If there is no such history.
    pub fn describe(&mut self, number: usize, key: Key, agent: Option<&[u8]>, consumer: Option<&[u8]>) {
        let history = &mut self.all[number];
        let before = history.bytes();
        history.describe(key, agent, consumer);
        self.used = self.used + history.bytes() - before;
    }

    /// The histories, by their numbers.
    #[must_use]
    pub fn all(&self) -> &[History] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::Timestamp;

    proptest! {
        #[test]
        fn arrivals_are_read_back(
            start in 0..1_u64 << 52,
            steps in prop::collection::vec((0..1_u64 << 40, prop_oneof![Just(1_u64), 0..=1_u64 << 53]), 0..60),
        ) {
            let mut log = ArrivalLog::default();
            let mut at = start;
            let mut expected = Vec::new();
            for (gap, cost) in steps {
                at += gap;
                let arrival = Arrival { at: Timestamp(at), cost };
                log.push(arrival, usize::MAX);
                expected.push(arrival);
            }
            prop_assert_eq!(log.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_arrival_each_second_takes_three_bytes() {
        let mut log = ArrivalLog::default();
        let grown: usize = (0..1_000)
            .map(|second| log.push(Arrival { at: Timestamp(second * 1_000_000), cost: 1 }, 9_000))
            .sum();
        assert_eq!((log.bytes.len(), grown), (2_998, log.heap_bytes()));
    }

    #[test]
    fn a_full_log_only_counts() {
        let mut log = ArrivalLog::default();
        for at in 0..10 {
            log.push(Arrival { at: Timestamp(at), cost: 1 }, 4);
        }
        assert_eq!((log.logged(), log.unlogged(), log.iter().count()), (4, 6, 4));
    }

    #[test]
    fn an_arrival_before_the_last_one_has_its_time() {
        let mut log = ArrivalLog::default();
        for at in [5, 3, 6] {
            log.push(Arrival { at: Timestamp(at), cost: 1 }, 100);
        }
        assert_eq!(log.iter().map(|arrival| arrival.at.0).collect::<Vec<_>>(), [5, 5, 6]);
    }

    fn key(number: u64) -> Key {
        Key(u128::from(number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            .swap_bytes()
            .to_le_bytes())
    }

    #[test]
    fn memory_stays_within_the_budget() {
        let budget = 1 << 20;
        let mut histories = Histories::new(2, budget);
        for number in 0..100_000_u64 {
            let arrival = Arrival { at: Timestamp(number * 1_000), cost: 1 };
            histories.record(0, key(number), arrival, || None);
            histories.record(1, key(number % 100), arrival, || None);
            assert!(histories.used <= budget);
        }
        let [many, few] = histories.all() else { panic!("two histories") };
        assert_eq!(histories.used, many.bytes() + few.bytes());
        assert_eq!((many.requests(), few.requests()), (100_000, 100_000));
        assert!(
            many.key_count().relative_error > 0.0 && many.key_count().kept > 500,
            "{:?}",
            many.key_count()
        );
        assert!(few.key_count().kept > 10);
    }

    #[test]
    fn many_user_agents_do_not_reduce_the_keys_that_are_kept() {
        let mut histories = Histories::new(2, 1 << 17);
        for number in 0..5_000_u64 {
            let agent = format!("{number} {}", "x".repeat(200));
            for history in 0..2 {
                let arrival = Arrival { at: Timestamp(number), cost: 1 };
                histories.record(history, key(number % 100), arrival, || None);
                histories.describe(history, key(number % 100), Some(agent.as_bytes()), None);
            }
        }
        for history in histories.all() {
            assert_eq!((history.key_count().kept, history.cut_logs()), (100, 0));
        }
    }

    #[test]
    fn one_key_does_not_use_all_memory() {
        let mut histories = Histories::new(1, 1 << 16);
        for number in 0..100_000_u64 {
            let arrival = Arrival { at: Timestamp(number * 1_000), cost: 1 };
            histories.record(0, key(0), arrival, || None);
        }
        assert_eq!((histories.all()[0].cut_logs(), histories.all()[0].key_count().kept), (1, 1));
    }
}
