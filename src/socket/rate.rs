//! Minimum rates of transfers, and credit for messages that are small for the work that they cause.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use crate::time::cached_now;

/// How long a transfer may be slower than its minimum rate.
pub const RATE_GRACE: Duration = Duration::from_secs(10);

/// The average rate of one transfer, compared with a minimum. Only the time spent waiting for the peer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferRate {
    /// The minimum in bytes per second; none if the transfer may be arbitrarily slow.
    min: Option<NonZeroU32>,
    bytes: u64,
    /// Time spent waiting for the peer.
    waited: Duration,
}

impl TransferRate {
    /// A transfer that starts, with a minimum rate in bytes per second if it has one.
    #[must_use]
    pub const fn new(min: Option<NonZeroU32>) -> Self {
        Self { min, bytes: 0, waited: Duration::ZERO }
    }

    /// Whether there is a minimum.
    #[must_use]
    pub const fn is_bounded(&self) -> bool {
        self.min.is_some()
    }

    /// Counts bytes that were transferred.
    pub fn add_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Counts time spent waiting for the peer.
    pub fn add_wait(&mut self, wait: Duration) {
        self.waited = self.waited.saturating_add(wait);
    }

    /// How much longer the peer may be waited for: until the average falls below the minimum, but for `grace` in any case;
    /// none if there is no minimum.
    #[must_use]
    pub fn allowance(&self, grace: Duration) -> Option<Duration> {
        let min = u64::from(self.min?.get());
        let earned = Duration::from_micros(self.bytes.saturating_mul(1_000_000) / min);
        Some(earned.max(grace).saturating_sub(self.waited))
    }
}

/// The credit that a peer earns with time.
#[derive(Clone, Copy, Debug)]
pub struct EarnedCredit {
    per_second: u64,
    /// The time up to which it was taken.
    taken_to: Instant,
}

impl EarnedCredit {
    /// Starts now.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self { per_second, taken_to: cached_now() }
    }

    /// Takes the credit for the whole seconds that have passed since the last one for which it was taken.
    pub fn take(&mut self) -> u64 {
        let seconds = cached_now().saturating_duration_since(self.taken_to).as_secs();
        self.taken_to += Duration::from_secs(seconds);
        seconds.saturating_mul(self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::monotonic;

    const SECOND: Duration = Duration::from_secs(1);

    fn transfer(min: u32) -> TransferRate {
        TransferRate::new(NonZeroU32::new(min))
    }

    #[test]
    fn a_transfer_is_not_measured_before_its_grace_is_over() {
        let mut rate = transfer(100);
        assert_eq!(rate.allowance(RATE_GRACE), Some(10 * SECOND));
        rate.add_wait(4 * SECOND);
        assert_eq!(rate.allowance(RATE_GRACE), Some(6 * SECOND));
        rate.add_bytes(999);
        assert_eq!(rate.allowance(RATE_GRACE), Some(6 * SECOND));
        rate.add_bytes(201);
        assert_eq!(rate.allowance(RATE_GRACE), Some(8 * SECOND));
        assert_eq!(rate.allowance(SECOND), Some(8 * SECOND));
        rate.add_wait(20 * SECOND);
        assert_eq!(rate.allowance(RATE_GRACE), Some(Duration::ZERO));
    }

    #[test]
    fn a_transfer_at_the_minimum_never_times_out() {
        let mut rate = transfer(240);
        for _ in 0..100_000 {
            rate.add_wait(SECOND);
            rate.add_bytes(240);
            assert!(rate.allowance(Duration::ZERO).is_some_and(|left| left.is_zero()));
        }
        rate.add_bytes(24);
        assert_eq!(rate.allowance(Duration::ZERO), Some(SECOND / 10));
    }

    #[test]
    fn a_transfer_without_a_minimum_is_never_too_slow() {
        let mut rate = transfer(0);
        rate.add_wait(1_000_000 * SECOND);
        assert_eq!((rate.allowance(RATE_GRACE), rate.is_bounded()), (None, false));
    }

    #[test]
    fn large_numbers_saturate() {
        let mut rate = transfer(1);
        (0..3).for_each(|_| rate.add_bytes(usize::MAX));
        rate.add_wait(Duration::MAX);
        rate.add_wait(Duration::MAX);
        assert_eq!(rate.allowance(RATE_GRACE), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn credit_is_earned_by_whole_seconds() {
        let _ = monotonic();
        let mut credit = EarnedCredit::new(100);
        let mut after = async |milliseconds| {
            tokio::time::advance(Duration::from_millis(milliseconds)).await;
            let _ = monotonic();
            credit.take()
        };
        assert_eq!([after(0).await, after(900).await, after(1200).await, after(900).await], [0, 0, 200, 100]);
        assert_eq!(after(u64::from(u32::MAX)).await, 100 * u64::from(u32::MAX / 1000));
    }
}
