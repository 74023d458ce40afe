//! What was counted for one limit, by time.

use std::collections::{HashSet, VecDeque};

use super::pair::{Pair, TopBy};
use super::summary::Summary;

/// The seconds of a tick, the unit of [`Tick`].
pub(super) const TICK_SECONDS: u64 = 10;

/// A time since the start of the process, in units of [`TICK_SECONDS`].
pub(super) type Tick = u64;

/// The time over which events are counted. It consists of slots, the last of which has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One minute, in slots of ten seconds.
    Minute,
    /// Ten minutes, in slots of a minute.
    TenMinutes,
    /// An hour, in slots of five minutes.
    Hour,
}

/// The summaries of one limit, in the slots of each window.
#[derive(Debug, Default)]
pub(super) struct History {
    windows: [VecDeque<Slot>; Window::ALL.len()],
}

#[derive(Debug)]
struct Slot {
    /// Counted from the start of the process.
    number: u64,
    counted: Pair<Summary>,
}

impl Window {
    /// Every window, in the order of the type.
    pub const ALL: [Self; 3] = [Self::Minute, Self::TenMinutes, Self::Hour];

    /// The length of the window.
    #[must_use]
    pub const fn minutes(self) -> u64 {
        match self {
            Self::Minute => 1,
            Self::TenMinutes => 10,
            Self::Hour => 60,
        }
    }

    /// The ticks of a slot, and the number of slots.
    const fn slots(self) -> (u64, u64) {
        match self {
            Self::Minute => (1, 6),
            Self::TenMinutes => (6, 10),
            Self::Hour => (30, 12),
        }
    }

    /// The first tick of the window that ends now.
    pub(super) fn first_tick(self, now: Tick) -> Tick {
        let (length, count) = self.slots();
        (now / length + 1).saturating_sub(count) * length
    }
}

impl History {
    /// Adds what was counted in a tick. Ticks must not decrease.
    pub fn add(&mut self, tick: Tick, counted: &Pair<Summary>) {
        for (window, slots) in Window::ALL.into_iter().zip(&mut self.windows) {
            let (length, count) = window.slots();
            let number = tick / length;
            while slots.front().is_some_and(|oldest| oldest.number + count <= number) {
                slots.pop_front();
            }
            match slots.back_mut().filter(|newest| newest.number == number) {
                Some(newest) => newest.counted.merge(counted),
                None => slots.push_back(Slot { number, counted: counted.clone() }),
            }
        }
    }

    /// What was counted in the window that ends now.
    pub fn summary(&self, window: Window, by: TopBy, now: Tick) -> Summary {
        let mut summary = Summary::default();
        for slot in self.slots(window, now) {
            summary.merge(slot.counted.get(by));
        }
        summary
    }

    /// How many keys with denials have a counter in a slot of the window that ends now.
    pub fn denied_keys(&self, window: Window, now: Tick) -> usize {
        let counters = self.slots(window, now).flat_map(|slot| slot.counted.denials.counters());
        counters.map(|counter| counter.key).collect::<HashSet<_>>().len()
    }

    /// The slots of the window that ends now.
    fn slots(&self, window: Window, now: Tick) -> impl Iterator<Item = &Slot> {
        let first = window.first_tick(now) / window.slots().0;
        self.windows[window as usize].iter().filter(move |slot| slot.number >= first)
    }
}
