//! Requests and denials over time.

use serde::Serialize;

use super::super::tally::{Bin, Series};

/// Requests and denials over time.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesReport {
    /// The length of each span of time, in microseconds.
    pub bin_us: u64,
    /// The spans, without gaps.
    pub bins: Vec<Bin>,
}

impl SeriesReport {
    pub(super) fn new(series: &Series) -> Self {
        Self { bin_us: series.width().0, bins: series.bins().collect() }
    }
}
