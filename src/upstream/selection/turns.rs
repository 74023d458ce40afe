//! Weighted round robin in logarithmic time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use smallvec::SmallVec;

/// The time between two turns of an endpoint of share 1, in units of a virtual time. Shares are at most a million.
const SPAN: u64 = 1 << 40;
/// When the virtual time has reached this, it starts again from 0.
const LATEST: u64 = 1 << 62;

/// The turns of endpoints: each has its next one at a virtual time, then again after a stride that is inverse to its share,
/// and the earliest is next (earliest deadline first). So a server of weight 2 among two of weight 1 gets every other
/// request, not two in a row.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: BinaryHeap<Turn>,
    /// Whether each endpoint loses its next turn.
    losing: Vec<bool>,
    /// The time of the last turn that was taken.
    now: u64,
}

/// The next turn of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    at: u64,
    stride: u64,
    index: usize,
}

impl Turns {
    /// Sets the share of each endpoint; those without one get no turn. An endpoint that had a share keeps its place.
    pub fn set_shares(&mut self, shares: &[u32]) {
        let mut known = vec![None; shares.len()];
        for turn in self.queue.drain() {
            known[turn.index] = Some(turn);
        }
        let mut turns = Vec::with_capacity(shares.len());
        let mut added = Vec::new();
        for (index, &share) in shares.iter().enumerate().filter(|(_, share)| **share > 0) {
            let stride = SPAN / u64::from(share);
            match known[index] {
                Some(Turn { at, stride: before, .. }) => {
                    let left = scaled(at - self.now, stride, before);
                    turns.push(Turn { at: self.now + left, stride, index });
                }
                None => added.push(index),
            }
        }
        // The turns of endpoints with the same share are spread over their stride, so that they do not all come at once
        // between the turns of an endpoint with a larger share.
        added.sort_by_key(|index| shares[*index]);
        for equal in added.chunk_by(|one, other| shares[*one] == shares[*other]) {
            let stride = SPAN / u64::from(shares[equal[0]]);
            let parts = 2 * equal.len() as u64;
            turns.extend((1..).step_by(2).zip(equal).map(|(part, &index)| {
                let at = self.now + scaled(part, stride, parts);
                Turn { at, stride, index }
            }));
        }
        self.queue = turns.into();
        self.losing.resize(shares.len(), false);
    }

    /// Makes an endpoint that has failed lose its next turn. The retry takes a turn of another endpoint; without this, the
    /// failed one would be first again for the next request.
    pub fn lose(&mut self, index: usize) {
        if let Some(is_losing) = self.losing.get_mut(index) {
            *is_losing = true;
        }
    }

    /// Takes the next turn of an eligible endpoint, and returns its index; none if there is no such endpoint. Endpoints
    /// that are passed over come next, but they do not collect turns.
    pub fn next(&mut self, is_eligible: impl Fn(usize) -> bool) -> Option<usize> {
        let mut passed: SmallVec<[Turn; 8]> = SmallVec::new();
        let taken = loop {
            let Some(mut turn) = self.queue.peek_mut() else { break None };
            if std::mem::take(&mut self.losing[turn.index]) {
                turn.at += turn.stride;
                continue;
            }
            if is_eligible(turn.index) {
                self.now = turn.at;
                turn.at += turn.stride;
                break Some(turn.index);
            }
            passed.push(PeekMut::pop(turn));
        };
        for turn in passed {
            self.queue.push(Turn { at: turn.at.max(self.now), ..turn });
        }
        if self.now >= LATEST {
            self.start_again();
        }
        taken
    }

    /// Shifts all turns so that the virtual time is 0.
    fn start_again(&mut self) {
        let now = std::mem::take(&mut self.now);
        let shifted = |turn: Turn| Turn { at: turn.at - now, ..turn };
        self.queue = self.queue.drain().map(shifted).collect();
    }
}

impl Ord for Turn {
    /// The earliest turn is the greatest; at the same time, the one of the larger share.
    fn cmp(&self, other: &Self) -> Ordering {
        count_step();
        (other.at, other.stride, other.index).cmp(&(self.at, self.stride, self.index))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `part / whole` of `span`, where `part` is at most `whole`.
fn scaled(part: u64, span: u64, whole: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(span) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(span)
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts a step, in tests.
#[inline]
pub(super) fn count_step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// The number of steps of this thread since the last call.
#[cfg(test)]
pub(super) fn take_steps() -> usize {
    STEPS.replace(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(shares: &[u32]) -> Turns {
        let mut turns = Turns::default();
        turns.set_shares(shares);
        turns
    }

    fn take(turns: &mut Turns, count: usize) -> Vec<usize> {
        (0..count).map(|_| turns.next(|_| true).unwrap()).collect()
    }

    #[test]
    fn small_shares_are_spread_between_the_turns_of_a_large_one() {
        assert_eq!(take(&mut turns(&[1, 3, 1, 1]), 12), [1, 0, 1, 2, 1, 3, 1, 0, 1, 2, 1, 3]);
        // At no time has an endpoint had a turn more or less than its share.
        let shares: Vec<u32> = (1..=40).map(|number| number * number % 37 + 1).collect();
        let (mut turns, sum) = (turns(&shares), shares.iter().sum::<u32>());
        let mut taken = vec![0; shares.len()];
        for total in 1..=sum {
            taken[turns.next(|_| true).unwrap()] += 1;
            for (taken, share) in taken.iter().zip(&shares) {
                let fair = f64::from(total) * f64::from(*share) / f64::from(sum);
                assert!(
                    (f64::from(*taken) - fair).abs() < 2.0,
                    "{taken} of {total} turns for {share} of {sum}"
                );
            }
        }
        assert_eq!(taken, shares);
    }

    #[test]
    fn a_changed_share_keeps_the_place_of_an_endpoint() {
        let mut turns = turns(&[1000; 4]);
        assert_eq!(take(&mut turns, 2), [0, 1]);
        turns.set_shares(&[1000; 4]);
        assert_eq!(take(&mut turns, 2), [2, 3]);
        // A share that grows from almost nothing, as in slow start.
        for share in 1..=1000 {
            turns.set_shares(&[1000, share, 1000, 1000]);
            assert_ne!(turns.next(|_| true), None);
        }
        let taken = take(&mut turns, 400);
        assert!((0..4).all(|index| taken.iter().filter(|one| **one == index).count().abs_diff(100) <= 1));
    }

    #[test]
    fn endpoints_that_are_passed_over_collect_no_turns() {
        let mut turns = turns(&[1; 3]);
        (0..50).for_each(|_| assert_ne!(turns.next(|index| index != 1), Some(1)));
        let taken = take(&mut turns, 9);
        assert!(taken.iter().filter(|one| **one == 1).count() <= 4, "{taken:?}");
        assert_eq!(turns.next(|_| false), None);
        assert_eq!(take(&mut turns, 3).len(), 3);
    }

    #[test]
    fn a_failed_endpoint_loses_a_turn() {
        let mut turns = turns(&[1; 2]);
        let mut first = Vec::new();
        for _ in 0..6 {
            let index = turns.next(|_| true).unwrap();
            first.push(index);
            if index == 0 {
                turns.lose(0);
                assert_eq!(turns.next(|index| index != 0), Some(1));
            }
        }
        assert_eq!(first, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn turns_continue_when_the_virtual_time_starts_again() {
        let mut turns = turns(&[1, 1, 1]);
        assert_eq!(take(&mut turns, 1), [0]);
        turns.now += LATEST;
        turns.queue = turns.queue.drain().map(|turn| Turn { at: turn.at + LATEST, ..turn }).collect();
        assert_eq!(take(&mut turns, 6), [1, 2, 0, 1, 2, 0]);
        assert!(turns.now < LATEST);
    }
}
