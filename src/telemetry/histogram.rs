//! Histograms of durations and of sizes.
//!
//! The bounds are powers of two: of a second for durations, and of one for sizes. These are the bounds of a native
//! histogram of Prometheus with schema 0, so converting one into the other moves no observation to another bucket.

use parking_lot::Mutex;

use super::counts::{Counters, counted_since};
use super::trace::TraceId;
use crate::time::{Nanos, Timestamp};

/// The upper bounds of durations in nanoseconds, rounded down, with their labels in seconds: 2^-14 to 2^5.
const DURATIONS: [(u64, &str); 20] = [
    (61_035, "6.103515625e-05"),
    (122_070, "0.0001220703125"),
    (244_140, "0.000244140625"),
    (488_281, "0.00048828125"),
    (976_562, "0.0009765625"),
    (1_953_125, "0.001953125"),
    (3_906_250, "0.00390625"),
    (7_812_500, "0.0078125"),
    (15_625_000, "0.015625"),
    (31_250_000, "0.03125"),
    (62_500_000, "0.0625"),
    (125_000_000, "0.125"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_000_000_000, "2.0"),
    (4_000_000_000, "4.0"),
    (8_000_000_000, "8.0"),
    (16_000_000_000, "16.0"),
    (32_000_000_000, "32.0"),
];

/// The upper bounds of sizes: 2^0 to 2^12.
const SIZES: [&str; 13] = [
    "1.0", "2.0", "4.0", "8.0", "16.0", "32.0", "64.0", "128.0", "256.0", "512.0", "1024.0", "2048.0",
    "4096.0",
];

/// The bits of a number of nanoseconds that is in one of the first two buckets: below 2^16.
const FIRST_BITS: u32 = 16;
/// The buckets of a histogram of durations, with that of longer ones.
pub(super) const DURATION_BUCKETS: usize = DURATIONS.len() + 1;
/// The cells of a histogram of durations: its buckets, and the sum in nanoseconds.
const DURATION_CELLS: usize = DURATION_BUCKETS + 1;
/// The cells of a histogram of sizes: its buckets, that of larger ones, and the sum.
const SIZE_CELLS: usize = SIZES.len() + 2;

/// Durations that one worker has counted.
#[derive(Debug, Default)]
pub(super) struct Durations(Counters<DURATION_CELLS>);

/// Sizes that one worker has counted.
#[derive(Debug, Default)]
pub(super) struct Sizes(Counters<SIZE_CELLS>);

/// The durations that all workers have counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DurationSums([u64; DURATION_CELLS]);

/// The sizes that all workers have counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SizeSums([u64; SIZE_CELLS]);

impl Durations {
    /// Counts a duration.
    pub fn record(&self, duration: impl Into<Nanos>) {
        let duration = duration.into();
        self.0.add(duration_bucket(duration), 1);
        self.0.add(DURATION_CELLS - 1, duration.0);
    }

    /// Adds all to `sums`.
    pub fn sum_into(&self, sums: &mut DurationSums) {
        self.0.sum_into(&mut sums.0);
    }
}

impl Sizes {
    /// Counts a size.
    pub fn record(&self, size: usize) {
        // The least exponent whose power is not smaller.
        let bits = usize::BITS - size.saturating_sub(1).leading_zeros();
        self.0.add((bits as usize).min(SIZES.len()), 1);
        self.0.add(SIZE_CELLS - 1, size as u64);
    }

    /// Adds all to `sums`.
    pub fn sum_into(&self, sums: &mut SizeSums) {
        self.0.sum_into(&mut sums.0);
    }
}

impl DurationSums {
    /// The count of each bucket, with the label of its upper bound; none for the last.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<&'static str>, u64)> {
        let labels = DURATIONS.iter().map(|(_, label)| Some(*label)).chain([None]);
        labels.zip(self.0)
    }

    /// The sum in seconds.
    #[expect(clippy::cast_precision_loss, reason = "a sum of months is exact to a microsecond")]
    pub fn sum(&self) -> f64 {
        self.0[DURATION_CELLS - 1] as f64 / 1e9
    }

    /// What was counted after `earlier`; all of it if the counters have started again since.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(counted_since(&earlier.0, &self.0))
    }

    /// Adds what others have counted.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
    }

    /// An estimate of a quantile in seconds, by linear interpolation within its bucket; none if nothing was counted. For
    /// durations above the largest bound it is that bound.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let counts = &self.0[..DURATION_BUCKETS];
        let rank = quantile * self.count() as f64;
        let mut below = 0.0;
        for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= rank {
                let bound = |index: usize| DURATIONS.get(index).map(|(nanos, _)| *nanos as f64 / 1e9);
                let lower = bucket.checked_sub(1).and_then(bound).unwrap_or_default();
                let upper = bound(bucket).unwrap_or(lower);
                return Some(lower + (upper - lower) * (rank - below) / count);
            }
            below += count;
        }
        None
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0[..DURATION_BUCKETS].iter().sum()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0[..DURATION_BUCKETS].iter().all(|count| *count == 0)
    }
}

impl SizeSums {
    /// The count of each bucket, with the label of its upper bound; none for the last.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<&'static str>, u64)> {
        SIZES.into_iter().map(Some).chain([None]).zip(self.0)
    }

    /// The sum.
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
    pub fn sum(&self) -> f64 {
        self.0[SIZE_CELLS - 1] as f64
    }
}

/// The bucket of a duration. Between two powers of two of a nanosecond there is one bound, so the position of the highest
/// bit leaves one comparison.
pub(super) fn duration_bucket(Nanos(nanos): Nanos) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    let lower = bits.saturating_sub(FIRST_BITS) as usize;
    match DURATIONS.get(lower) {
        Some((bound, _)) => lower + usize::from(nanos > *bound),
        None => DURATIONS.len(),
    }
}

/// An observation that is part of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub trace: TraceId,
    pub took: Nanos,
    /// When it was observed.
    pub at: Timestamp,
}

/// The exemplars of the buckets of a histogram.
pub(super) type BucketExemplars = [Option<Exemplar>; DURATION_BUCKETS];

/// One worker's exemplars of a histogram. The lock is taken for traced requests only, and seldom contended.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BucketExemplars>);

impl Exemplars {
    /// Replaces the exemplar of a bucket.
    pub fn record(&self, exemplar: Exemplar) {
        self.0.lock()[duration_bucket(exemplar.took)] = Some(exemplar);
    }

    /// Replaces the exemplars in `latest` that are older.
    pub fn merge_into(&self, latest: &mut BucketExemplars) {
        for (latest, own) in latest.iter_mut().zip(*self.0.lock()) {
            let at = |exemplar: &Option<Exemplar>| exemplar.map(|exemplar| exemplar.at);
            if at(&own) > at(latest) {
                *latest = own;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(all: &[u64]) -> DurationSums {
        let (counted, mut sums) = (Durations::default(), DurationSums::default());
        for nanos in all {
            counted.record(Nanos(*nanos));
        }
        counted.sum_into(&mut sums);
        sums
    }

    #[test]
    fn bounds_are_powers_of_two() {
        for (exponent, (nanos, label)) in (-14..).zip(DURATIONS) {
            assert_eq!(label.parse().map(f64::to_bits), Ok(2_f64.powi(exponent).to_bits()));
            let seconds = if exponent < 0 { 1_000_000_000 >> -exponent } else { 1_000_000_000 << exponent };
            assert_eq!(nanos, seconds);
        }
        for (exponent, label) in (0..).zip(SIZES) {
            assert_eq!(label.parse().map(f64::to_bits), Ok(2_f64.powi(exponent).to_bits()));
        }
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_is_not_shorter() {
        let expected =
            |nanos| DURATIONS.iter().position(|(bound, _)| nanos <= *bound).unwrap_or(DURATIONS.len());
        let bounds = DURATIONS.iter().flat_map(|(bound, _)| [bound - 1, *bound, bound + 1]);
        let powers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for nanos in bounds.chain(powers).chain([u64::MAX]) {
            assert_eq!(duration_bucket(Nanos(nanos)), expected(nanos), "{nanos}");
        }
    }

    #[test]
    fn durations_are_counted_and_summed() {
        let sums = durations(&[0, 61_036, 1_000_000_000, 60_000_000_000]);
        let counts: Vec<u64> = sums.buckets().map(|(_, count)| count).collect();
        assert_eq!((counts[0], counts[1], counts[14], counts[20]), (1, 1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 4);
        assert!((sums.sum() - 61.000_061_036).abs() < 1e-9);
        assert!(!sums.is_empty() && durations(&[]).is_empty());
    }

    #[test]
    fn quantiles_are_within_the_bucket_of_their_rank() {
        assert_eq!(DurationSums::default().quantile(0.5), None);
        let (fast, slow) = (3_000_000, 300_000_000);
        let sums = durations(&[&[fast; 98][..], &[slow; 2]].concat());
        let quantile = |quantile| sums.quantile(quantile).unwrap();
        assert!((0.001_953_125..=0.003_906_25).contains(&quantile(0.5)), "{}", quantile(0.5));
        assert!((0.25..=0.5).contains(&quantile(0.99)), "{}", quantile(0.99));
        let long = durations(&[100_000_000_000]);
        assert_eq!(long.quantile(0.99).map(f64::to_bits), Some(32.0_f64.to_bits()));
    }

    #[test]
    fn sizes_are_counted_and_summed() {
        let (counted, mut sums) = (Sizes::default(), SizeSums::default());
        for size in [0, 1, 2, 3, 4, 5, 4_096, 4_097] {
            counted.record(size);
        }
        counted.sum_into(&mut sums);
        let counts: Vec<u64> = sums.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts[..4], [2, 1, 2, 1]);
        assert_eq!((counts[12], counts[13], sums.0[SIZE_CELLS - 1]), (1, 1, 8_208));
    }
}
