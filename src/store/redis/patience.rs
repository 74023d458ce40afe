//! How long a reply of Redis is waited for, apart from the delays of our own thread.
//!
//! A worker serves clients and reads replies on one thread. When it has much to do, a reply that lies in the socket is read
//! late, and timers fire late. So the time is measured in slices, each of which starts when the thread has noticed the end of
//! the one before: whatever a timer is late extends the deadline. After the last slice, what has arrived meanwhile
//! is read. If each turn of the event loop takes L, a silent server is noticed after the timeout and ten times L.

use std::pin::pin;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::time::{cached_now, monotonic};

/// The parts of the timeout: the first slice has half of them, since most replies come within it, and the others one each.
const PARTS: u32 = 8;
/// By how much a timer is late without any delay of the thread.
const TOLERANCE: Duration = Duration::from_millis(2);
/// A reply is read by the task of fred, and passed on by that of the lane to that of the request: each takes a turn.
const TURNS: usize = 3;
/// By how much fred's timeout is shorter than ours: a command that fred has timed out is not sent any more.
const FRED_MARGIN: Duration = Duration::from_millis(2);

/// The time for which a reply is waited for.
#[derive(Debug)]
pub(super) struct Patience {
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

/// Waits for the outcome of a command that is given to fred now; none if it takes longer than `timeout`.
///
/// fred's own timeout knows nothing of delays, and fails a command whose reply was not read yet. So the command is
/// not polled from shortly before that time until there can't be a reply any more.
pub(super) async fn wait_for_command<T>(
    timeout: Duration,
    command: impl Future<Output = T>,
) -> Option<T> {
    let (start, mut command) = (monotonic(), pin!(command));
    let fails = start + fred_timeout(timeout);
    let mut patience = Patience::until(start + timeout.saturating_sub(2 * FRED_MARGIN).max(timeout / 2));
    while let Some(end) = patience.next_slice() {
        if end < fails {
            tokio::select! {
                // First, because the command may have failed when this is ready.
                biased;
                () = sleep_until(end) => {}
                outcome = command.as_mut() => return Some(outcome),
            }
        } else {
            sleep_until(end).await;
        }
    }
    for _ in 0..TURNS {
        yield_now().await;
    }
    self::timeout(2 * FRED_MARGIN, command).await.ok()
}

impl Patience {
    /// Until this time, and longer if the thread is delayed meanwhile.
    pub fn until(deadline: Instant) -> Self {
        let now = cached_now();
        Self { parts: PARTS, part: deadline.saturating_duration_since(now) / PARTS, end: now }
    }

    /// The end of the next slice; none after the last.
    fn next_slice(&mut self) -> Option<Instant> {
        let parts = match self.parts {
            PARTS => PARTS / 2,
            0 => return None,
            _ => 1,
        };
        if self.parts < PARTS {
            let now = monotonic();
            if self.end + TOLERANCE < now {
                self.end = now;
            }
        }
        self.parts -= parts;
        self.end += self.part * parts;
        Some(self.end)
    }

    /// Waits for the output of `future`; none if the time is up.
    pub async fn wait<T>(mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        while let Some(end) = self.next_slice() {
            if let Ok(output) = timeout_at(end, future.as_mut()).await {
                return Some(output);
            }
        }
        for _ in 0..TURNS {
            tokio::select! {
                biased;
                output = future.as_mut() => return Some(output),
                () = yield_now() => {}
            }
        }
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::advance;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    /// How long a reply is waited for that does not come, if the thread is busy for `busy` after each millisecond.
    async fn waited(busy: Duration) -> Duration {
        let start = monotonic();
        let busy = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                advance(busy).await;
            }
        };
        let (_reply, replied) = oneshot::channel::<()>();
        tokio::select! {
            biased;
            reply = Patience::until(start + TIMEOUT).wait(replied) => assert!(reply.is_none()),
            () = busy => {}
        }
        monotonic() - start
    }

    #[tokio::test(start_paused = true)]
    async fn the_delays_of_the_thread_extend_the_wait_within_a_bound() {
        let prompt = waited(Duration::ZERO).await;
        assert!(prompt >= TIMEOUT && prompt < TIMEOUT + 3 * TOLERANCE, "{prompt:?}");
        let delay = Duration::from_millis(100);
        let late = waited(delay).await;
        assert!(late > 4 * delay && late <= TIMEOUT + 10 * delay, "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_came_during_a_long_delay_is_read() {
        let (reply, replied) = oneshot::channel();
        let busy = async {
            advance(Duration::from_secs(5)).await;
            // The task that reads it continues a turn later.
            yield_now().await;
            reply.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        let waiting = Patience::until(monotonic() + TIMEOUT).wait(replied);
        tokio::select! {
            biased;
            reply = waiting => assert_eq!(reply, Some(Ok(()))),
            () = busy => {}
        }
    }
}
