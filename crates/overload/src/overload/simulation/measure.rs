//! What a simulation has shown.

use super::super::class::Class;
use super::request::{Ending, Request};
use super::scenario::{Load, Scenario};
use super::world::run;

/// The state at a time, over all proxies.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Seconds since the start.
    pub time: f64,
    /// The sum of the limits.
    pub limit: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that wait at the proxies.
    pub waiting: u32,
    /// Requests that were refused since the start, by [`Class::index`].
    pub refused: [u64; Class::COUNT],
}

/// A simulation that has ended.
#[derive(Debug)]
pub struct Run {
    /// All requests, in the order of their arrival.
    pub requests: Vec<Request>,
    /// The state every 100 ms.
    pub trace: Vec<Trace>,
    /// Requests in a second that the servers can answer.
    pub capacity: f64,
    /// The 99th percentile of the latency at half of the load without admission, in seconds.
    pub calm_p99: f64,
}

/// What clients saw of a part of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Requests that arrived.
    pub requests: usize,
    /// Those that were refused.
    pub refused: usize,
    /// Those that clients gave up.
    pub timed_out: usize,
    /// Responses within twice the calm 99th percentile, relative to the capacity.
    pub goodput: f64,
    /// All responses, relative to the capacity.
    pub throughput: f64,
    /// The 99th percentile of the latency of responses, relative to the calm one.
    pub p99: f64,
    /// The least, mean and greatest limit.
    pub limit: (f64, f64, f64),
}

impl Run {
    /// What clients saw of requests that arrived in these seconds.
    #[must_use]
    pub fn measure(&self, from: f64, to: f64) -> Measured {
        self.measure_of(from, to, |_| true)
    }

    /// As [`Self::measure`], of some requests.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests")]
    pub fn measure_of(&self, from: f64, to: f64, of: impl Fn(&Request) -> bool) -> Measured {
        let chosen =
            || self.requests.iter().filter(|request| (from..to).contains(&request.arrived) && of(request));
        let count = |ending| chosen().filter(|request| request.ending == ending).count();
        let mut latencies: Vec<f64> =
            chosen().filter(|r| r.ending == Ending::Served).map(|r| r.ended - r.arrived).collect();
        latencies.sort_by(f64::total_cmp);
        let good = latencies.partition_point(|latency| *latency <= 2.0 * self.calm_p99);
        let most = self.capacity * (to - from);
        let limits = || {
            self.trace
                .iter()
                .filter(|trace| (from..to).contains(&trace.time))
                .map(|trace| f64::from(trace.limit))
        };
        Measured {
            requests: chosen().count(),
            refused: count(Ending::Refused),
            timed_out: count(Ending::TimedOut) + count(Ending::None),
            goodput: good as f64 / most,
            throughput: latencies.len() as f64 / most,
            p99: percentile_99(&latencies) / self.calm_p99,
            limit: (
                limits().fold(f64::MAX, f64::min),
                limits().sum::<f64>() / limits().count().max(1) as f64,
                limits().fold(0.0, f64::max),
            ),
        }
    }
}

impl Measured {
    /// The part of the requests that got a response.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests")]
    pub fn served(&self) -> f64 {
        1.0 - (self.refused + self.timed_out) as f64 / self.requests.max(1) as f64
    }
}

fn percentile_99(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(f64::NAN)
}

/// The 99th percentile of the latency at half of the load, without admission, changes and noise.
pub(super) fn calm_p99(scenario: &Scenario, seed: u64) -> f64 {
    let seconds = 16_000.0 / scenario.capacity();
    let calm = Scenario {
        groups: vec![Scenario::group(Load::constant(0.5))],
        admission: None,
        changes: Vec::new(),
        latency: Load::default(),
        noise: 0.0,
        seconds,
        ..scenario.clone()
    };
    let mut latencies: Vec<f64> =
        run(&calm, seed).requests.iter().map(|request| request.ended - request.arrived).collect();
    latencies.sort_by(f64::total_cmp);
    percentile_99(&latencies)
}
