//! Orders the requests of several logs by their arrival, within a window.
//!
//! Servers log a request when it has ended, so its line can be behind those of requests that arrived later. A request is
//! held until all logs have advanced beyond its arrival by the window. Lines whose times have no fraction of a second are
//! spread evenly within their second, in their order in the log.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::entry::LoggedRequest;
use super::far_dates::{FAR, MOST_FAR};
use crate::time::{Micros, Timestamp};

/// The most requests that are held.
const MAX_HELD: usize = 100_000;
/// The most bytes of their texts.
const MAX_HELD_BYTES: usize = 32 * 1024 * 1024;

/// The identity of a log among those that are merged.
pub(super) type LogId = usize;

/// Requests that wait for earlier ones.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// By their arrivals as the logs have them.
    held: BinaryHeap<Reverse<MergeOrder>>,
    /// By their arrivals after the spread.
    ready: BinaryHeap<Reverse<MergeOrder>>,
    entries: Vec<HeldEntry>,
    /// The indices of `entries` that are free.
    free: Vec<usize>,
    /// For each log and second, how many lines have it.
    seconds: BTreeMap<(u64, LogId), u64>,
    /// All requests that arrived by this time may be returned.
    edge: Timestamp,
    /// The bytes of the texts of all requests that are held.
    bytes: usize,
    /// The number of requests so far.
    count: u64,
    /// Requests that came after their time had been returned.
    pub(super) late: u64,
    /// The dates of a few requests that came so long after their time that they are left out. If there are more, the logs are not
    /// sorted.
    pub(super) far: Vec<Timestamp>,
}

/// The time of a request, its number among all, and its index. The number decides between equal times.
type MergeOrder = (Timestamp, u64, usize);

#[derive(Debug, Default)]
struct HeldEntry {
    entry: LoggedRequest<'static>,
    log: LogId,
    /// Its number among the lines of its log with its second.
    rank: u64,
}

impl Merge {
    /// Adds the next request of a log.
    pub(super) fn push(&mut self, log: LogId, mut entry: LoggedRequest<'static>) {
        let last = entry.arrival.after(if entry.second.is_some() { Micros::SECOND } else { Micros::ZERO });
        if last < self.edge {
            if self.edge.since(last) > FAR && self.far.len() < MOST_FAR {
                self.far.push(entry.arrival);
                return;
            }
            entry.arrive_later(self.edge);
            entry.second = None;
            self.late += 1;
        }
        self.bytes += entry.text_bytes();
        let rank = entry.second.map_or(0, |second| {
            let lines = self.seconds.entry((second, log)).or_default();
            *lines += 1;
            *lines - 1
        });
        let (arrival, number) = (entry.arrival, self.count);
        self.count += 1;
        let held = HeldEntry { entry, log, rank };
        let index = self.free.pop().unwrap_or(self.entries.len());
        if let Some(free) = self.entries.get_mut(index) {
            *free = held;
        } else {
            self.entries.push(held);
        }
        self.held.push(Reverse((arrival, number, index)));
    }

    /// All logs have advanced to this time: no request before it will be added, except late ones.
    pub(super) fn advance(&mut self, edge: Timestamp) {
        if edge > self.edge {
            self.release(edge);
        }
    }

    /// All requests that arrived by this time were returned, or are returned next.
    pub(super) fn edge(&self) -> Timestamp {
        self.edge
    }

    /// The next request in the order of arrival; none until the logs advance, or too many are held.
    pub(super) fn pop(&mut self) -> Option<LoggedRequest<'static>> {
        if self.is_full() {
            self.cut();
        }
        let Reverse((arrival, _, index)) = self.ready.peek().copied()?;
        if arrival > self.edge {
            return None;
        }
        self.ready.pop();
        self.free.push(index);
        let entry = std::mem::take(&mut self.entries[index].entry);
        self.bytes -= entry.text_bytes();
        Some(entry)
    }

    fn is_full(&self) -> bool {
        self.entries.len() - self.free.len() > MAX_HELD || self.bytes > MAX_HELD_BYTES
    }

    /// Advances so far that one request can be returned.
    fn cut(&mut self) {
        let earliest =
            |places: &BinaryHeap<Reverse<MergeOrder>>| places.peek().map(|Reverse((arrival, ..))| *arrival);
        while let Some(next) = earliest(&self.held)
            && earliest(&self.ready).is_none_or(|ready| next <= ready)
        {
            self.release(next);
        }
        self.edge = earliest(&self.ready).map_or(self.edge, |ready| self.edge.max(ready));
    }

    /// Moves the edge, if this time is later, and makes the requests ready that arrived by then.
    fn release(&mut self, edge: Timestamp) {
        let before = self.edge;
        self.edge = edge.max(before);
        while let Some(Reverse((arrival, number, index))) = self.held.peek().copied()
            && arrival <= self.edge
        {
            self.held.pop();
            let arrival = self.spread(index);
            let entry = &mut self.entries[index].entry;
            entry.arrival = arrival;
            // A second may have begun before the edge.
            entry.arrive_later(before);
            self.ready.push(Reverse((entry.arrival, number, index)));
        }
        self.forget_seconds();
    }

    /// The arrival of a request after the spread of the lines of its second.
    fn spread(&self, index: usize) -> Timestamp {
        let HeldEntry { entry, log, rank } = &self.entries[index];
        let Some(second) = entry.second else { return entry.arrival };
        let lines = self.seconds.get(&(second, *log)).copied().unwrap_or(1).max(1);
        entry.arrival.after(Micros(rank * Micros::SECOND.0 / lines))
    }

    /// Forgets seconds that are over. Those of requests in the window are needed: they end after their arrival.
    fn forget_seconds(&mut self) {
        let earliest = self.held.peek().map_or(self.edge, |Reverse((arrival, ..))| *arrival);
        let first = (earliest.0 / Micros::SECOND.0).saturating_sub(1);
        while let Some(oldest) = self.seconds.first_entry()
            && oldest.key().0 < first
        {
            oldest.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn entry(arrival: u64, second: Option<u64>) -> LoggedRequest<'static> {
        LoggedRequest { arrival: Timestamp(arrival), second, ..LoggedRequest::default() }
    }

    fn arrivals(merge: &mut Merge) -> Vec<u64> {
        std::iter::from_fn(|| merge.pop()).map(|entry| entry.arrival.0).collect()
    }

    #[test]
    fn requests_wait_until_all_logs_have_advanced() {
        let mut merge = Merge::default();
        for arrival in [5, 3, 4] {
            merge.push(0, entry(arrival, None));
        }
        assert_eq!(arrivals(&mut merge), [0; 0]);
        merge.advance(Timestamp(4));
        assert_eq!(arrivals(&mut merge), [3, 4]);
        merge.push(1, entry(5, None));
        merge.push(1, entry(2, None));
        merge.advance(Timestamp(9));
        assert_eq!(arrivals(&mut merge), [4, 5, 5], "the late one is at the edge");
        assert_eq!(merge.late, 1);
    }

    #[test]
    fn late_requests_keep_their_ends() {
        let mut merge = Merge::default();
        merge.advance(Timestamp(10));
        for duration in [None, Some(3), Some(9)] {
            merge.push(0, LoggedRequest { duration: duration.map(Micros), ..entry(5, None) });
        }
        merge.advance(Timestamp(11));
        let found: Vec<_> =
            std::iter::from_fn(|| merge.pop()).map(|entry| (entry.arrival.0, entry.duration)).collect();
        assert_eq!(found, [(10, None), (10, Some(Micros(0))), (10, Some(Micros(4)))]);
    }

    #[test]
    fn requests_with_dates_long_before_others_are_left_out() {
        let mut merge = Merge::default();
        merge.advance(Timestamp(FAR.0 + 10));
        for arrival in [9, 10] {
            merge.push(0, entry(arrival, None));
        }
        merge.advance(Timestamp(u64::MAX));
        assert_eq!((arrivals(&mut merge), merge.late), (vec![FAR.0 + 10], 1));
        assert_eq!(merge.far, [Timestamp(9)]);
    }

    #[test]
    fn a_second_is_late_when_it_has_ended() {
        let mut merge = Merge::default();
        merge.advance(Timestamp(7 * SECOND + 500_000));
        merge.push(0, entry(7 * SECOND, Some(7)));
        merge.push(0, entry(6 * SECOND, Some(6)));
        merge.advance(Timestamp(u64::MAX));
        assert_eq!((arrivals(&mut merge), merge.late), (vec![7_500_000, 7_500_000], 1));
    }

    #[test]
    fn requests_that_are_held_are_bounded_in_number_and_bytes() {
        for (user, most) in [(None, MAX_HELD), (Some(Cow::Owned(vec![b'x'; 1024 * 1024])), 32)] {
            let (mut merge, mut found) = (Merge::default(), Vec::new());
            for arrival in 0..most as u64 + 8 {
                merge.push(0, LoggedRequest { user: user.clone(), ..entry(7 * SECOND, Some(7)) });
                // Some arrive before those that are held.
                merge.push(1, entry(6 * SECOND + arrival, None));
                found.extend(arrivals(&mut merge));
                assert!(merge.entries.len() - merge.free.len() <= MAX_HELD && merge.bytes <= MAX_HELD_BYTES);
            }
            assert!(!found.is_empty());
            merge.advance(Timestamp(u64::MAX));
            found.extend(arrivals(&mut merge));
            assert_eq!((found.len(), merge.bytes), (2 * most + 16, 0));
            assert!(found.is_sorted());
        }
    }

    #[test]
    fn lines_of_one_second_are_spread_within_it() {
        let mut merge = Merge::default();
        for log in [0, 0, 0, 0, 1] {
            merge.push(log, entry(7 * SECOND, Some(7)));
        }
        merge.push(0, entry(8 * SECOND, Some(8)));
        merge.advance(Timestamp(7 * SECOND));
        assert_eq!(arrivals(&mut merge), [7_000_000, 7_000_000], "the first lines of both logs");
        merge.advance(Timestamp(u64::MAX));
        assert_eq!(arrivals(&mut merge), [7_250_000, 7_500_000, 7_750_000, 8_000_000]);
    }

    #[test]
    fn the_spread_is_that_of_the_end_less_the_duration() {
        let mut merge = Merge::default();
        for took in [0, 2_500_000] {
            merge.push(0, entry(7 * SECOND - took, Some(7)));
        }
        merge.advance(Timestamp(u64::MAX));
        assert_eq!(arrivals(&mut merge), [5_000_000, 7_000_000]);
    }

    proptest! {
        #[test]
        fn requests_are_returned_in_order(
            logs in prop::collection::vec((0_usize..3, 0_u64..9_000_000, any::<bool>()), 0..200),
            window in 0_u64..10_000_000,
        ) {
            let (mut merge, mut latest, mut found) = (Merge::default(), 0, Vec::new());
            for (log, time, is_second) in &logs {
                let second = time / SECOND;
                merge.push(*log, entry(if *is_second { second * SECOND } else { *time }, is_second.then_some(second)));
                latest = latest.max(*time);
                merge.advance(Timestamp(latest.saturating_sub(window)));
                found.extend(arrivals(&mut merge));
            }
            merge.advance(Timestamp(u64::MAX));
            found.extend(arrivals(&mut merge));
            prop_assert_eq!(found.len(), logs.len());
            prop_assert!(found.is_sorted());
            if window >= 9_000_000 {
                prop_assert_eq!(merge.late, 0);
            }
        }
    }
}
