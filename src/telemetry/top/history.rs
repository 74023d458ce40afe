//! What was counted for one limit, by time.

use std::collections::{HashSet, VecDeque};

use super::sketch::{DeniedAndAll, TopBy};
use super::summary::Summary;
use crate::limit::Key;

/// The seconds of a tick, the unit of [`Tick`].
pub(super) const TICK_SECONDS: u64 = 10;

/// A time since the start of the process, in units of [`TICK_SECONDS`].
pub(super) type Tick = u64;

/// The time over which events are counted. It consists of slots, the last of which has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopWindow {
    /// One minute, in slots of ten seconds.
    Minute,
    /// Ten minutes, in slots of a minute.
    TenMinutes,
    /// An hour, in slots of five minutes.
    Hour,
}

/// The summaries of one limit, in the slots of each window.
#[derive(Debug, Default)]
pub(super) struct WindowHistory {
    windows: [VecDeque<Slot>; TopWindow::ALL.len()],
}

#[derive(Debug)]
struct Slot {
    /// Counted from the start of the process.
    number: u64,
    counted: DeniedAndAll<Summary>,
}

/// A slot of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowSlot {
    window: TopWindow,
    number: u64,
}

/// What was counted of a key in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyCounts {
    pub traffic: u64,
    pub denials: u64,
    /// By how much a count may be too high, or too low for a key without a counter.
    pub max_error: u64,
}

impl TopWindow {
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

impl WindowSlot {
    /// The last hour without gaps and overlaps, the oldest first: in slots of ten seconds for the last minute, of a minute
    /// for the last ten minutes, and of five minutes before.
    pub fn last_hour(now: Tick) -> Vec<Self> {
        let mut spans = Vec::new();
        let mut start = TopWindow::Hour.first_tick(now);
        let next_shorter = [
            (TopWindow::Hour, Some(TopWindow::TenMinutes)),
            (TopWindow::TenMinutes, Some(TopWindow::Minute)),
        ];
        for (window, shorter) in next_shorter.into_iter().chain([(TopWindow::Minute, None)]) {
            let (length, _) = window.slots();
            // A shorter window starts within a slot, whose rest has ended before now.
            let end = shorter.map_or(now + 1, |shorter| shorter.first_tick(now).next_multiple_of(length));
            spans.extend((start / length..end / length).map(|number| Self { window, number }));
            start = start.max(end);
        }
        spans
    }

    /// Its first tick.
    pub fn start(self) -> Tick {
        self.number * self.window.slots().0
    }
}

impl WindowHistory {
    /// What was counted of a key in a slot.
    pub fn of_key(&self, key: Key, span: WindowSlot) -> KeyCounts {
        let slot = self.windows[span.window as usize].iter().find(|slot| slot.number == span.number);
        let Some(Slot { counted: DeniedAndAll { denials, traffic }, .. }) = slot else {
            return KeyCounts::default();
        };
        let count = |summary: &Summary| summary.find(key).map_or(0, |counter| counter.count);
        let max_error = denials.max_error().max(traffic.max_error());
        KeyCounts { traffic: count(traffic), denials: count(denials), max_error }
    }

    /// Adds what was counted in a tick. Ticks must not decrease.
    pub fn add(&mut self, tick: Tick, counted: &DeniedAndAll<Summary>) {
        for (window, slots) in TopWindow::ALL.into_iter().zip(&mut self.windows) {
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
    pub fn summary(&self, window: TopWindow, by: TopBy, now: Tick) -> Summary {
        let mut summary = Summary::default();
        for slot in self.slots(window, now) {
            summary.merge(slot.counted.get(by));
        }
        summary
    }

    /// How many keys with denials have a counter in a slot of the window that ends now.
    pub fn denied_keys(&self, window: TopWindow, now: Tick) -> usize {
        let counters = self.slots(window, now).flat_map(|slot| slot.counted.denials.counters());
        counters.map(|counter| counter.key).collect::<HashSet<_>>().len()
    }

    /// The slots of the window that ends now.
    fn slots(&self, window: TopWindow, now: Tick) -> impl Iterator<Item = &Slot> {
        let first = window.first_tick(now) / window.slots().0;
        self.windows[window as usize].iter().filter(move |slot| slot.number >= first)
    }
}
