//! How long a reply of Redis is waited for, apart from the delays of our own thread.
//!
//! A worker serves clients and reads replies on one thread. When it has much to do, a reply that lies in the socket is read
//! late, and timers fire late. So the time of a command is measured in slices, each of which starts when the thread has noticed
//! the end of the one before: whatever a timer is late extends the time. After the last slice, what has arrived meanwhile is
//! read. If each turn of the event loop takes L, a silent server is noticed after the timeout and about ten times L.
//!
//! So the circuit breaker measures Redis and not the worker. fred's own timeout of a command can't be extended, so a command is
//! not polled from that time on until the deadline has passed.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::time::monotonic;

/// The parts of the time: the first slice has half of them, since most replies come within it, and the others one each.
const PARTS: u32 = 8;
/// By how much a timer is late without any delay of the thread.
const TOLERANCE: Duration = Duration::from_millis(3);
/// Turns of the event loop in which a reply is read by the task of fred, and passed on by that of the lane.
const TURNS: usize = 2;
/// By how much fred's timeout is shorter than ours: a command that fred has timed out is not sent any more.
const FRED_MARGIN: Duration = Duration::from_millis(2);

thread_local! {
    /// How many timers were late on this thread.
    static DELAYS: Cell<u64> = const { Cell::new(0) };
}

/// The time for which a command is waited for.
#[derive(Debug)]
struct Patience {
    /// How many parts are left.
    parts: u32,
    part: Duration,
    /// The end of the last slice.
    end: Instant,
}

/// The timeout that fred gets for its commands, if ours is `timeout`.
pub(super) fn fred_timeout(timeout: Duration) -> Duration {
    timeout.saturating_sub(FRED_MARGIN).max(Duration::from_millis(1))
}

/// Waits until `deadline` for a reply that a task of this thread passes on; none if there is none. If the thread was delayed
/// meanwhile, it waits for as long as that task does, which knows how long Redis has really had.
pub(super) async fn wait_for_reply<T>(deadline: Instant, reply: impl Future<Output = T>) -> Option<T> {
    let (mut reply, delays) = (pin!(reply), DELAYS.get());
    if let Ok(reply) = timeout_at(deadline, reply.as_mut()).await {
        return Some(reply);
    }
    notice(deadline);
    if DELAYS.get() != delays {
        return Some(reply.await);
    }
    for _ in 0..TURNS {
        tokio::select! {
            biased;
            reply = reply.as_mut() => return Some(reply),
            () = yield_now() => {}
        }
    }
    // Refreshes the thread's cached time after the wait.
    let _ = monotonic();
    None
}

/// Waits for the outcome of a command that is given to fred now; none if it takes longer than `timeout`.
///
/// fred's own timeout knows nothing of delays, and would fail a command whose reply was not read yet. So from shortly before
/// that time the command is not polled until there can't be a reply any more. The command is pinned by the caller: a future of
/// fred takes 7 KiB, and an argument that is pinned here would be in this future twice.
pub(super) async fn wait_for_command<T>(
    timeout: Duration,
    mut command: impl Future<Output = T> + Unpin,
) -> Option<T> {
    let start = monotonic();
    let fails = start + fred_timeout(timeout);
    let mut patience = Patience::new(start, timeout.saturating_sub(2 * FRED_MARGIN).max(timeout / 2));
    while let Some(end) = patience.next_slice() {
        if end < fails {
            tokio::select! {
                // First, because the command may have failed when this is ready.
                biased;
                () = sleep_until(end) => {}
                outcome = &mut command => return Some(outcome),
            }
        } else {
            sleep_until(end).await;
        }
    }
    for _ in 0..TURNS {
        yield_now().await;
    }
    timeout_at(monotonic() + 2 * FRED_MARGIN, command).await.ok()
}

/// Notices the end of a slice or deadline now; returns the time, and whether that is late.
fn notice(end: Instant) -> (Instant, bool) {
    let now = monotonic();
    let is_late = end + TOLERANCE < now;
    DELAYS.set(DELAYS.get() + u64::from(is_late));
    (now, is_late)
}

impl Patience {
    fn new(start: Instant, time: Duration) -> Self {
        Self { parts: PARTS, part: time / PARTS, end: start }
    }

    /// The end of the next slice; none after the last.
    fn next_slice(&mut self) -> Option<Instant> {
        let parts = if self.parts == PARTS { PARTS / 2 } else { 1 };
        if self.parts < PARTS
            && let (now, true) = notice(self.end)
        {
            self.end = now;
        }
        self.parts = self.parts.checked_sub(parts)?;
        self.end += self.part * parts;
        Some(self.end)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::{advance, sleep};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    /// Runs `waiting` beside a task that keeps the thread for `busy` in each turn; its output, and how long it took.
    async fn beside<T>(busy: Duration, waiting: impl Future<Output = T>) -> (T, Duration) {
        let start = monotonic();
        let work = async {
            loop {
                sleep(Duration::from_millis(1)).await;
                advance(busy).await;
            }
        };
        tokio::select! {
            biased;
            output = waiting => (output, monotonic() - start),
            _ = work => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delays_of_the_thread_extend_the_time_within_a_bound() {
        let silent = || wait_for_command(TIMEOUT, Box::pin(std::future::pending::<()>()));
        let (reply, took) = beside(Duration::ZERO, silent()).await;
        assert!(reply.is_none() && took >= TIMEOUT * 9 / 10 && took <= TIMEOUT + TOLERANCE, "{took:?}");
        let delay = Duration::from_millis(100);
        let (reply, took) = beside(delay, silent()).await;
        assert!(reply.is_none() && took > 4 * delay && took <= TIMEOUT + 10 * delay, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_comes_during_delays_is_read() {
        let delay = Duration::from_millis(100);
        let (reply, replied) = oneshot::channel();
        let sending = tokio::spawn(async move {
            // Longer than the deadline, but not longer than the thread is busy.
            sleep(3 * delay).await;
            reply.send(()).unwrap();
        });
        let (read, _) = beside(delay, wait_for_command(TIMEOUT, replied)).await;
        assert_eq!(read, Some(Ok(())));
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_delay_the_task_that_passes_on_the_reply_decides() {
        let (sender, replied) = oneshot::channel::<()>();
        let deadline = monotonic() + TIMEOUT;
        assert_eq!(wait_for_reply(deadline, replied).await, None);
        drop(sender);
        let (sender, replied) = oneshot::channel();
        let deadline = monotonic() + TIMEOUT;
        let deciding = tokio::spawn(async move {
            sleep(10 * TIMEOUT).await;
            sender.send(()).unwrap();
        });
        let (reply, _) = beside(2 * TIMEOUT, wait_for_reply(deadline, replied)).await;
        assert_eq!(reply, Some(Ok(())));
        deciding.await.unwrap();
    }
}
