//! What was spent when: a packed list that a sliding log and a sliding window share.
//!
//! Twin of `lua/timeline.lua`. An entry is one word: a position in its lower `BITS` bits, and above them the
//! running total of all that was spent up to there. So what was spent since any entry is one subtraction, and
//! everything that a decision asks for is a binary search. Both fields wrap around: only differences count.

use std::num::NonZeroU64;

use super::bucket::SET_BACK;
use crate::time::{Micros, Timestamp};

/// The longest period of either algorithm, in microseconds: more than a year. Every age fits a log's entry,
/// and every time that a script works with stays exact in a double.
pub(super) const LONGEST_PERIOD: u64 = 1 << 45;

/// Entries in the order of their positions, the newest last, at most one for each position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline<const BITS: u32> {
    /// When the newest entry was made. The positions of all others count from it, so a clock that was set
    /// back moves them all by moving this.
    pub stamp: Timestamp,
    /// The running total before the first entry.
    pub base: u64,
    /// The entries.
    pub words: Box<[u64]>,
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    /// When the request counts as made.
    pub at: Timestamp,
    /// When the newest entry counts as made.
    pub stamp: Timestamp,
    /// Whether the clock was set back, so that the state had to move.
    pub set_back: bool,
}

impl Present {
    /// An entry that lies fewer microseconds than this before the newest is inside `period`.
    pub(super) fn reach(self, period: Micros) -> u64 {
        period.0.saturating_sub(self.at.since(self.stamp).0)
    }
}

impl<const BITS: u32> Timeline<BITS> {
    const POSITIONS: u64 = (1 << BITS) - 1;
    const TOTALS: u64 = u64::MAX >> BITS;

    /// Nothing spent as of `stamp`.
    pub(super) fn empty(stamp: Timestamp) -> Self {
        Self { stamp, base: 0, words: Box::default() }
    }

    /// The time of a decision at `now`. Where the clock was set back all moves by whole steps of `grid`, so
    /// that every entry keeps its place in it; the last part of a step passes as if a clock were behind.
    pub(super) fn present(&self, now: Timestamp, grid: NonZeroU64) -> Present {
        let ahead = self.stamp.since(now);
        let shift = if ahead > SET_BACK { ahead.0 - ahead.0 % grid } else { 0 };
        let stamp = Timestamp(self.stamp.0 - shift);
        Present { at: now.max(stamp), stamp, set_back: shift > 0 }
    }

    /// The same list, moved to a clock that was set back.
    pub(super) fn moved(&self, present: Present) -> Self {
        Self { stamp: present.stamp, ..self.clone() }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// How many positions before the newest entry this one lies.
    pub(super) fn age(&self, place: usize) -> u64 {
        self.age_of(self.words[place])
    }

    /// What was spent by the entry at `place`.
    pub(super) fn spent_at(&self, place: usize) -> u64 {
        Self::total(self.words[place]).wrapping_sub(self.total_before(place)) & Self::TOTALS
    }

    /// What was spent by the entry at `place` and all after it; nothing at the end.
    pub(super) fn spent_from(&self, place: usize) -> u64 {
        self.newest_total().wrapping_sub(self.total_before(place)) & Self::TOTALS
    }

    /// The place of the first entry that lies fewer than `age` positions before the newest.
    pub(super) fn first_younger(&self, age: u64) -> usize {
        self.words.partition_point(|&word| self.age_of(word) >= age)
    }

    /// The place of the first entry, not before `low`, after which at most `units` were spent.
    pub(super) fn first_before(&self, low: usize, units: u64) -> usize {
        let newest = self.newest_total();
        let after = |word| newest.wrapping_sub(Self::total(word)) & Self::TOTALS;
        low + self.words[low..].partition_point(|&word| after(word) > units)
    }

    /// This list without what lies before `first`, and with `cost` units at a position that lies `ahead` of
    /// the newest. A list that has nothing left begins again, at `position`.
    pub(super) fn charged(&self, first: usize, at: Timestamp, ahead: u64, position: u64, cost: u64) -> Self {
        let Some(&newest) = self.words[first..].last() else {
            return Self { stamp: at, base: 0, words: Box::new([Self::word(position, cost)]) };
        };
        let end = self.len() - usize::from(ahead == 0);
        let mut words = Vec::with_capacity(end - first + 1);
        words.extend_from_slice(&self.words[first..end]);
        words.push(Self::word(newest.wrapping_add(ahead), Self::total(newest).wrapping_add(cost)));
        Self { stamp: at, base: self.total_before(first), words: words.into() }
    }

    /// This list without what lies before `first`, and without `units` of the entry that lies `age` positions before
    /// the newest, if there is one; and how far before the newest its own newest entry lies.
    pub(super) fn refunded(&self, first: usize, age: u64, units: u64) -> Option<(Self, u64)> {
        let place = self.first_younger(age.checked_add(1)?).max(first);
        let spent = (place < self.len() && self.age(place) == age).then(|| self.spent_at(place))?;
        let back = Some(units.min(spent)).filter(|back| *back > 0)?;
        let less = |&word: &u64| Self::word(word, Self::total(word).wrapping_sub(back));
        let mut words = self.words[first..place].to_vec();
        words.extend(self.words[place + usize::from(back == spent)..].iter().map(less));
        let gap = words.last().map_or(0, |&last| self.age_of(last));
        Some((Self { stamp: self.stamp, base: self.total_before(first), words: words.into() }, gap))
    }

    /// This list without what lies before `first`, and with `units` more at a position that lies `age` before the
    /// newest; it must have an entry from `first` on.
    pub(super) fn inserted(&self, first: usize, age: u64, units: u64) -> Self {
        let place = self.first_younger(age.saturating_add(1)).max(first);
        let more = |word: u64| Self::word(word, Self::total(word).wrapping_add(units));
        let mut words = Vec::with_capacity(self.len() - first + 1);
        words.extend_from_slice(&self.words[first..place]);
        if self.words.get(place).is_none_or(|&word| self.age_of(word) != age) {
            let newest = self.words.last().copied().unwrap_or_default();
            words.push(Self::word(newest.wrapping_sub(age), self.total_before(place).wrapping_add(units)));
        }
        words.extend(self.words[place..].iter().map(|&word| more(word)));
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

    fn total_before(&self, place: usize) -> u64 {
        place.checked_sub(1).map_or(self.base, |before| Self::total(self.words[before]))
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
            line = line.charged(0, Timestamp(position), position - last, START + position, cost);
            last = position;
        }
        line
    }

    #[test]
    fn ages_and_sums_do_not_see_that_numbers_wrap_around() {
        let line = line(&[(0, 5), (4, 7), (9, 1), (20, 2)]);
        assert_eq!((0..4).map(|place| line.age(place)).collect::<Vec<_>>(), [20, 16, 11, 0]);
        assert_eq!((0..=4).map(|place| line.spent_from(place)).collect::<Vec<_>>(), [15, 10, 3, 2, 0]);
        let most = (1 << 48) - 1;
        let shifted = Line {
            base: most - 7,
            words: line.words.iter().map(|word| word.wrapping_add((most - 7) << 16)).collect(),
            ..line.clone()
        };
        for place in 0..=4 {
            assert_eq!(line.spent_from(place), shifted.spent_from(place));
        }
        for units in 0..16 {
            assert_eq!(line.first_before(0, units), shifted.first_before(0, units));
        }
    }

    #[test]
    fn searches_find_the_first() {
        let line = line(&[(0, 5), (4, 7), (9, 1), (20, 2)]);
        for (age, place) in [(0, 4), (1, 3), (11, 3), (12, 2), (16, 2), (17, 1), (20, 1), (21, 0)] {
            assert_eq!(line.first_younger(age), place, "{age}");
        }
        for (units, place) in [(0, 3), (1, 3), (2, 2), (3, 1), (9, 1), (10, 0), (99, 0)] {
            assert_eq!(line.first_before(0, units), place, "{units}");
        }
        assert_eq!(line.first_before(2, 99), 2);
    }

    #[test]
    fn one_position_is_one_entry() {
        let line = line(&[(3, 5), (3, 7), (3, 1)]);
        assert_eq!((line.len(), line.spent_from(0), line.spent_at(0)), (1, 13, 13));
    }

    #[test]
    fn what_is_cut_goes_into_the_base() {
        let cut = line(&[(0, 5), (4, 7), (9, 1)]).charged(2, Timestamp(12), 3, 0, 4);
        assert_eq!((cut.base, cut.len(), cut.spent_from(0), cut.age(0)), (12, 2, 5, 3));
        let begun_again = cut.charged(2, Timestamp(99), 87, 7, 6);
        assert_eq!(begun_again, Line { stamp: Timestamp(99), base: 0, words: Box::new([(6 << 16) | 7]) });
    }
}
