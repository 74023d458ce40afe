//! Latencies of responses, collected by each worker for itself.

use tidegate_limit::time::{Micros, Nanos, Timestamp};

/// Parts of the table of keys. A window sees that a key has many samples by the part in which it falls.
pub(crate) const PARTS: usize = 64;
/// Routes with an own calm latency; those after them share.
const ROUTES: usize = 256;
/// Units of a logarithm: 65536ths of an octave.
pub(crate) const OCTAVE: i64 = 1 << 16;
/// A sample is at most this many octaves from calm latency, so that a few extreme ones do not decide a mean.
const MAX_OCTAVES: i64 = 4;
/// A worker merges its samples at least this often.
const BATCH: Micros = Micros(50_000);

/// How a request ended, as far as it tells of the load of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response after work.
    Response,
    /// The application responded with 503.
    Unavailable,
    /// A timeout, or 504 of a server.
    Failure,
}

/// One response. Errors of connecting, local responses, upgrades and ends of streams are no samples.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The route: a small index, the same in all workers.
    pub route: u32,
    /// The hash of the fair key, as in [`Arrival`](super::class::Arrival).
    pub key: u64,
    /// From the request's head, when it was sent, to the response's head.
    pub latency: Nanos,
    /// How it ended.
    pub outcome: Outcome,
}

/// A sum of logarithms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub count: u32,
    pub log: i64,
}

impl Sum {
    pub fn add(&mut self, log: i64) {
        self.count += 1;
        self.log += log;
    }

    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.log += other.log;
    }

    /// The mean in octaves.
    #[expect(clippy::cast_precision_loss, reason = "sums of a window are below 2^53")]
    pub fn mean(self) -> f64 {
        self.log as f64 / f64::from(self.count.max(1)) / OCTAVE as f64
    }
}

/// The samples of one worker since it has merged them, with a copy of the calm latencies.
#[derive(Clone, Debug)]
pub struct Samples {
    pub(crate) batch: Batch,
    /// The logarithm of each route's calm latency, in nanoseconds.
    pub(crate) calm: Vec<Option<i64>>,
    /// The version of `calm`.
    pub(crate) version: u32,
}

/// Sums of samples.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The time of the first sample.
    pub start: Option<Timestamp>,
    /// Latencies relative to calm, by the part of the key.
    pub parts: Box<[Sum; PARTS]>,
    /// The sum of the squares of these, in units of [`OCTAVE`].
    pub squares: i64,
    /// Latencies by route.
    pub routes: Vec<Sum>,
    /// Responses after work.
    pub responses: u32,
    /// Responses with 503 of the application.
    pub unavailable: u32,
    /// Timeouts and responses with 504.
    pub failures: u32,
    /// The parts of keys that had any outcome.
    pub seen: u64,
    /// The parts of keys with `unavailable`.
    pub unavailable_parts: u64,
    /// The parts of keys with `failures`.
    pub failed_parts: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            start: None,
            parts: Box::new([Sum::default(); PARTS]),
            squares: 0,
            routes: Vec::new(),
            responses: 0,
            unavailable: 0,
            failures: 0,
            seen: 0,
            unavailable_parts: 0,
            failed_parts: 0,
        }
    }
}

impl Batch {
    /// All outcomes.
    pub fn outcomes(&self) -> u32 {
        self.responses + self.unavailable + self.failures
    }

    pub fn route(&mut self, route: usize) -> &mut Sum {
        if self.routes.len() <= route {
            self.routes.resize(route + 1, Sum::default());
        }
        &mut self.routes[route]
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.squares += other.squares;
        self.responses += other.responses;
        self.unavailable += other.unavailable;
        self.failures += other.failures;
        self.seen |= other.seen;
        self.unavailable_parts |= other.unavailable_parts;
        self.failed_parts |= other.failed_parts;
        let mut left = other.seen;
        while left != 0 {
            let part = left.trailing_zeros() as usize;
            left &= left - 1;
            self.parts[part].merge(other.parts[part]);
        }
        for (route, sum) in other.routes.iter().enumerate().filter(|(_, sum)| sum.count > 0) {
            self.route(route).merge(*sum);
        }
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        let mut left = self.seen;
        while left != 0 {
            self.parts[left.trailing_zeros() as usize] = Sum::default();
            left &= left - 1;
        }
        self.routes.fill(Sum::default());
        (self.start, self.responses, self.unavailable, self.failures) = (None, 0, 0, 0);
        (self.seen, self.unavailable_parts, self.failed_parts, self.squares) = (0, 0, 0, 0);
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self::new()
    }
}

impl Samples {
    /// Without samples.
    #[must_use]
    pub fn new() -> Self {
        Self { batch: Batch::default(), calm: Vec::new(), version: 0 }
    }

    /// Adds a sample.
    pub fn record(&mut self, sample: Sample, now: Timestamp) {
        let batch = &mut self.batch;
        batch.start.get_or_insert(now);
        let part = part(sample.key);
        let bit = 1 << part;
        batch.seen |= bit;
        match sample.outcome {
            Outcome::Failure => {
                batch.failures += 1;
                batch.failed_parts |= bit;
            }
            Outcome::Unavailable => {
                batch.unavailable += 1;
                batch.unavailable_parts |= bit;
            }
            Outcome::Response => {
                batch.responses += 1;
                let log = log2(sample.latency);
                let route = (sample.route as usize).min(ROUTES - 1);
                batch.route(route).add(log);
                if let Some(calm) = self.calm.get(route).copied().flatten() {
                    let most = MAX_OCTAVES * OCTAVE;
                    let relative = (log - calm).clamp(-most, most);
                    batch.parts[part].add(relative);
                    batch.squares += (relative * relative) >> 16;
                }
            }
        }
    }

    /// Whether it is time to merge them into the limit: they are 50 ms old.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.batch.start.is_some_and(|start| now.since(start) >= BATCH)
    }
}

/// The part of the table in which a key falls.
fn part(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

/// The binary logarithm of a latency in nanoseconds, in units of [`OCTAVE`]; the error is at most 0.9 % of an octave.
#[expect(clippy::cast_possible_wrap, reason = "17 bits")]
fn log2(latency: Nanos) -> i64 {
    let nanos = latency.0.max(1);
    let whole = nanos.ilog2();
    // The mantissa without its first bit, in units of an octave.
    let fraction = ((nanos << (63 - whole)) << 1 >> 48) as i64;
    // log2(1 + f) is about f + 0.344 f (1 - f).
    i64::from(whole) * OCTAVE + fraction + ((((fraction * (OCTAVE - fraction)) >> 16) * 22_544) >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn the_logarithm_is_close() {
        for nanos in (1..2_000_000_u64).step_by(997).chain([u64::MAX, 1 << 40, 3 << 40]) {
            let error = log2(Nanos(nanos)) as f64 / OCTAVE as f64 - (nanos as f64).log2();
            assert!(error.abs() < 0.009, "{nanos}: {error}");
        }
    }

    #[test]
    fn samples_are_due_after_50_ms() {
        let mut samples = Samples::new();
        assert!(!samples.is_due(Timestamp(1_000_000)));
        let sample = Sample { route: 0, key: 1, latency: Nanos(1_000), outcome: Outcome::Response };
        samples.record(sample, Timestamp(1_000_000));
        samples.record(sample, Timestamp(1_049_999));
        assert!(!samples.is_due(Timestamp(1_049_999)));
        assert!(samples.is_due(Timestamp(1_050_000)));
    }
}
