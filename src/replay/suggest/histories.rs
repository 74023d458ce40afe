//! The histories of several limits, which share one budget of memory.

use super::arrival_log::Arrival;
use super::history::History;
use crate::limit::Key;

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
    /// `count` empty histories, which use at most about `budget` bytes.
    #[must_use]
    pub fn new(count: usize, budget: usize) -> Self {
        Self { all: std::iter::repeat_with(History::default).take(count).collect(), budget, used: 0 }
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

    /// The histories, by their numbers.
    #[must_use]
    pub fn all(&self) -> &[History] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

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
    fn one_key_does_not_use_all_memory() {
        let mut histories = Histories::new(1, 1 << 16);
        for number in 0..100_000_u64 {
            let arrival = Arrival { at: Timestamp(number * 1_000), cost: 1 };
            histories.record(0, key(0), arrival, || None);
        }
        assert_eq!((histories.all()[0].cut_logs(), histories.all()[0].key_count().kept), (1, 1));
    }
}
