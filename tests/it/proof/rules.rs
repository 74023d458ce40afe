//! The algorithms once more, in the simplest form: slow, and in integers without rounding.
//!
//! A rule only decides whether a request fits at some instant, and records the charged requests. All other fields of a decision
//! follow by their definition; see [`super::model`].

use std::collections::BTreeMap;

/// An algorithm. Times are microseconds, and never before the last charge.
pub trait Rule {
    /// The most units that can be available at once.
    fn limit(&self) -> u64;
    /// Whether `cost` units are available at `at` if nothing is charged meanwhile.
    fn fits(&self, at: u64, cost: u64) -> bool;
    /// Charges them.
    fn charge(&mut self, at: u64, cost: u64);
    /// Moves all recorded times back, since the clock was set back to `now`. Returns by how much.
    fn shift(&mut self, by: u64, now: u64) -> u64;
    /// When a request that arrives at `now` is forwarded.
    fn release(&self, now: u64) -> u64 {
        now
    }
    /// When the latest charge expires, if that differs from the time of a full refill.
    fn forgotten(&self) -> Option<u64> {
        None
    }
    fn copy(&self) -> Box<dyn Rule>;
}

fn whole(number: u64) -> i128 {
    i128::from(number)
}

/// `units` each `period`.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub units: u64,
    pub period: u64,
}

/// A bucket of tokens that are counted in parts: `period` of them are one token, and each microsecond adds `units`.
#[derive(Clone)]
pub struct Tokens {
    pub pace: Pace,
    pub capacity: u64,
    pub parts: i128,
    pub last: u64,
}

impl Tokens {
    pub fn full(pace: Pace, capacity: u64) -> Self {
        Self { pace, capacity, parts: whole(capacity) * whole(pace.period), last: 0 }
    }

    fn parts_at(&self, at: u64) -> i128 {
        let come = whole(at - self.last.min(at)) * whole(self.pace.units);
        (self.parts + come).min(whole(self.capacity) * whole(self.pace.period))
    }
}

impl Rule for Tokens {
    fn limit(&self) -> u64 {
        self.capacity
    }

    fn fits(&self, at: u64, cost: u64) -> bool {
        self.parts_at(at) >= whole(cost) * whole(self.pace.period)
    }

    fn charge(&mut self, at: u64, cost: u64) {
        self.parts = self.parts_at(at) - whole(cost) * whole(self.pace.period);
        self.last = at;
    }

    fn shift(&mut self, by: u64, _: u64) -> u64 {
        self.last = self.last.saturating_sub(by);
        by
    }

    fn copy(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}

/// A bucket that is refilled at each whole period since the request that found it full.
#[derive(Clone)]
pub struct Ticks {
    pub pace: Pace,
    pub capacity: u64,
    /// Since when ticks count, and how many units were spent since; nothing while the bucket is full.
    pub grid: Option<(i128, Vec<(i128, u64)>)>,
}

impl Ticks {
    /// Plays all that has happened since the bucket was full.
    fn tokens_at(&self, at: u64) -> i128 {
        let Some((origin, spent)) = &self.grid else { return whole(self.capacity) };
        let tick = |time: i128| (time - origin) / whole(self.pace.period);
        let (mut tokens, mut last) = (whole(self.capacity), 0);
        for (time, cost) in spent.iter().copied().chain([(whole(at), 0)]) {
            let come = whole(self.pace.units) * (tick(time) - last);
            last = tick(time);
            tokens = (tokens + come).min(whole(self.capacity)) - whole(cost);
        }
        tokens
    }
}

impl Rule for Ticks {
    fn limit(&self) -> u64 {
        self.capacity
    }

    fn fits(&self, at: u64, cost: u64) -> bool {
        self.tokens_at(at) >= whole(cost)
    }

    fn charge(&mut self, at: u64, cost: u64) {
        if self.tokens_at(at) == whole(self.capacity) {
            self.grid = Some((whole(at), Vec::new()));
        }
        self.grid.as_mut().unwrap().1.push((whole(at), cost));
    }

    fn shift(&mut self, by: u64, _: u64) -> u64 {
        if let Some((origin, spent)) = &mut self.grid {
            *origin -= whole(by);
            for (time, _) in spent {
                *time -= whole(by);
            }
        }
        by
    }

    fn copy(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}

/// The theoretical arrival time, in parts of a microsecond of which `units` are one. It spaces requests evenly, and delays early
/// ones if there is a queue.
#[derive(Clone)]
pub struct Spacing {
    pub pace: Pace,
    /// How many come early, beyond the one that is due.
    pub early: u64,
    pub arrival: i128,
    pub waits: bool,
}

impl Spacing {
    fn parts(&self, at: u64) -> i128 {
        whole(at) * whole(self.pace.units)
    }
}

impl Rule for Spacing {
    fn limit(&self) -> u64 {
        self.early + 1
    }

    fn fits(&self, at: u64, cost: u64) -> bool {
        let (now, span) = (self.parts(at), whole(self.pace.period));
        if self.waits {
            let wait = (self.arrival - now).max(0);
            return cost == 0 || wait + whole(cost - 1) * span <= whole(self.early) * span;
        }
        now.max(self.arrival) + whole(cost) * span - now <= whole(self.early + 1) * span
    }

    fn charge(&mut self, at: u64, cost: u64) {
        self.arrival = self.arrival.max(self.parts(at)) + whole(cost) * whole(self.pace.period);
    }

    fn shift(&mut self, by: u64, _: u64) -> u64 {
        self.arrival -= self.parts(by);
        by
    }

    fn release(&self, now: u64) -> u64 {
        if !self.waits || self.arrival <= self.parts(now) {
            return now;
        }
        let units = whole(self.pace.units);
        u64::try_from((self.arrival + units - 1) / units).unwrap()
    }

    fn copy(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}

/// The begin and the end of the window that contains an instant.
pub type Edges = fn(u64) -> (u64, u64);

/// The alignment of fixed windows.
#[derive(Clone, Copy)]
pub enum Grid {
    Multiples,
    FirstCharge,
    Calendar(Edges),
}

/// A count for each window.
#[derive(Clone)]
pub struct Windows {
    pub pace: Pace,
    pub grid: Grid,
    /// The begin of the last window, and what it holds.
    pub last: Option<(u64, u64)>,
}

impl Windows {
    fn start(&self, at: u64) -> u64 {
        match self.grid {
            Grid::Multiples => at / self.pace.period * self.pace.period,
            Grid::Calendar(edges) => edges(at).0,
            Grid::FirstCharge => {
                self.last.map_or(at, |(start, _)| if at < start + self.pace.period { start } else { at })
            }
        }
    }

    fn count(&self, at: u64) -> u64 {
        self.last.map_or(0, |(start, count)| if self.start(at) == start { count } else { 0 })
    }
}

impl Rule for Windows {
    fn limit(&self) -> u64 {
        self.pace.units
    }

    fn fits(&self, at: u64, cost: u64) -> bool {
        self.count(at) + cost <= self.pace.units
    }

    fn charge(&mut self, at: u64, cost: u64) {
        self.last = Some((self.start(at), self.count(at) + cost));
    }

    fn shift(&mut self, by: u64, now: u64) -> u64 {
        if let Some((start, count)) = self.last {
            let moved = start.saturating_sub(by);
            self.last =
                Some((if matches!(self.grid, Grid::FirstCharge) { moved } else { self.start(now) }, count));
        }
        by
    }

    fn copy(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}

/// Every admitted request; one that is exactly a period old is out.
#[derive(Clone)]
pub struct Entries {
    pub rates: Vec<Pace>,
    pub made: Vec<(u64, u64)>,
}

impl Rule for Entries {
    fn limit(&self) -> u64 {
        self.rates.iter().map(|rate| rate.units).min().unwrap()
    }

    fn fits(&self, at: u64, cost: u64) -> bool {
        self.rates.iter().all(|rate| {
            let inside = self.made.iter().filter(|(time, _)| *time + rate.period > at);
            inside.map(|(_, cost)| cost).sum::<u64>() + cost <= rate.units
        })
    }

    fn charge(&mut self, at: u64, cost: u64) {
        let longest = self.rates.iter().map(|rate| rate.period).max().unwrap();
        self.made.retain(|(time, _)| *time + longest > at);
        self.made.push((at, cost));
    }

    fn shift(&mut self, by: u64, _: u64) -> u64 {
        self.made.iter_mut().for_each(|(time, _)| *time = time.saturating_sub(by));
        by
    }

    fn forgotten(&self) -> Option<u64> {
        let longest = self.rates.iter().map(|rate| rate.period).max().unwrap();
        self.made.last().map(|(time, _)| time + longest)
    }

    fn copy(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}

/// Counters of the period's parts, the oldest of which counts by the share of it that is still inside.
#[derive(Clone)]
pub struct Shares {
    pub pace: Pace,
    pub buckets: u64,
    pub parts: BTreeMap<i128, u64>,
}

impl Shares {
    fn width(&self) -> i128 {
        whole(self.pace.period / self.buckets)
    }

    /// The estimate, times the width of a part.
    fn estimate(&self, at: u64) -> i128 {
        let (width, end) = (self.width(), whole(at));
        let begin = end - whole(self.pace.period);
        let weigh = |(part, count): (&i128, &u64)| {
            // How much of the part lies between the begin of the window and its end, and beyond: the
            // present part counts whole.
            let inside = ((part + 1) * width - begin.max(part * width)).max(0);
            whole(*count) * inside
        };
        self.parts.iter().map(weigh).sum()
    }
}

impl Rule for Shares {
    fn limit(&self) -> u64 {
        self.pace.units
    }

    fn fits(&self, at: u64, cost: u64) -> bool {
        self.estimate(at) + whole(cost) * self.width() <= whole(self.pace.units) * self.width()
    }

    fn charge(&mut self, at: u64, cost: u64) {
        let part = whole(at) / self.width();
        self.parts.retain(|other, _| *other + whole(self.buckets) >= part);
        *self.parts.entry(part).or_default() += cost;
    }

    fn shift(&mut self, by: u64, _: u64) -> u64 {
        // Parts stay whole, and none may weigh less than before.
        let back = whole(by) / self.width();
        self.parts = self.parts.iter().map(|(part, count)| (part - back, *count)).collect();
        u64::try_from(back * self.width()).unwrap()
    }

    fn copy(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}
