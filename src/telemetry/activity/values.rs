//! Values of a frame.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::sums::OutcomeSums;
use crate::telemetry::histogram::DurationSums;
use crate::telemetry::outcome::Outcome;

/// The most limits, routes and servers of a frame, each.
pub(super) const MAX_LISTED: usize = 100;

/// A name, which many frames share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedName(pub Arc<str>);

/// Decisions by outcome. Outcomes without decisions are not serialized.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecisionSums(pub OutcomeSums);

/// Quantiles of durations, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    p50: f64,
    p99: f64,
}

impl DecisionSums {
    /// How many there are with one of these outcomes.
    pub fn count(&self, outcomes: &[Outcome]) -> u64 {
        outcomes.iter().map(|outcome| self.0[*outcome as usize]).sum()
    }
}

impl Latency {
    /// None without durations.
    pub fn of(durations: &DurationSums) -> Option<Self> {
        Some(Self {
            p50: rounded(durations.quantile(0.5)?, 1e6),
            p99: rounded(durations.quantile(0.99)?, 1e6),
        })
    }
}

/// Rounds to a multiple of a fraction, so that the text is short.
pub(super) fn rounded(value: f64, fractions: f64) -> f64 {
    (value * fractions).round() / fractions
}

/// The entries with the largest ranks in descending order, [`MAX_LISTED`] at most, and the number of the others.
pub(super) fn largest<T, K: Ord>(mut all: Vec<T>, rank: impl Fn(&T) -> K) -> (Vec<T>, usize) {
    let left_out = all.len().saturating_sub(MAX_LISTED);
    if left_out > 0 {
        all.select_nth_unstable_by_key(MAX_LISTED, |entry| Reverse(rank(entry)));
        all.truncate(MAX_LISTED);
        // The history keeps it.
        all.shrink_to_fit();
    }
    all.sort_by_key(|entry| Reverse(rank(entry)));
    (all, left_out)
}

impl Serialize for SharedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Serialize for DecisionSums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let outcomes = Outcome::ALL.iter().map(|(_, outcome)| outcome);
        serializer.collect_map(outcomes.zip(self.0).filter(|(_, count)| *count > 0))
    }
}
