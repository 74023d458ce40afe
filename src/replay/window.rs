//! How long requests are held to put them in the order of their arrival, and how far a log was read.

use crate::time::{Micros, Timestamp};

/// The longest window that follows from the delays in a log.
const LONGEST: Micros = Micros(300 * Micros::SECOND.0);

/// How long requests are held. It grows with the delays in a log, because servers log a request when it has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReorderWindow {
    pub(super) shortest: Micros,
    pub(super) current: Micros,
    longest: Micros,
}

impl ReorderWindow {
    /// The window that is `set`, which never changes; otherwise one that begins with `shortest`.
    pub(super) fn new(set: Option<Micros>, shortest: Micros) -> Self {
        let shortest = set.unwrap_or(shortest);
        Self { shortest, current: shortest, longest: set.unwrap_or(LONGEST) }
    }

    /// Makes it as long as the delay of a request, if it can be as long: a longer delay may be a wrong time.
    pub(super) fn widen(&mut self, delay: Micros) {
        if delay <= self.longest {
            self.current = self.current.max(delay);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_up_to_a_bound() {
        let mut window = ReorderWindow::new(None, Micros(7));
        for (delay, current) in [(5, 7), (9, 9), (300_000_000, 300_000_000), (300_000_001, 300_000_000)] {
            window.widen(Micros(delay));
            assert_eq!((window.shortest, window.current), (Micros(7), Micros(current)));
        }
        let mut window = ReorderWindow::new(None, Micros(7));
        window.widen(Micros(300_000_001));
        assert_eq!(window.current, Micros(7));
        let mut window = ReorderWindow::new(Some(Micros(2)), Micros(7));
        window.widen(Micros(3));
        assert_eq!(window.current, Micros(2));
    }
}
