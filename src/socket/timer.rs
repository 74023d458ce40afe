//! Timers that are hardly ever touched.

use std::future::Future as _;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

use super::rate::{RATE_GRACE, TransferRate};
use crate::time::{monotonic, recent};

/// Longer than anything waits.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A timer that is armed lazily: one that rings too early is set again, so that it need not be touched whenever its
/// deadline moves back.
#[derive(Debug, Default)]
pub struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    wakes: Option<Waker>,
}

/// Bounds each wait for something that is no socket, such as one stream among several on a connection.
#[derive(Debug)]
pub struct Deadline {
    span: Duration,
    /// When all must be over.
    limit: Option<Instant>,
    since: Option<Instant>,
    rate: TransferRate,
    alarm: LazyTimer,
}

/// Something was waited for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct TooLate;

impl LazyTimer {
    /// Ready when the deadline is past; until then it sees to it that the task is woken by then.
    pub fn wait_until(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
            self.wakes = None;
        }
        if !sleep.is_elapsed() && self.wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.wakes = Some(cx.waker().clone());
        ready!(look(sleep.as_mut(), cx));
        if monotonic() < deadline {
            sleep.as_mut().reset(deadline);
            ready!(look(sleep.as_mut(), cx));
        }
        Poll::Ready(())
    }

    /// When it rings next, if it is set.
    #[must_use]
    pub fn rings_at(&self) -> Option<Instant> {
        self.sleep.as_ref().map(|sleep| sleep.deadline())
    }
}

/// Looks at a timer whatever the task has done in its turn: tokio would not set one for a task that has used it up, but
/// have it look again, and here nobody looks twice.
fn look(sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    pin!(unconstrained(sleep)).poll(cx)
}

impl Deadline {
    /// Waits of at most so long each.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        Self { span, limit: None, since: None, rate: TransferRate::new(None), alarm: LazyTimer::default() }
    }

    /// Waits that end by `limit`, and of at most so long each, as far as those are given.
    #[must_use]
    pub fn within(span: Option<Duration>, limit: Option<Instant>) -> Option<Self> {
        let bounded = span.is_some() || limit.is_some();
        bounded.then(|| Self { limit, ..Self::new(span.unwrap_or(FOREVER)) })
    }

    /// The same for a transfer, which has a minimum rate in bytes per second if one is given.
    #[must_use]
    pub fn with_min_rate(self, min_rate: Option<NonZeroU32>) -> Self {
        Self { rate: TransferRate::new(min_rate), ..self }
    }

    /// All must be over by then, if that is given.
    pub fn set_limit(&mut self, limit: Option<Instant>) {
        self.limit = limit;
    }

    /// So many bytes were transferred.
    pub fn add_bytes(&mut self, bytes: usize) {
        self.rate.add_bytes(bytes);
    }

    /// How much longer may be waited with this grace; none without a minimum rate.
    #[must_use]
    pub fn allowance(&self, grace: Duration) -> Option<Duration> {
        self.rate.allowance(grace)
    }

    /// What is waited for has gone on in some other way until then.
    pub fn went_on(&mut self, until: Instant) {
        self.since = self.since.map(|since| since.max(until));
    }

    /// Passes on what has come of waiting, unless that has taken too long.
    pub fn bound<T>(&mut self, progress: Poll<T>, cx: &mut Context<'_>) -> Poll<Result<T, TooLate>> {
        if let Poll::Ready(done) = progress {
            if let Some(since) = self.since.take() {
                self.rate.add_wait(recent() - since);
            }
            let is_over = self.limit.is_some_and(|limit| limit <= recent());
            return Poll::Ready(if is_over { Err(TooLate) } else { Ok(done) });
        }
        let span = self.allowance(RATE_GRACE).map_or(self.span, |allowance| allowance.min(self.span));
        let deadline = *self.since.get_or_insert_with(monotonic) + span;
        let deadline = self.limit.map_or(deadline, |limit| limit.min(deadline));
        self.alarm.wait_until(deadline, cx).map(|()| Err(TooLate))
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::coop::poll_proceed;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn it_rings_for_a_task_that_had_used_up_its_turn() {
        let (mut alarm, mut is_first) = (LazyTimer::default(), true);
        let deadline = monotonic() + SECOND;
        let rings = std::future::poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                while let Poll::Ready(turn) = poll_proceed(cx) {
                    turn.made_progress();
                }
            }
            alarm.wait_until(deadline, cx)
        });
        tokio::time::timeout(10 * SECOND, rings).await.unwrap();
        assert_eq!(monotonic(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_time() {
        let mut waiting = Deadline::new(SECOND);
        let mut wait = async |span| {
            let mut sleep = std::pin::pin!(tokio::time::sleep(span));
            std::future::poll_fn(|cx| waiting.bound(sleep.as_mut().poll(cx), cx)).await
        };
        for _ in 0..3 {
            assert_eq!(wait(SECOND / 2).await, Ok(()));
        }
        assert_eq!(wait(2 * SECOND).await, Err(TooLate));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_transfer_ends_when_its_average_is_below_the_minimum() {
        let mut waiting = Deadline::new(30 * SECOND).with_min_rate(NonZeroU32::new(100));
        let started = monotonic();
        let end = loop {
            let mut sleep = std::pin::pin!(tokio::time::sleep(3 * SECOND));
            let waited = std::future::poll_fn(|cx| {
                let progress = sleep.as_mut().poll(cx);
                waiting.bound(progress.map(|()| monotonic()), cx)
            });
            if waited.await.is_err() {
                break monotonic() - started;
            }
            // Less than a third of what has to come.
            waiting.add_bytes(90);
        };
        assert_eq!(end, RATE_GRACE);
    }
}
