//! The test of a limit: does a lower one cost throughput?

use tidegate_limit::time::{Micros, Timestamp};

use super::super::window::Throughput;

/// A test begins in the first second of each period of the wall clock, so that processes with the same upstream test together.
const PERIOD: Micros = Micros(4_000_000);
/// The length of a step.
const STEP: Micros = Micros::SECOND;
/// The responses that a step needs.
const STEP_RESPONSES: u32 = 30;
/// The limit of the second step, relative to the others.
pub(super) const LOWER: f64 = 0.8;
/// Between two tests the limit does not fall below this part of the last one that was tested.
const MOST_FALL: f64 = 0.5;
/// The deviation of the relative throughput below which it is taken as it is, …
const EXACT: f64 = 0.09;
/// … and the number of deviations from which a less exact one is.
const SURE: f64 = 1.3;

/// Three steps: at the limit, at a lower one, and at the limit again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Before,
    Lower,
    After,
}

/// The state of the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Test {
    step: Option<Step>,
    /// The limit that was tested last, or is being tested; none without pressure.
    reference: Option<f64>,
    until: Timestamp,
    /// The period of the last test.
    period: u64,
    /// Sums of the tests since the last one that was exact enough.
    at_limit: Throughput,
    at_lower: Throughput,
    x_lower: f64,
}

/// What tests have found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finding {
    /// The throughput at the lower limit, relative to that at the limit.
    pub throughput: f64,
    /// The standard deviation of `throughput`.
    pub deviation: f64,
    /// The latency at the lower limit, relative to calm.
    pub x_lower: f64,
}

impl Finding {
    /// Whether a further test would tell little more.
    pub fn is_exact(&self) -> bool {
        self.deviation < EXACT
    }

    /// Whether the throughput is below `bound`, surely below that of an equal limit.
    pub fn is_below(&self, bound: f64) -> bool {
        self.throughput < bound && (self.is_exact() || self.throughput < 1.0 - SURE * self.deviation)
    }

    /// Whether the throughput is above `bound`, surely above the part that the limit is lower.
    pub fn is_above(&self, bound: f64) -> bool {
        self.throughput > bound && (self.is_exact() || self.throughput > LOWER + SURE * self.deviation)
    }
}

/// What follows from the end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// The next step has this limit.
    Step(f64),
    /// The test has ended; the limit is this again.
    Done(f64, Finding),
}

impl Test {
    /// Whether a test runs.
    pub fn runs(&self) -> bool {
        self.step.is_some()
    }

    /// Whether the step has lasted long enough.
    pub fn is_over(&self, now: Timestamp, responses: u32) -> bool {
        now >= self.until && responses >= STEP_RESPONSES
    }

    /// There is no pressure: forgets everything. The limit that was being tested, if any.
    pub fn abandon(&mut self) -> Option<f64> {
        self.forget();
        let tested = self.reference.take();
        self.step.take().and(tested)
    }

    /// The findings have been used.
    pub fn forget(&mut self) {
        (self.at_limit, self.at_lower) = Default::default();
    }

    /// The limit that may be set between tests, if `limit` is wanted.
    pub fn bounded(&mut self, limit: f64) -> f64 {
        let reference = self.reference.unwrap_or(limit).max(limit);
        self.reference = Some(reference);
        limit.max(MOST_FALL * reference)
    }

    /// Begins a test of `limit` if it is time.
    pub fn begin(&mut self, limit: f64, now: Timestamp) {
        let period = now.0 / PERIOD.0;
        let start = Timestamp(period * PERIOD.0);
        if period > self.period && now.since(start) < STEP {
            self.period = period;
            self.step = Some(Step::Before);
            self.reference = Some(limit);
            self.until = start.after(STEP);
        }
    }

    /// Ends the step, in which the latency relative to calm was `x`; none if no test runs.
    pub fn end_step(&mut self, throughput: Throughput, x: f64) -> Option<Next> {
        let limit = self.reference?;
        self.until = self.until.after(STEP);
        match self.step? {
            Step::Before => {
                self.at_limit.add(throughput);
                self.step = Some(Step::Lower);
                Some(Next::Step(LOWER * limit))
            }
            Step::Lower => {
                self.at_lower.add(throughput);
                self.x_lower = x;
                self.step = Some(Step::After);
                Some(Next::Step(limit))
            }
            Step::After => {
                self.at_limit.add(throughput);
                self.step = None;
                Some(Next::Done(limit, self.finding()))
            }
        }
    }

    fn finding(&self) -> Finding {
        Finding {
            throughput: self.at_lower.rate() / self.at_limit.rate(),
            deviation: (self.at_limit.variance() + self.at_lower.variance()).sqrt(),
            x_lower: self.x_lower,
        }
    }
}
