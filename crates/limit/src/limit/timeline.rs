//! Units by the time at which they were spent: a packed list that sliding log and sliding window share.
//!
//! Twin of `lua/timeline.lua`. An entry is one word: a position in its lower `BITS` bits, and above them the
//! running total of all units up to it. So the units since any entry are one subtraction, and each value that
//! a decision needs is a binary search. Both fields wrap around: only differences count.

use std::num::NonZeroU64;

use super::clock::MAX_SKEW;
use crate::time::{Micros, Timestamp};

/// The longest period of either algorithm, in microseconds: more than a year. Every age fits a log's entry,
/// and every time that a script works with stays exact in a double.
pub(super) const LONGEST_PERIOD: u64 = 1 << 45;

/// Entries in the order of their positions, the newest last, at most one for each position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline<const BITS: u32> {
    /// When the newest entry was made. The positions of all others count from it, so a clock that was set
    /// back moves all entries by moving this.
    pub stamp: Timestamp,
    /// The running total before the first entry.
    pub base: u64,
    /// The entries.
    pub words: Box<[u64]>,
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionTime {
    /// When the request is counted.
    pub at: Timestamp,
    /// When the newest entry is counted.
    pub stamp: Timestamp,
    /// Whether the clock was set back, so that the state had to move.
    pub set_back: bool,
}

/// Units that are spent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry {
    /// The new stamp of the list.
    pub at: Timestamp,
    /// The position of the entry.
    pub position: u64,
    /// How far after the newest entry that is; zero adds the units to it.
    pub ahead: u64,
    /// How many units.
    pub units: u64,
}

impl DecisionTime {
    /// An entry that lies fewer microseconds than this before the newest is inside `period`.
    pub(super) fn reach(self, period: Micros) -> u64 {
        period.0.saturating_sub(self.at.since(self.stamp).0)
    }
}

impl<const BITS: u32> Timeline<BITS> {
    const POSITIONS: u64 = (1 << BITS) - 1;
    const TOTALS: u64 = u64::MAX >> BITS;

    /// An empty list as of `stamp`.
    pub(super) fn empty(stamp: Timestamp) -> Self {
        Self { stamp, base: 0, words: Box::default() }
    }

    /// The time of a decision at `now`. If the clock was set back, the list moves by whole steps of `grid`, so that every
    /// entry keeps its offset in the grid; the rest of a step is treated as skew between clocks.
    pub(super) fn present(&self, now: Timestamp, grid: NonZeroU64) -> DecisionTime {
        let ahead = self.stamp.since(now);
        let shift = if ahead > MAX_SKEW { ahead.0 - ahead.0 % grid } else { 0 };
        let stamp = Timestamp(self.stamp.0 - shift);
        DecisionTime { at: now.max(stamp), stamp, set_back: shift > 0 }
    }

    /// This list after the clock was set back.
    pub(super) fn moved(&self, present: DecisionTime) -> Self {
        Self { stamp: present.stamp, ..self.clone() }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// How many positions before the newest entry this one lies.
    pub(super) fn age(&self, index: usize) -> u64 {
        self.age_of(self.words[index])
    }

    /// The units of the entry at `index`.
    pub(super) fn spent_at(&self, index: usize) -> u64 {
        Self::total(self.words[index]).wrapping_sub(self.total_before(index)) & Self::TOTALS
    }

    /// The units of the entry at `index` and all after it; zero at the end.
    pub(super) fn spent_from(&self, index: usize) -> u64 {
        self.newest_total().wrapping_sub(self.total_before(index)) & Self::TOTALS
    }

    /// The index of the first entry that lies fewer than `age` positions before the newest.
    pub(super) fn first_younger(&self, age: u64) -> usize {
        self.words.partition_point(|&word| self.age_of(word) >= age)
    }

    /// The index of the first entry, not before `low`, after which at most `units` were spent.
    pub(super) fn first_before(&self, low: usize, units: u64) -> usize {
        let newest = self.newest_total();
        let after = |word| newest.wrapping_sub(Self::total(word)) & Self::TOTALS;
        low + self.words[low..].partition_point(|&word| after(word) > units)
    }

    /// This list without the entries before `first`, and with a newer entry. If no entry is left, the totals start again.
    pub(super) fn charged(&self, first: usize, entry: NewEntry) -> Self {
        let NewEntry { at, position, ahead, units } = entry;
        let Some(&newest) = self.words[first..].last() else {
            return Self { stamp: at, base: 0, words: Box::new([Self::word(position, units)]) };
        };
        let end = self.len() - usize::from(ahead == 0);
        let mut words = Vec::with_capacity(end - first + 1);
        words.extend_from_slice(&self.words[first..end]);
        words.push(Self::word(newest.wrapping_add(ahead), Self::total(newest).wrapping_add(units)));
        Self { stamp: at, base: self.total_before(first), words: words.into() }
    }

    /// This list without the entries before `first`, and without `units` of the entry that lies `age` positions before
    /// the newest, if there is one; and how far before the newest entry the newest of the result lies.
    pub(super) fn refunded(&self, first: usize, age: u64, units: u64) -> Option<(Self, u64)> {
        let index = self.first_younger(age.checked_add(1)?).max(first);
        let spent = (index < self.len() && self.age(index) == age).then(|| self.spent_at(index))?;
        let back = Some(units.min(spent)).filter(|back| *back > 0)?;
        let less = |&word: &u64| Self::word(word, Self::total(word).wrapping_sub(back));
        let mut words = self.words[first..index].to_vec();
        words.extend(self.words[index + usize::from(back == spent)..].iter().map(less));
        let gap = words.last().map_or(0, |&last| self.age_of(last));
        Some((Self { stamp: self.stamp, base: self.total_before(first), words: words.into() }, gap))
    }

    /// This list without the entries before `first`, and with `units` more at the position that lies `age` before the
    /// newest; there must be an entry from `first` on.
    pub(super) fn inserted(&self, first: usize, age: u64, units: u64) -> Self {
        let index = self.first_younger(age.saturating_add(1)).max(first);
        let more = |word: u64| Self::word(word, Self::total(word).wrapping_add(units));
        let mut words = Vec::with_capacity(self.len() - first + 1);
        words.extend_from_slice(&self.words[first..index]);
        if self.words.get(index).is_none_or(|&word| self.age_of(word) != age) {
            let newest = self.words.last().copied().unwrap_or_default();
            words.push(Self::word(newest.wrapping_sub(age), self.total_before(index).wrapping_add(units)));
        }
        words.extend(self.words[index..].iter().map(|&word| more(word)));
        Self { stamp: self.stamp, base: self.total_before(first), words: words.into() }
    }

    fn word(position: u64, total: u64) -> u64 {
        (total << BITS) | (position & Self::POSITIONS)
    }

    fn total(word: u64) -> u64 {
        word >> BITS
    }

    fn age_of(&self, word: u64) -> u64 {
        let newest = self.words.last().copied().unwrap_or_default();
        newest.wrapping_sub(word) & Self::POSITIONS
    }

    fn newest_total(&self) -> u64 {
        self.total_before(self.len())
    }

    fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(self.base, |before| Self::total(self.words[before]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = Timeline<16>;

    /// Entries at these positions of these costs, the first one at `START`.
    fn line(entries: &[(u64, u64)]) -> Line {
        const START: u64 = 65_530;
        let mut line = Line::empty(Timestamp(0));
        let mut last = 0;
        for &(position, cost) in entries {
            let (at, ahead) = (Timestamp(position), position - last);
            line = line.charged(0, NewEntry { at, position: START + position, ahead, units: cost });
            last = position;
        }
        line
    }

    #[test]
    fn ages_and_sums_are_right_across_the_wraparound() {
        let line = line(&[(0, 5), (4, 7), (9, 1), (20, 2)]);
        assert_eq!((0..4).map(|index| line.age(index)).collect::<Vec<_>>(), [20, 16, 11, 0]);
        assert_eq!((0..=4).map(|index| line.spent_from(index)).collect::<Vec<_>>(), [15, 10, 3, 2, 0]);
        let most = (1 << 48) - 1;
        let shifted = Line {
            base: most - 7,
            words: line.words.iter().map(|word| word.wrapping_add((most - 7) << 16)).collect(),
            ..line.clone()
        };
        for index in 0..=4 {
            assert_eq!(line.spent_from(index), shifted.spent_from(index));
        }
        for units in 0..16 {
            assert_eq!(line.first_before(0, units), shifted.first_before(0, units));
        }
    }

    #[test]
    fn searches_find_the_first_entry() {
        let line = line(&[(0, 5), (4, 7), (9, 1), (20, 2)]);
        for (age, index) in [(0, 4), (1, 3), (11, 3), (12, 2), (16, 2), (17, 1), (20, 1), (21, 0)] {
            assert_eq!(line.first_younger(age), index, "{age}");
        }
        for (units, index) in [(0, 3), (1, 3), (2, 2), (3, 1), (9, 1), (10, 0), (99, 0)] {
            assert_eq!(line.first_before(0, units), index, "{units}");
        }
        assert_eq!(line.first_before(2, 99), 2);
    }

    #[test]
    fn units_at_one_position_share_an_entry() {
        let line = line(&[(3, 5), (3, 7), (3, 1)]);
        assert_eq!((line.len(), line.spent_from(0), line.spent_at(0)), (1, 13, 13));
    }

    #[test]
    fn totals_of_removed_entries_go_into_the_base() {
        let cut = line(&[(0, 5), (4, 7), (9, 1)])
            .charged(2, NewEntry { at: Timestamp(12), position: 0, ahead: 3, units: 4 });
        assert_eq!((cut.base, cut.len(), cut.spent_from(0), cut.age(0)), (12, 2, 5, 3));
        let restarted = cut.charged(2, NewEntry { at: Timestamp(99), position: 7, ahead: 87, units: 6 });
        assert_eq!(restarted, Line { stamp: Timestamp(99), base: 0, words: Box::new([(6 << 16) | 7]) });
    }
}
