//! The budget of retries of an upstream.

use std::cell::Cell;

use tokio::time::Instant;

use crate::time::cached_now;

/// The cost of one retry.
const RETRY: u64 = 1_000_000;
/// The balance up to which time refills the budget, one retry a second, so that a proxy with few requests may retry.
const REFILL_LIMIT: u64 = 10 * RETRY;
/// The largest balance.
const MAX_BALANCE: u64 = 100 * RETRY;

/// One worker's budget: each request deposits a share of a retry, and each second one retry, up to a limit.
#[derive(Debug)]
pub(super) struct RetryBudget {
    /// The deposit of one request.
    share: u64,
    balance: Cell<u64>,
    /// The time up to which the budget was refilled.
    refilled_at: Cell<Instant>,
}

impl RetryBudget {
    /// A budget of this share of the requests, from 0 to 1.
    pub fn new(share: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a million")]
        let share = (share.clamp(0.0, 1.0) * 1e6) as u64;
        Self { share, balance: Cell::new(REFILL_LIMIT), refilled_at: Cell::new(cached_now()) }
    }

    /// Deposits the share of one request.
    pub fn deposit(&self) {
        self.balance.set((self.balance.get() + self.share).min(MAX_BALANCE));
    }

    /// Withdraws the cost of one retry; returns whether the balance covered it.
    pub fn withdraw(&self) -> bool {
        let (now, mut balance) = (cached_now(), self.balance.get());
        if balance < REFILL_LIMIT {
            let passed = now.saturating_duration_since(self.refilled_at.get()).as_micros();
            let refill = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(RETRY / 1_000_000);
            balance = balance.saturating_add(refill).min(REFILL_LIMIT);
        }
        self.refilled_at.set(now);
        let is_covered = balance >= RETRY;
        self.balance.set(if is_covered { balance - RETRY } else { balance });
        is_covered
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::monotonic;

    fn withdrawn(budget: &RetryBudget) -> usize {
        std::iter::repeat_with(|| budget.withdraw()).take_while(|is_covered| *is_covered).count()
    }

    #[test]
    fn requests_deposit_their_share() {
        let budget = RetryBudget::new(0.2);
        assert_eq!(withdrawn(&budget), 10);
        (0..100).for_each(|_| budget.deposit());
        assert_eq!(withdrawn(&budget), 20);
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(withdrawn(&budget), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn time_refills_one_retry_a_second_up_to_the_limit() {
        let budget = RetryBudget::new(0.0);
        assert_eq!(withdrawn(&budget), 10);
        for (seconds, retries) in [(1, 1), (3, 3), (1_000, 10)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let _ = monotonic();
            budget.deposit();
            assert_eq!(withdrawn(&budget), retries);
        }
    }
}
