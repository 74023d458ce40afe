//! A set of counters that one worker increments and that a scrape sums up.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that one worker increments. Aligned to 128 bytes, since processors fetch cache lines in pairs of 64 bytes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counters<const N: usize>([AtomicU64; N]);

impl<const N: usize> Counters<N> {
    /// Adds to one counter. Relaxed: no other memory access depends on it.
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds the values of all counters to `sums`.
    pub fn sum_into(&self, sums: &mut [u64; N]) {
        for (sum, counter) in sums.iter_mut().zip(&self.0) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}
