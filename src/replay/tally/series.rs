//! Counts over time, in a bounded number of bins, which become wider when there are too many.

use serde::Serialize;

use crate::time::{Micros, Timestamp};

/// The most bins.
const MOST_BINS: usize = 1_024;
/// The widths of bins in seconds, each a multiple of the one before; beyond the last one they double.
const WIDTHS: [u64; 11] = [1, 2, 10, 30, 60, 300, 900, 3_600, 7_200, 21_600, 86_400];

/// Requests and denials over time.
#[derive(Clone, Debug)]
pub struct Series {
    width: Micros,
    /// The number of the first bin: its start divided by the width.
    first: u64,
    counts: Vec<BinCounts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct BinCounts {
    requests: u64,
    denied: u64,
}

/// A bin of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Its start in microseconds since 1970.
    pub start_us: u64,
    /// The requests in it.
    pub requests: u64,
    /// Those that were denied.
    pub denied: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { width: Micros::SECOND, first: 0, counts: Vec::new() }
    }
}

impl Series {
    /// Counts a request. One before the first counts as of the time of the first.
    pub fn record(&mut self, at: Timestamp, is_denied: bool) {
        if self.counts.is_empty() {
            self.first = at.0 / self.width.0;
        }
        while self.bin(at) >= MOST_BINS as u64 {
            self.widen();
        }
        let bin = index(self.bin(at));
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, BinCounts::default());
        }
        self.counts[bin].requests += 1;
        self.counts[bin].denied += u64::from(is_denied);
    }

    /// How long a bin is.
    #[must_use]
    pub fn width(&self) -> Micros {
        self.width
    }

    /// The bins in the order of time.
    pub fn bins(&self) -> impl Iterator<Item = Bin> + '_ {
        (self.first..).zip(&self.counts).map(|(number, counts)| Bin {
            start_us: number * self.width.0,
            requests: counts.requests,
            denied: counts.denied,
        })
    }

    fn bin(&self, at: Timestamp) -> u64 {
        (at.0 / self.width.0).saturating_sub(self.first)
    }

    /// Makes bins wider. They still start at whole multiples of their width.
    fn widen(&mut self) {
        let seconds = self.width.0 / Micros::SECOND.0;
        let wider = WIDTHS.into_iter().find(|width| *width > seconds).unwrap_or(seconds * 2);
        let factor = wider / seconds;
        let first = self.first / factor;
        let mut counts = vec![BinCounts::default(); self.counts.len() / index(factor) + 2];
        for (number, old) in (self.first..).zip(&self.counts) {
            let new = &mut counts[index(number / factor - first)];
            new.requests += old.requests;
            new.denied += old.denied;
        }
        while counts.last().is_some_and(|last| last.requests == 0) {
            counts.pop();
        }
        *self = Self { width: Micros(wider * Micros::SECOND.0), first, counts };
    }
}

/// There are few bins.
fn index(bin: u64) -> usize {
    usize::try_from(bin).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_become_wider_and_lose_nothing() {
        let mut series = Series::default();
        let start = 1_767_571_201_000_000;
        for second in 0..100_000_u64 {
            series.record(Timestamp(start + second * 1_000_000), second % 10 == 0);
        }
        let bins: Vec<Bin> = series.bins().collect();
        assert!(bins.len() <= MOST_BINS && series.width() == Micros(300_000_000), "{:?}", series.width());
        assert_eq!(bins.iter().map(|bin| bin.requests).sum::<u64>(), 100_000);
        assert_eq!(bins.iter().map(|bin| bin.denied).sum::<u64>(), 10_000);
        assert!(bins[0].start_us <= start && bins[1].start_us > start);
        assert_eq!(bins[5].requests, 300);
    }
}
