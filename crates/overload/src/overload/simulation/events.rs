//! What will happen, by time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Seconds since the start, or an amount of work; they can be ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time(pub f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A client of a group may send a request.
    Arrive(usize),
    /// A client repeats a request.
    Retry(u32),
    /// A server has completed a request, if its version is this.
    Complete(usize, u32),
    /// The head of a response comes to the proxy.
    Head(u32),
    /// The end of a response comes.
    End(u32),
    /// A client gives up.
    GiveUp(u32),
    /// The queue of a proxy has a deadline.
    Expire(usize),
    /// A server changes.
    Change(usize),
    /// A point of the trace.
    Trace,
}

/// Events by time; those of one time in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    added: u64,
}

impl Events {
    pub fn add(&mut self, time: f64, event: Event) {
        self.added += 1;
        self.heap.push(Reverse((Time(time), self.added, event)));
    }

    pub fn next(&mut self) -> Option<(f64, Event)> {
        self.heap.pop().map(|Reverse((Time(time), _, event))| (time, event))
    }
}
