//! The limit of requests in flight that is learned from latency.

mod test;

use tidegate_limit::time::{Micros, Nanos, Timestamp};

use self::test::{Finding, LOWER, Next, Test};
use super::samples::{Samples, Sum};
use super::window::{Window, fixed};

/// A window ends after this time at the earliest, …
const WINDOW: Micros = Micros(250_000);
/// … and with this many samples.
const WINDOW_SAMPLES: u32 = 30;
/// The latency that the limit aims at, relative to calm.
const TARGET: f64 = 1.8;
/// The factor of an increase after a cold start.
const CLIMB: f64 = 1.5;
/// The factor of the throughput that such an increase must bring.
const CLIMBED: f64 = 1.2;
/// Samples of a window after such an increase.
const CLIMB_SAMPLES: u32 = 150;
/// A lower limit than this is not tested.
const LEAST_TESTED: f64 = 4.0;
/// Samples of a route for its first calm latency.
const FIRST_SAMPLES: u32 = 3;
/// The part of the limit that is left after a window with failures.
const AFTER_FAILURES: f64 = 0.9;

/// A limit that follows the latency relative to calm. Calm latency is learned while no request waits; otherwise it is tested: a lower
/// limit must not cost throughput, or the latency is not caused by a queue in the servers.
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    min: f64,
    max: f64,
    start: f64,
    limit: f64,
    /// The logarithm of each route's calm latency in nanoseconds.
    calm: Vec<Option<f64>>,
    /// Samples of routes since their calm latency was learned last.
    learning: Vec<Sum>,
    /// Incremented when calm latencies jump: samples that were relative to the old ones are discarded.
    version: u32,
    /// Whether calm latency was taken from a time in which requests waited, and not confirmed since.
    seeded: bool,
    /// The factor by which a test has raised calm latency, as far as later ones have not taken it back.
    raised: f64,
    /// The throughput before the last increase after a cold start, until it is known what that has brought.
    climbed: Option<f64>,
    /// Whether an increase that has brought nothing is tried once more.
    climbs_again: bool,
    window: Window,
    /// Samples from before this time are discarded, since the limit was another one.
    settled_at: Timestamp,
    test: Test,
    /// Whether requests wait because of the limit, so that it can be tested.
    enforced: bool,
}

/// What a limit has learned, for its successor after a reload.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The limit.
    pub limit: f64,
    /// The calm latency of each route; none where it is not known.
    pub calm: Vec<Option<Nanos>>,
}

impl AdaptiveLimit {
    /// A limit between `min` and `max` that starts from `start`.
    #[must_use]
    pub fn new(min: u32, max: u32, start: u32, now: Timestamp) -> Self {
        let (min, max) = (f64::from(min.max(1)), f64::from(max.max(1)));
        let start = f64::from(start).clamp(min, max);
        Self {
            min,
            max,
            start,
            limit: start,
            calm: Vec::new(),
            learning: Vec::new(),
            version: 0,
            seeded: false,
            raised: 1.0,
            climbed: None,
            climbs_again: true,
            window: Window::new(now),
            settled_at: Timestamp(0),
            test: Test::default(),
            enforced: true,
        }
    }

    /// For shadow mode: the limit adapts but is not enforced, so that tests of it would have no effect.
    #[must_use]
    pub fn without_tests(mut self) -> Self {
        self.enforced = false;
        self
    }

    /// Continues from what another one has learned.
    #[must_use]
    pub fn resumed(mut self, learned: &Learned) -> Self {
        self.limit = learned.limit.clamp(self.min, self.max);
        #[expect(clippy::cast_precision_loss, reason = "a latency below 2^53 ns")]
        let log = |nanos: Nanos| (nanos.0.max(1) as f64).log2();
        self.calm = learned.calm.iter().map(|calm| calm.map(log)).collect();
        self
    }

    /// What was learned.
    #[must_use]
    pub fn learned(&self) -> Learned {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a latency in nanoseconds"
        )]
        let nanos = |log: f64| Nanos(log.exp2() as u64);
        Learned { limit: self.limit, calm: self.calm.iter().map(|calm| calm.map(nanos)).collect() }
    }

    /// The limit. At least 1, also while a lower one is tested: without requests nothing would be learned any more.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most u32::MAX")]
    pub fn limit(&self) -> u32 {
        (self.limit as u32).max(1)
    }

    /// A request waits or is refused because of the limit.
    pub fn press(&mut self) {
        self.window.pressed = true;
    }

    /// Takes the samples of a worker, and gives it the present calm latencies.
    pub fn merge(&mut self, samples: &mut Samples, now: Timestamp) {
        if samples.version == self.version
            && samples.batch.start.is_some_and(|start| start >= self.settled_at)
        {
            self.window.batch.merge(&samples.batch);
        }
        samples.batch.clear();
        self.advance(now);
        samples.version = self.version;
        samples.calm.clear();
        samples.calm.extend(self.calm.iter().map(|calm| calm.map(fixed)));
    }
}

impl AdaptiveLimit {
    /// Ends the window if it is time.
    fn advance(&mut self, now: Timestamp) {
        let outcomes = self.window.batch.outcomes();
        if self.test.runs() {
            if self.test.is_over(now, outcomes) {
                self.end_step(now);
            }
        } else if now.since(self.window.start) >= WINDOW && outcomes >= self.needed_outcomes() {
            self.end_window(now);
        }
    }

    fn needed_outcomes(&self) -> u32 {
        let is_cold = self.window.pressed && self.calm.is_empty();
        if is_cold || self.climbed.is_some() { CLIMB_SAMPLES } else { WINDOW_SAMPLES }
    }

    fn end_window(&mut self, now: Timestamp) {
        let x = self.window.relative_latency();
        if !self.window.pressed {
            self.relax();
        } else if let Some(rate) = self.climbed.take() {
            self.climb(rate, now);
        } else if let Some(x) = x {
            self.guess_unknown(x);
            self.follow(x);
            self.limit = self.limit.clamp(self.min, self.max);
            if self.enforced {
                self.test.begin(self.limit, now);
            } else {
                self.learn_calm();
            }
        } else if self.window.batch.responses > 0 {
            // Calm latency was never seen: take the present one, and doubt it.
            self.guess_unknown(1.0);
            self.seeded = true;
            self.climb_from(self.window.throughput(now).rate());
        }
        self.finish_window(now);
    }

    fn end_step(&mut self, now: Timestamp) {
        let x = self.window.relative_latency().unwrap_or(1.0);
        let throughput = self.window.throughput(now);
        if self.window.pressed {
            match self.test.end_step(throughput, x) {
                Some(Next::Step(limit)) => self.limit = limit,
                Some(Next::Done(limit, finding)) => {
                    self.limit = limit;
                    self.judge(finding, x);
                }
                None => {}
            }
        } else {
            self.relax();
        }
        self.finish_window(now);
    }

    fn finish_window(&mut self, now: Timestamp) {
        if self.window.has_failures() {
            self.limit *= AFTER_FAILURES;
        }
        if self.test.runs() {
            self.limit = self.limit.min(self.max);
        } else {
            self.limit = self.limit.clamp(self.min, self.max);
        }
        let has_changed = self.test.runs() || self.climbed.is_some();
        let pause = if has_changed { self.settling_time() } else { Micros::ZERO };
        if has_changed {
            self.settled_at = now.after(pause);
        }
        self.window.restart(now.after(pause));
    }

    /// How long responses of requests that were sent before a change of the limit come.
    fn settling_time(&self) -> Micros {
        // The arithmetic mean of exponential times is 1.8 of the geometric one.
        let nanos = 3.6 * self.window.latency().unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most half a second")]
        Micros((nanos / 1000.0).clamp(20_000.0, 500_000.0) as u64)
    }

    /// No request waited in this window.
    fn relax(&mut self) {
        if let Some(tested) = self.test.abandon() {
            self.limit = tested;
        }
        self.learn_calm();
        self.seeded = false;
        self.climbed = None;
        // Back to the start slowly, after a time of pressure.
        if self.limit < self.start {
            self.limit = (self.limit * 1.1).min(self.start);
        }
    }

    /// Raises the limit after a cold start under load, in which it was too low perhaps. `rate` is the throughput at this limit.
    fn climb_from(&mut self, rate: f64) {
        let higher = self.limit * CLIMB;
        if higher <= self.max {
            self.limit = higher;
            self.climbed = Some(rate);
        }
    }

    /// Goes on climbing if the last increase has brought throughput. `before` is the rate before it.
    fn climb(&mut self, before: f64, now: Timestamp) {
        let rate = self.window.throughput(now).rate();
        if rate >= before * CLIMBED {
            // There was no queue in the servers at the lower limit, so its latency was calm.
            self.seeded = false;
            self.climb_from(rate);
        } else {
            self.limit /= CLIMB;
            // Few samples may have misled: once more.
            if self.climbs_again {
                self.climbs_again = false;
                self.climb_from(before);
            }
        }
    }

    /// Moves calm latencies to those of this window: quickly down, slowly up.
    fn learn_calm(&mut self) {
        let routes = self.window.batch.routes.len().max(self.calm.len());
        self.calm.resize(routes, None);
        self.learning.resize(routes, Sum::default());
        for ((calm, learning), sum) in
            self.calm.iter_mut().zip(&mut self.learning).zip(&self.window.batch.routes)
        {
            learning.merge(*sum);
            let ready = if calm.is_some() { WINDOW_SAMPLES } else { FIRST_SAMPLES };
            if learning.count < ready {
                continue;
            }
            let mean = std::mem::take(learning).mean();
            let old = calm.unwrap_or(mean);
            let part = if mean < old { 0.1 } else { 0.01 };
            *calm = Some(old + part * (mean - old));
        }
    }

    /// Gives routes whose calm latency is not known a first one: their present latency is `x` of it.
    fn guess_unknown(&mut self, x: f64) {
        self.learning.fill(Sum::default());
        let routes = self.window.batch.routes.len().max(self.calm.len());
        self.calm.resize(routes, None);
        for (calm, sum) in self.calm.iter_mut().zip(&self.window.batch.routes) {
            if calm.is_none() && sum.count >= FIRST_SAMPLES {
                *calm = Some(sum.mean() - x.log2());
            }
        }
    }

    /// Follows the latency relative to calm, while requests wait.
    fn follow(&mut self, x: f64) {
        let factor = (TARGET / x).clamp(0.5, 1.25);
        if factor < 1.0 {
            self.limit *= factor.powf(0.7);
        } else if !self.seeded {
            self.limit *= factor.sqrt();
        }
        self.limit = self.test.bounded(self.limit);
    }

    /// Corrects calm latency by what a test has found; `x` is the latency at the limit relative to calm.
    fn judge(&mut self, finding: Finding, x: f64) {
        if LOWER * self.limit < LEAST_TESTED {
            // Nothing can be tested at so few requests: look upward.
            self.multiply_calm(1.3);
            self.seeded = false;
        } else if finding.is_below(0.88) {
            // The lower limit cost throughput, so there is no queue in the servers: this latency is calm.
            let factor = (finding.x_lower / 1.05).clamp(0.9, 4.0);
            self.multiply_calm(factor);
            self.raised = factor.max(1.0);
            self.limit *= 1.25;
            self.seeded = false;
        } else if self.seeded && x < 1.2 * TARGET {
            self.seeded = false;
        } else if self.seeded && finding.is_above(0.9) {
            self.multiply_calm(if self.limit > 0.9 * self.start { 0.5 } else { 0.7 });
        } else if finding.is_above(0.94) && x < 1.1 * TARGET {
            // There is a queue still; and if calm latency was raised by the test before, that was a mistake perhaps.
            self.raised = self.raised.sqrt();
            self.multiply_calm(0.93 / self.raised);
        } else if !finding.is_exact() {
            // The next test adds to this one.
            return;
        }
        self.test.forget();
    }

    fn multiply_calm(&mut self, factor: f64) {
        self.version = self.version.wrapping_add(1);
        for calm in self.calm.iter_mut().flatten() {
            *calm += factor.log2();
        }
    }
}
