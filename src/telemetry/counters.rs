//! Counters that one worker increments and that a scrape sums up.
//!
//! Each worker has its own, on cache lines of its own, so that cores do not contend for them: the types that hold counters
//! are aligned to 128 bytes, since processors fetch cache lines in pairs of 64 bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Counters of one worker.
#[derive(Debug)]
pub(super) struct Counters<const N: usize>([AtomicU64; N]);

/// The counters of each worker, by its number.
#[derive(Debug)]
pub(super) struct PerWorker<T>(Vec<Arc<T>>);

/// Counters that take memory only when something was counted: of many routes and servers, few have requests.
#[derive(Debug)]
pub(super) struct OnDemand<T>(OnceLock<Box<T>>);

/// What was counted between two sums of the same counters; all of the later one if the counters have started again in
/// between, since a limit or route with their name was removed and added again.
pub(super) fn counted_since<const N: usize>(earlier: &[u64; N], later: &[u64; N]) -> [u64; N] {
    let has_restarted = earlier.iter().zip(later).any(|(earlier, later)| later < earlier);
    if has_restarted { *later } else { std::array::from_fn(|index| later[index] - earlier[index]) }
}

impl<const N: usize> Counters<N> {
    /// Adds to one counter. Only the thread of its worker adds, so that it needs no locked instruction; other threads read.
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Adds the values of all counters to `sums`.
    pub fn sum_into(&self, sums: &mut [u64; N]) {
        for (sum, counter) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
        }
    }
}

impl<T: Default> PerWorker<T> {
    /// The counters of a worker.
    pub fn of(&mut self, worker: usize) -> Arc<T> {
        if self.0.len() <= worker {
            self.0.resize_with(worker + 1, Arc::default);
        }
        Arc::clone(&self.0[worker])
    }

    /// The counters of all workers.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|counters| &**counters)
    }
}

impl<T: Default> OnDemand<T> {
    /// The counters, to count something.
    #[inline]
    pub fn get(&self) -> &T {
        self.0.get_or_init(Box::default)
    }

    /// The counters; none if nothing was counted.
    pub fn used(&self) -> Option<&T> {
        self.0.get().map(|counters| &**counters)
    }
}

impl<T: Default> PerWorker<OnDemand<T>> {
    /// The counters of all workers that have counted something.
    pub fn used(&self) -> impl Iterator<Item = &T> {
        self.all().filter_map(OnDemand::used)
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<T> Default for PerWorker<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}
