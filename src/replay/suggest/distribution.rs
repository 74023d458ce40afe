//! How a number is distributed over clients, and over their requests.

use std::collections::BTreeMap;

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
    /// Of half of them.
    pub p50: u64,
    /// Of 90 %.
    pub p90: u64,
    /// Of 99 %.
    pub p99: u64,
    /// Of 99.9 %.
    pub p99_9: u64,
    /// Of all.
    pub max: u64,
}

impl Distribution {
    /// Adds a client with this value, which made so many requests.
    pub fn add(&mut self, value: u64, requests: u64) {
        let weight = self.0.entry(value).or_default();
        weight.clients += 1;
        weight.requests += requests;
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
}
