//! Penalties of a key beside its quota: bans after repeated denials, and blocks by operators.
//!
//! Twin of `lua/penalty.lua`.

use super::clock::MAX_SKEW;
use super::rate::MAX_TICKS;
use crate::time::{Micros, Timestamp};

/// When a key that is denied repeatedly is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// This many denials …
    pub after: u64,
    /// … in a window of this length, which starts with the first …
    pub within: Micros,
    /// … ban the key for this long.
    pub length: Micros,
}

/// The denials of a key, its ban and its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Penalty {
    /// When it last changed.
    pub stamp: Timestamp,
    /// Denials in the present window.
    pub denials: u64,
    /// When that window started.
    pub opened: Timestamp,
    /// When the ban ends.
    pub banned: Timestamp,
    /// When the block ends.
    pub blocked: Timestamp,
}

impl Penalty {
    /// The penalty as of `now`, and whether the clock was set back, so that it had to move.
    #[must_use]
    pub fn updated(self, now: Timestamp) -> (Self, bool) {
        if self.stamp <= now.after(MAX_SKEW) {
            return (Self { stamp: now.max(self.stamp), ..self }, false);
        }
        let shift = self.stamp.0 - now.0;
        let back = |at: Timestamp| Timestamp(at.0.saturating_sub(shift));
        let moved = Self {
            stamp: now,
            denials: self.denials,
            opened: back(self.opened),
            banned: back(self.banned),
            blocked: back(self.blocked),
        };
        (moved, true)
    }

    /// Whether the block is active at the stamp.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked > self.stamp
    }

    /// Whether the ban is active at the stamp.
    #[must_use]
    pub fn is_banned(&self) -> bool {
        self.banned > self.stamp
    }

    /// The end of the active ban or block, if there is one.
    #[must_use]
    pub fn end(&self) -> Option<Timestamp> {
        (self.is_blocked() || self.is_banned()).then(|| self.banned.max(self.blocked))
    }

    /// Counts a denial; the last of the threshold starts the ban.
    #[must_use]
    pub fn count_denial(self, ban: &Ban) -> Self {
        let is_open = self.denials > 0 && self.stamp < self.opened.after(ban.within);
        let opened = if is_open { self.opened } else { self.stamp };
        let denials = if is_open { self.denials + 1 } else { 1 };
        if denials < ban.after {
            return Self { denials, opened, ..self };
        }
        Self { denials: 0, opened: Timestamp(0), banned: self.end_after(ban.length), ..self }
    }

    /// The end of a ban or block of `length` from the stamp; at most the last time that a state can hold.
    #[must_use]
    pub fn end_after(&self, length: Micros) -> Timestamp {
        self.stamp.after(length).min(Timestamp(MAX_TICKS))
    }

    /// How long the penalty differs from none, counted from `now`. Denials are ignored without a ban.
    #[must_use]
    pub fn lifetime(&self, ban: Option<&Ban>, now: Timestamp) -> Micros {
        let counting = ban.filter(|_| self.denials > 0).map(|ban| self.opened.after(ban.within));
        let end = self.banned.max(self.blocked).max(counting.unwrap_or_default());
        Micros(end.0.saturating_sub(now.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAN: Ban = Ban { after: 3, within: Micros(10), length: Micros(100) };

    fn at(stamp: u64, penalty: Penalty) -> Penalty {
        penalty.updated(Timestamp(stamp)).0
    }

    #[test]
    fn denials_are_counted_in_a_window_that_the_first_starts() {
        let one = at(5, Penalty::default()).count_denial(&BAN);
        let two = at(14, one).count_denial(&BAN);
        assert!(!two.is_banned());
        assert!(at(14, two).count_denial(&BAN).is_banned());
        let late = at(15, two).count_denial(&BAN);
        assert_eq!((late.denials, late.opened), (1, Timestamp(15)));
    }

    #[test]
    fn a_ban_expires() {
        let banned = (0..3).fold(at(50, Penalty::default()), |penalty, _| penalty.count_denial(&BAN));
        assert_eq!(banned.end(), Some(Timestamp(150)));
        assert_eq!(banned.lifetime(Some(&BAN), Timestamp(50)), Micros(100));
        assert!(at(149, banned).is_banned() && !at(150, banned).is_banned());
    }

    #[test]
    fn a_clock_set_back_keeps_the_rest_of_a_ban() {
        let penalty =
            Penalty { stamp: Timestamp(90_000_000), banned: Timestamp(95_000_000), ..Penalty::default() };
        let (moved, set_back) = penalty.updated(Timestamp(20_000_000));
        assert!(set_back && moved.is_banned());
        assert_eq!(moved.end(), Some(Timestamp(25_000_000)));
    }
}
