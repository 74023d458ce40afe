//! How many requests of an upstream may be sent again.

use std::cell::Cell;

use tokio::time::Instant;

use crate::time::cached_now;

/// What one retry costs.
const RETRY: u64 = 1_000_000;
/// Retries that a worker may always save up, at one a second: a quiet proxy may retry at all.
const FLOOR: u64 = 10 * RETRY;
/// The most that requests can save up.
const MOST: u64 = 100 * RETRY;

/// One worker's savings: each request brings its share of a retry, and each second one, up to a floor.
#[derive(Debug)]
pub(super) struct RetryBudget {
    /// What a request brings.
    share: u64,
    saved: Cell<u64>,
    /// Up to when the seconds have been counted.
    counted: Cell<Instant>,
}

impl RetryBudget {
    /// A budget of this share of the requests, from 0 to 1.
    pub fn new(share: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 0 to a million.
        let share = (share.clamp(0.0, 1.0) * 1e6) as u64;
        Self { share, saved: Cell::new(FLOOR), counted: Cell::new(cached_now()) }
    }

    /// A request has come.
    pub fn deposit(&self) {
        self.saved.set((self.saved.get() + self.share).min(MOST));
    }

    /// Takes what one retry costs; says whether it was there.
    pub fn withdraw(&self) -> bool {
        let (now, mut saved) = (cached_now(), self.saved.get());
        if saved < FLOOR {
            let passed = now.saturating_duration_since(self.counted.get()).as_micros();
            let brought = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(RETRY / 1_000_000);
            saved = saved.saturating_add(brought).min(FLOOR);
        }
        self.counted.set(now);
        let is_there = saved >= RETRY;
        self.saved.set(if is_there { saved - RETRY } else { saved });
        is_there
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::monotonic;

    fn taken(budget: &RetryBudget) -> usize {
        std::iter::repeat_with(|| budget.withdraw()).take_while(|is_there| *is_there).count()
    }

    #[test]
    fn requests_bring_their_share() {
        let budget = RetryBudget::new(0.2);
        assert_eq!(taken(&budget), 10);
        (0..100).for_each(|_| budget.deposit());
        assert_eq!(taken(&budget), 20);
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(taken(&budget), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_brings_one_up_to_the_floor() {
        let budget = RetryBudget::new(0.0);
        assert_eq!(taken(&budget), 10);
        for (seconds, retries) in [(1, 1), (3, 3), (1_000, 10)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let _ = monotonic();
            budget.deposit();
            assert_eq!(taken(&budget), retries);
        }
    }
}
