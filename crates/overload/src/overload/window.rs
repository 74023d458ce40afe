//! The samples of all workers in one window of the limit.

use tidegate_limit::time::Timestamp;

use super::samples::{Batch, OCTAVE, PARTS, Sum};

/// Parts of the keys with less weight than this together are not outweighed: a mean of few samples says little.
const LEAST_WEIGHT: f64 = 30.0;
/// The greatest part of a window's weight that the samples of one key have.
const MOST_OF_ONE_KEY: f64 = 0.125;
/// Failures count if at least this many keys have them …
const FAILED_KEYS: u32 = 3;
/// … and they are more than this part of the responses.
const FAILED_PART: f64 = 0.05;
/// Responses with 503 count if they are more than this part of the responses.
const UNAVAILABLE_PART: f64 = 0.2;

/// A window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub start: Timestamp,
    /// Whether a request waited or was refused.
    pub pressed: bool,
    pub batch: Batch,
}

/// Responses in a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throughput {
    pub responses: u32,
    pub seconds: f64,
    /// The deviation of the time between responses, relative to its mean.
    pub spread: f64,
}

impl Throughput {
    pub fn add(&mut self, other: Self) {
        self.spread = self.spread.max(other.spread);
        self.responses += other.responses;
        self.seconds += other.seconds;
    }

    /// The relative variance of the rate.
    pub fn variance(self) -> f64 {
        self.spread.powi(2) / f64::from(self.responses.max(1))
    }

    /// Responses in a second.
    pub fn rate(self) -> f64 {
        f64::from(self.responses) / self.seconds.max(0.001)
    }
}

impl Window {
    pub fn new(start: Timestamp) -> Self {
        Self { start, pressed: false, batch: Batch::default() }
    }

    /// Begins the next one.
    pub fn restart(&mut self, start: Timestamp) {
        self.batch.clear();
        (self.start, self.pressed) = (start, false);
    }

    /// The responses until now.
    pub fn throughput(&self, now: Timestamp) -> Throughput {
        let seconds = now.since(self.start).as_secs_f64();
        Throughput { responses: self.batch.responses, seconds, spread: self.spread() }
    }

    /// The deviation of a latency relative to the mean, 1 at most: that of exponential times.
    #[expect(clippy::cast_precision_loss, reason = "sums of a window are below 2^53")]
    fn spread(&self) -> f64 {
        let mut all = Sum::default();
        self.batch.parts.iter().for_each(|sum| all.merge(*sum));
        if all.count < 2 {
            return 1.0;
        }
        let octaves = self.batch.squares as f64 / OCTAVE as f64 / f64::from(all.count) - all.mean().powi(2);
        // Times in a queue depend on each other, so that the throughput varies more than they do.
        (1.3 * std::f64::consts::LN_2 * octaves.max(0.0).sqrt()).min(1.0)
    }

    /// The geometric mean of latency relative to calm latency, with the weight of each key bounded; none without samples of
    /// routes whose calm latency is known.
    pub fn relative_latency(&self) -> Option<f64> {
        let used = || self.batch.parts.iter().filter(|sum| sum.count > 0);
        let most = most_weight(&self.batch.parts)?;
        let (mut sum, mut weights) = (0.0, 0.0);
        for part in used() {
            let weight = f64::from(part.count).min(most);
            sum += weight * part.mean();
            weights += weight;
        }
        Some((sum / weights).exp2())
    }

    /// The geometric mean of all latencies in nanoseconds.
    pub fn latency(&self) -> Option<f64> {
        let mut all = Sum::default();
        self.batch.routes.iter().for_each(|sum| all.merge(*sum));
        (all.count > 0).then(|| all.mean().exp2())
    }

    /// Whether requests of several keys failed.
    pub fn has_failures(&self) -> bool {
        let batch = &self.batch;
        let outcomes = f64::from(batch.outcomes());
        let of_keys = |parts: u64| parts.count_ones() >= FAILED_KEYS.min(batch.seen.count_ones());
        (f64::from(batch.failures) > FAILED_PART * outcomes && of_keys(batch.failed_parts))
            || (f64::from(batch.unavailable) > UNAVAILABLE_PART * outcomes
                && batch.unavailable_parts.count_ones() >= FAILED_KEYS)
    }
}

/// The weight that no part of the table exceeds: an eighth of all weights, or more if there are few samples of others.
fn most_weight(parts: &[Sum; PARTS]) -> Option<f64> {
    let mut counts = [0_u32; PARTS];
    let mut used = 0;
    for part in parts.iter().filter(|part| part.count > 0) {
        counts[used] = part.count;
        used += 1;
    }
    let counts = &mut counts[..used];
    counts.sort_unstable();
    let most = f64::from(*counts.last()?);
    // With `heavier` parts at the weight w, all weigh lighter + heavier * w, of which w is an eighth.
    let (mut lighter, mut heavier) = (f64::from(counts.iter().sum::<u32>()), 0.0);
    let mut bound = most;
    for count in counts.iter().rev() {
        if heavier >= 1.0 / MOST_OF_ONE_KEY - 1.0 {
            break;
        }
        lighter -= f64::from(*count);
        heavier += 1.0;
        let equal = lighter * MOST_OF_ONE_KEY / (1.0 - heavier * MOST_OF_ONE_KEY).max(f64::EPSILON);
        if equal >= f64::from(*count) {
            break;
        }
        bound = equal;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 64")]
    Some(bound.max(LEAST_WEIGHT / used as f64).min(most))
}

/// A mean of logarithms as a fixed number, for copies in [`Samples`](super::samples::Samples).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "logarithms of 64-bit numbers"
)]
pub(crate) fn fixed(log: f64) -> i64 {
    (log * OCTAVE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(counts: &[u32]) -> Box<[Sum; PARTS]> {
        let mut parts = Box::new([Sum::default(); PARTS]);
        for (part, count) in parts.iter_mut().zip(counts) {
            part.count = *count;
        }
        parts
    }

    #[test]
    fn no_key_outweighs_others() {
        // Nine others with ten samples each: an eighth of 90 + w is w = 90 / 7.
        let many = most_weight(&parts(&[1000, 10, 10, 10, 10, 10, 10, 10, 10, 10])).unwrap();
        assert!((many - 90.0 / 7.0).abs() < 1e-9, "{many}");
        // Two heavy ones: w = (80 + 2 w) / 8.
        let two = most_weight(&parts(&[1000, 900, 10, 10, 10, 10, 10, 10, 10, 10])).unwrap();
        assert!((two - 80.0 / 6.0).abs() < 1e-9, "{two}");
        // Equal ones keep their weights.
        let equal = most_weight(&parts(&[20; 10])).unwrap();
        assert!((equal - 20.0).abs() < 1e-9, "{equal}");
    }

    #[test]
    fn a_single_sample_does_not_decide_the_mean() {
        let few = most_weight(&parts(&[1000, 1])).unwrap();
        assert!((few - 15.0).abs() < 1e-9, "{few}");
        let alone = most_weight(&parts(&[1000])).unwrap();
        assert!((alone - 1000.0).abs() < 1e-9 || alone >= 30.0, "{alone}");
        assert!(most_weight(&parts(&[])).is_none());
    }
}
