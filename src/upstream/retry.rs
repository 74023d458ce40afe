//! When a request without a response is sent again: at once to another endpoint, or after a pause while no server answers, and
//! within the budget of retries of its upstream.

use std::cell::Cell;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::time::{cached_now, monotonic};

/// The first pause; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// The cost of one retry.
const RETRY: u64 = 1_000_000;
/// The balance up to which time refills the budget, one retry a second, so that a proxy with few requests may retry.
const REFILL_LIMIT: u64 = 10 * RETRY;
/// The largest balance.
const MAX_BALANCE: u64 = 100 * RETRY;

/// Whether and when a request may be sent again after an attempt without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It may have been processed, or its body cannot be sent again.
    Never,
    /// It is safe, and another attempt may succeed at once.
    AtOnce,
    /// It is safe, and succeeds only when the server is back.
    AfterPause,
}

/// The attempts of one request.
#[derive(Debug)]
pub(super) struct Attempts {
    /// The endpoints of the failed attempts since the last pause.
    tried: SmallVec<[usize; 4]>,
    /// The number of failed attempts.
    failed: usize,
    /// The number of pauses.
    pauses: u32,
    /// No pause ends later than this. None if requests do not wait for a server.
    retry_until: Option<Instant>,
    /// By when the exchange must be complete, including the response's body.
    pub deadline: Option<Instant>,
}

impl Attempts {
    /// No attempts yet; `retry_for` is how long the request may wait for a server, and `total` how long all attempts together may
    /// take.
    pub fn new(retry_for: Option<Duration>, total: Option<Duration>) -> Self {
        let deadline = total.map(|total| cached_now() + total);
        let retry_until = retry_for.map(|wait| {
            let until = cached_now() + wait;
            deadline.map_or(until, |deadline| until.min(deadline))
        });
        Self { tried: SmallVec::new(), failed: 0, pauses: 0, retry_until, deadline }
    }

    /// The endpoints that failed since the last pause.
    pub fn tried(&self) -> &[usize] {
        &self.tried
    }

    /// The number of the present attempt, counted from 1.
    pub fn number(&self) -> usize {
        self.failed + 1
    }

    /// Whether there is one of `retries` until the next pause.
    pub fn has_retry(&self, retries: u32) -> bool {
        self.tried.len() < retries as usize
    }

    /// Whether the request may wait for a server.
    pub fn may_pause(&self) -> bool {
        self.retry_until.is_some()
    }

    /// Records a failed attempt at the endpoint with this index.
    pub fn fail(&mut self, index: usize) {
        self.tried.push(index);
        self.failed += 1;
    }

    /// Starts a pause, after which every endpoint is tried again; returns its end. None if it would be longer than the
    /// request may wait.
    pub fn pause(&mut self) -> Option<Instant> {
        let until = self.retry_until?;
        let pause = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(8)).min(LONGEST_PAUSE);
        // Half of it is random, so that the requests that wait do not all return at once.
        let end = monotonic() + pause.mul_f64(0.5 + 0.5 * fastrand::f64());
        if end > until {
            return None;
        }
        self.pauses += 1;
        self.tried.clear();
        Some(end)
    }
}

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

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_in_time() {
        let start = monotonic();
        let mut attempts = Attempts::new(Some(Duration::from_secs(2)), None);
        let mut pauses = Vec::new();
        loop {
            attempts.fail(0);
            let before = monotonic();
            let Some(end) = attempts.pause() else { break };
            assert!(attempts.tried().is_empty());
            tokio::time::sleep_until(end).await;
            pauses.push(monotonic() - before);
        }
        let (first, last) = (pauses[0], *pauses.last().unwrap());
        assert!((FIRST_PAUSE / 2..=FIRST_PAUSE + Duration::from_millis(1)).contains(&first), "{pauses:?}");
        assert!((LONGEST_PAUSE / 2..=LONGEST_PAUSE + Duration::from_millis(1)).contains(&last), "{pauses:?}");
        let waited = monotonic() - start;
        assert!((Duration::from_millis(1600)..=Duration::from_millis(2001)).contains(&waited), "{waited:?}");
        assert_eq!(attempts.number(), pauses.len() + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn without_retry_for_there_is_no_pause() {
        let mut attempts = Attempts::new(None, None);
        attempts.fail(3);
        assert_eq!((attempts.pause(), attempts.tried()), (None, &[3][..]));
        assert!(attempts.has_retry(2) && !attempts.has_retry(1));
    }

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
