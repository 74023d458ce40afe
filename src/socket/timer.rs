//! Lazy timers: a deadline moves without re-arming the timer of the runtime.

use std::future::Future as _;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

use super::rate::{RATE_GRACE, TransferRate};
use crate::time::{cached_now, monotonic};

/// Longer than any timeout.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A timer that is armed lazily: when it fires before its current deadline it is armed again, so that a deadline that moves
/// to a later time costs nothing.
#[derive(Debug, Default)]
pub struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The waker that the sleep was last polled with.
    waker: Option<Waker>,
}

/// A timeout for each wait for something that is no socket, such as one stream of an HTTP/2 connection.
#[derive(Debug)]
pub struct Deadline {
    /// For each wait.
    timeout: Duration,
    /// When the last wait has to be over.
    limit: Option<Instant>,
    /// When the current wait started.
    since: Option<Instant>,
    rate: TransferRate,
    timer: LazyTimer,
}

/// A timeout has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct TooLate;

impl LazyTimer {
    /// Ready when the deadline has passed; otherwise the task is woken at that time.
    pub fn wait_until(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
            self.waker = None;
        }
        if !sleep.is_elapsed() && self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        ready!(poll_sleep(sleep.as_mut(), cx));
        if monotonic() < deadline {
            sleep.as_mut().reset(deadline);
            ready!(poll_sleep(sleep.as_mut(), cx));
        }
        Poll::Ready(())
    }
}

/// The earlier of two deadlines.
#[must_use]
pub fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Polls a timer whether or not the task has used up its budget: tokio does not arm a timer then but wakes the task to poll
/// again, and here the task may not poll the timer a second time.
fn poll_sleep(sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    pin!(unconstrained(sleep)).poll(cx)
}

impl Deadline {
    /// A timeout for each wait.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, limit: None, since: None, rate: TransferRate::new(None), timer: LazyTimer::default() }
    }

    /// A timeout for each wait, and a `limit` for all of them together, as far as those are given.
    #[must_use]
    pub fn within(timeout: Option<Duration>, limit: Option<Instant>) -> Option<Self> {
        let is_bounded = timeout.is_some() || limit.is_some();
        is_bounded.then(|| Self { limit, ..Self::new(timeout.unwrap_or(FOREVER)) })
    }

    /// This timeout for a transfer with a minimum rate in bytes per second, if one is given.
    #[must_use]
    pub fn with_min_rate(self, min_rate: Option<NonZeroU32>) -> Self {
        Self { rate: TransferRate::new(min_rate), ..self }
    }

    /// Sets when the last wait has to be over, if at all.
    pub fn set_limit(&mut self, limit: Option<Instant>) {
        self.limit = limit;
    }

    /// Counts bytes that were transferred.
    pub fn add_bytes(&mut self, bytes: usize) {
        self.rate.add_bytes(bytes);
    }

    /// How much longer the peer may be waited for with this grace; none without a minimum rate.
    #[must_use]
    pub fn allowance(&self, grace: Duration) -> Option<Duration> {
        self.rate.allowance(grace)
    }

    /// Restarts the current wait at this time, since there was progress of another kind until then.
    pub fn restart_from(&mut self, instant: Instant) {
        self.since = self.since.map(|since| since.max(instant));
    }

    /// Adds the timeouts to a wait that has made this progress. Fails when the wait took too long.
    pub fn bound<T>(&mut self, progress: Poll<T>, cx: &mut Context<'_>) -> Poll<Result<T, TooLate>> {
        if let Poll::Ready(done) = progress {
            if let Some(since) = self.since.take() {
                self.rate.add_wait(cached_now() - since);
            }
            let is_over = self.limit.is_some_and(|limit| limit <= cached_now());
            return Poll::Ready(if is_over { Err(TooLate) } else { Ok(done) });
        }
        let timeout =
            self.allowance(RATE_GRACE).map_or(self.timeout, |allowance| allowance.min(self.timeout));
        let deadline = *self.since.get_or_insert_with(monotonic) + timeout;
        let deadline = self.limit.map_or(deadline, |limit| limit.min(deadline));
        self.timer.wait_until(deadline, cx).map(|()| Err(TooLate))
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::coop::poll_proceed;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_timer_fires_for_a_task_that_has_used_up_its_budget() {
        let (mut timer, mut is_first) = (LazyTimer::default(), true);
        let deadline = monotonic() + SECOND;
        let rings = std::future::poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                while let Poll::Ready(turn) = poll_proceed(cx) {
                    turn.made_progress();
                }
            }
            timer.wait_until(deadline, cx)
        });
        tokio::time::timeout(10 * SECOND, rings).await.unwrap();
        assert_eq!(monotonic(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_timeout() {
        let mut deadline = Deadline::new(SECOND);
        let mut wait = async |span| {
            let mut sleep = std::pin::pin!(tokio::time::sleep(span));
            std::future::poll_fn(|cx| deadline.bound(sleep.as_mut().poll(cx), cx)).await
        };
        for _ in 0..3 {
            assert_eq!(wait(SECOND / 2).await, Ok(()));
        }
        assert_eq!(wait(2 * SECOND).await, Err(TooLate));
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_times_out_when_its_average_is_below_the_minimum() {
        let mut deadline = Deadline::new(30 * SECOND).with_min_rate(NonZeroU32::new(100));
        let started = monotonic();
        let end = loop {
            let mut sleep = std::pin::pin!(tokio::time::sleep(3 * SECOND));
            let waited = std::future::poll_fn(|cx| {
                let progress = sleep.as_mut().poll(cx);
                deadline.bound(progress.map(|()| monotonic()), cx)
            });
            if waited.await.is_err() {
                break monotonic() - started;
            }
            // Less than a third of the minimum.
            deadline.add_bytes(90);
        };
        assert_eq!(end, RATE_GRACE);
    }
}
