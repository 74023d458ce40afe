//! How a number is distributed over clients, and over their requests; and what a share of a sample says about the share of
//! all.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;

/// The cells of an axis of a plot. Values rise and counts fall, so a curve passes through at most twice as many.
const CELLS: f64 = 100.0;

/// How many clients have which value, and how many requests these clients made.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution(BTreeMap<u64, Weight>);

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    clients: u64,
    requests: u64,
}

/// Quantiles: of so many the value is at most this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p99_9: u64,
    /// The maximum.
    pub max: u64,
}

impl Distribution {
    /// Adds a client with this value, which made so many requests.
    pub fn add(&mut self, value: u64, requests: u64) {
        let weight = self.0.entry(value).or_default();
        weight.clients += 1;
        weight.requests += requests;
    }

    /// Removes a client that was added.
    pub fn remove(&mut self, value: u64, requests: u64) {
        if let Entry::Occupied(mut entry) = self.0.entry(value) {
            let weight = entry.get_mut();
            weight.clients -= 1;
            weight.requests -= requests;
            if weight.clients == 0 {
                entry.remove();
            }
        }
    }

    /// The least value that at most `count` clients exceed; zero without clients.
    pub fn exceeded_by(&self, count: u64) -> u64 {
        let mut above = 0;
        let mut is_last = |weight: &Weight| {
            above += weight.clients;
            above > count
        };
        let mut descending = self.0.iter().rev();
        descending.find(|(_, weight)| is_last(weight)).map_or(0, |(value, _)| *value)
    }

    /// The largest value; zero without clients.
    pub fn largest(&self) -> u64 {
        self.exceeded_by(0)
    }

    /// Quantiles over clients.
    pub fn of_clients(&self) -> Quantiles {
        self.quantiles(|weight| weight.clients)
    }

    /// Quantiles over requests: each counts with the value of its client.
    pub fn of_requests(&self) -> Quantiles {
        self.quantiles(|weight| weight.requests)
    }

    /// The clients with a value above each of the values that occur, as steps from the least value on. Of steps that would
    /// be at the same place of a plot with logarithmic axes only the last is kept, so that there are at most about 200.
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let clients: u64 = self.0.values().map(|weight| weight.clients).sum();
        let largest = self.0.last_key_value().map_or(0, |(value, _)| *value);
        let mut above = clients;
        let mut steps: Vec<(u64, u64)> = Vec::new();
        let mut last_cell = None;
        for (value, weight) in &self.0 {
            above -= weight.clients;
            let cell = Some((cell(*value, largest), cell(above, clients)));
            if cell == last_cell {
                steps.pop();
            }
            last_cell = cell;
            steps.push((*value, above));
        }
        steps
    }

    fn quantiles(&self, count: impl Fn(&Weight) -> u64) -> Quantiles {
        let total: u64 = self.0.values().map(&count).sum();
        // The nearest rank: the least value with at least so many per mille at or below it.
        let quantile = |per_mille: u64| {
            let rank = (u128::from(total) * u128::from(per_mille)).div_ceil(1_000);
            let mut below = 0_u128;
            let mut reached = |weight: &Weight| {
                below += u128::from(count(weight));
                below >= rank
            };
            self.0.iter().find(|(_, weight)| reached(weight)).map_or(0, |(value, _)| *value)
        };
        let [p50, p90, p99, p99_9, max] = [500, 900, 990, 999, 1_000].map(quantile);
        Quantiles { p50, p90, p99, p99_9, max }
    }
}

/// The cell of a number on a logarithmic axis from 0 to `largest`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn cell(number: u64, largest: u64) -> usize {
    let position = (number as f64).ln_1p() / (largest.max(1) as f64).ln_1p();
    (position * CELLS).round() as usize
}

/// The error probability of an upper bound.
pub(super) const ERROR: f64 = 0.05;
/// The steps in which an interval is halved until a double is exact.
const STEPS: usize = 60;
/// Terms of a sum that are smaller than this part of it are left out.
const NEGLIGIBLE: f64 = 1e-17;

/// The upper bound of the share of all clients of which `count` in `of` were seen, with a confidence of 95 %: the share with
/// which at most `count` would be seen in 5 % of samples (Clopper, Pearson: The use of confidence or fiducial limits
/// illustrated in the case of the binomial, Biometrika 26, 1934).
pub(super) fn upper_bound(count: u64, of: u64) -> f64 {
    if count >= of {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if at_most(count, of, middle) > ERROR {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability of at most `count` successes in `of` trials with this chance each.
#[allow(clippy::cast_precision_loss)]
fn at_most(count: u64, of: u64, chance: f64) -> f64 {
    let (k, n) = (count as f64, of as f64);
    if k >= n * chance {
        // The bound is above the mean, where the sum below has no negligible terms, and the answer is not near the error.
        return 1.0;
    }
    let ways = ln_factorial(of) - ln_factorial(count) - ln_factorial(of - count);
    let mut term = (ways + k * chance.ln() + (n - k) * (-chance).ln_1p()).exp();
    let mut sum = term;
    // Below the mean each term is smaller than the one after it.
    let mut successes = k;
    while successes > 0.0 && term > sum * NEGLIGIBLE {
        term *= successes * (1.0 - chance) / ((n - successes + 1.0) * chance);
        sum += term;
        successes -= 1.0;
    }
    sum
}

/// ln(n!): the sum for small n, otherwise Stirling's series, of which the first omitted term is below 1e-16.
#[allow(clippy::cast_precision_loss)]
fn ln_factorial(n: u64) -> f64 {
    if n < 64 {
        return (2..=n).map(|factor| (factor as f64).ln()).sum();
    }
    let x = n as f64;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1_260.0 * x * x)) / (x * x)) / x;
    x * x.ln() - x + 0.5 * (std::f64::consts::TAU * x).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let mut distribution = Distribution::default();
        for value in 1..=1_000 {
            distribution.add(value, if value == 1_000 { 999 } else { 1 });
        }
        let clients = Quantiles { p50: 500, p90: 900, p99: 990, p99_9: 999, max: 1_000 };
        assert_eq!(distribution.of_clients(), clients);
        assert_eq!(distribution.of_requests().p50, 999);
        assert_eq!(distribution.of_requests().p90, 1_000);
        assert_eq!(Distribution::default().of_clients().max, 0);
    }

    #[test]
    fn a_value_is_exceeded_by_at_most_so_many_clients() {
        let mut distribution = Distribution::default();
        for value in [1, 5, 5, 7, 9] {
            distribution.add(value, 1);
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(|count| distribution.exceeded_by(count)), [9, 7, 5, 5, 1, 0]);
        assert_eq!(distribution.steps(), [(1, 4), (5, 2), (7, 1), (9, 0)]);
        distribution.remove(9, 1);
        distribution.remove(5, 1);
        assert_eq!(distribution.steps(), [(1, 2), (5, 1), (7, 0)]);
    }

    #[test]
    fn steps_are_bounded_and_end_with_the_largest_value() {
        let mut distribution = Distribution::default();
        for value in 1..=100_000 {
            distribution.add(value, 1);
        }
        let steps = distribution.steps();
        assert!((100..=202).contains(&steps.len()), "{}", steps.len());
        assert_eq!(steps.last(), Some(&(100_000, 0)));
        assert!(steps.is_sorted_by(|one, next| one.0 < next.0 && one.1 > next.1));
    }

    /// Values of R: `binom.test(k, n, alternative = "less")$conf.int[2]`.
    #[test]
    fn bounds_are_those_of_the_binomial_test() {
        for (count, of, bound) in [
            (0, 100, 0.029_513_05),
            (0, 1_000, 0.002_991_249),
            (1, 100, 0.046_559_81),
            (5, 100, 0.102_253_34),
            (10, 10, 1.0),
            (0, 1, 0.95),
        ] {
            let found = upper_bound(count, of);
            assert!((found - bound).abs() < 1e-6, "{count} of {of}: {found}");
        }
    }

    #[test]
    fn bounds_of_large_samples_are_near_their_shares() {
        let bound = upper_bound(1_000, 1_000_000);
        // The normal approximation: 1.645 standard deviations above the share.
        assert!((bound - 0.001_053).abs() < 2e-6, "{bound}");
        assert!(upper_bound(500_000, 1_000_000) < 0.501);
    }

    #[test]
    fn logarithms_of_factorials_meet() {
        let exact: f64 = (2..=64).map(|factor| f64::from(factor).ln()).sum();
        assert!((ln_factorial(64) - exact).abs() < 1e-10);
    }
}
