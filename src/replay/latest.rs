//! How far a log was read.

use crate::time::{Micros, Timestamp};

/// A longer time without requests is unusual.
const JUMP: Micros = Micros(3_600 * Micros::SECOND.0);

/// The latest arrival in a log. Ends of responses would be too late in logs that are sorted by arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    pub(super) time: Timestamp,
    /// Whether the last line was later by more than `JUMP`.
    has_jumped: bool,
}

impl Latest {
    pub(super) fn new(time: Timestamp) -> Self {
        Self { time, has_jumped: false }
    }

    /// Counts a further arrival. One that is much later counts only if the next one confirms it: otherwise one wrong time
    /// would make all lines after it late.
    pub(super) fn add(&mut self, arrival: Timestamp) {
        let is_jump = arrival > self.time.after(JUMP);
        let is_confirmed = std::mem::replace(&mut self.has_jumped, is_jump);
        if !is_jump || is_confirmed {
            self.time = self.time.max(arrival);
            self.has_jumped = false;
        }
    }
}
