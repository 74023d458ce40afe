//! A simulated server.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::events::Time;
use super::scenario::Discipline;

/// Works at requests in its own time, which goes on with the speed of one slot.
#[derive(Debug)]
pub(super) struct Server {
    slots: usize,
    discipline: Discipline,
    speed: f64,
    /// The work that one slot has done since the start.
    done: f64,
    /// When that was computed.
    at: f64,
    active: BinaryHeap<Reverse<(Time, u32)>>,
    waiting: VecDeque<(u32, f64)>,
    /// Incremented with each change, so that events planned before it are recognised.
    pub version: u32,
}

impl Server {
    pub fn new(slots: usize, discipline: Discipline) -> Self {
        Self {
            slots,
            discipline,
            speed: 1.0,
            done: 0.0,
            at: 0.0,
            active: BinaryHeap::new(),
            waiting: VecDeque::new(),
            version: 0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn rate(&self) -> f64 {
        match self.discipline {
            Discipline::ProcessorSharing if self.active.len() > self.slots => {
                self.speed * self.slots as f64 / self.active.len() as f64
            }
            _ => self.speed,
        }
    }

    fn advance(&mut self, now: f64) {
        self.done += (now - self.at) * self.rate();
        self.at = now;
        self.version += 1;
    }

    pub fn set_speed(&mut self, speed: f64, now: f64) {
        self.advance(now);
        self.speed = speed;
    }

    pub fn add(&mut self, request: u32, work: f64, now: f64) {
        self.advance(now);
        if self.discipline == Discipline::ProcessorSharing || self.active.len() < self.slots {
            self.active.push(Reverse((Time(self.done + work), request)));
        } else {
            self.waiting.push_back((request, work));
        }
    }

    /// The request that is complete, when [`Self::next`] has come.
    pub fn complete(&mut self, now: f64) -> Option<u32> {
        self.advance(now);
        let Reverse((_, request)) = self.active.pop()?;
        if let Some((next, work)) = self.waiting.pop_front() {
            self.active.push(Reverse((Time(self.done + work), next)));
        }
        Some(request)
    }

    /// When the next request will be complete, unless something changes.
    pub fn next(&self) -> Option<f64> {
        let Reverse((Time(done), _)) = self.active.peek()?;
        Some(self.at + (done - self.done).max(0.0) / self.rate())
    }
}
