//! Overload: pauses after refused requests while a worker has no CPU time left.
//!
//! A client may send its next request as soon as one is refused. When a worker spends most of its time on such requests,
//! admitted ones take longer and hold their slots for longer, so that fewer are admitted. So a saturated worker stops reading a
//! connection for a while when it has refused a request. A request that arrives meanwhile waits in the kernel, and is refused
//! after the pause: its client has not waited for `Retry-After`, which is at least as long. Connections whose requests are
//! admitted are read as usual, and so are those of trusted proxies, which clients share.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::time::monotonic;

/// For how long the use of CPU time is averaged, at least.
const WINDOW: Duration = Duration::from_millis(50);
/// From this share of busy time on a worker is saturated. A worker that is never idle still spends some time in system calls
/// that wait for events.
const SATURATED: f64 = 0.95;
/// The shortest and the longest time from the end of one pause to the next. Refusals at the lower rate take less than a hundredth
/// of the CPU time, also of a slow one; at the higher rate they could take all of it.
const MIN_INTERVAL: Duration = Duration::from_micros(10);
const MAX_INTERVAL: Duration = Duration::from_millis(8);
/// The longest pause: no longer than any `Retry-After`.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The pauses of one worker.
#[derive(Debug)]
pub(super) struct RefusalPacer {
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// When the window started, and how long the worker had been busy by then.
    window_start: Instant,
    busy: Duration,
    /// The time from the end of one pause to the next; zero while there are no pauses. It doubles with each window in which
    /// the worker is saturated, and shrinks by a quarter with each other one.
    interval: Duration,
    /// When the last pause ends.
    last_end: Instant,
}

impl RefusalPacer {
    pub fn new(now: Instant) -> Self {
        Self {
            state: Cell::new(State {
                window_start: now,
                busy: Duration::ZERO,
                interval: Duration::ZERO,
                last_end: now,
            }),
        }
    }

    /// When the next request may be read after this response of tidegate itself to a client with this address; none if it
    /// may be at once.
    pub fn pause_after(&self, status: StatusCode, client: IpAddr, proxy: &Proxy) -> Option<Instant> {
        let is_refusal = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if !is_refusal || proxy.trusts(client) {
            return None;
        }
        let now = monotonic();
        let end = self.pause(now, busy_time)?;
        proxy.record_pause(end - now);
        Some(end)
    }

    /// When the pause ends after a refused request, if there is one. `busy` is how long the worker has been busy since its start.
    fn pause(&self, now: Instant, busy: impl FnOnce() -> Duration) -> Option<Instant> {
        let mut state = self.state.get();
        let window = now.saturating_duration_since(state.window_start);
        if window >= WINDOW {
            let busy = busy();
            let is_saturated = busy.saturating_sub(state.busy) >= window.mul_f64(SATURATED);
            // After so long without a refusal the last overload is over.
            let last = if window < 2 * MAX_PAUSE { state.interval } else { Duration::ZERO };
            state.interval = adapted(last, is_saturated);
            (state.window_start, state.busy) = (now, busy);
        }
        let end = (state.interval > Duration::ZERO)
            .then(|| (state.last_end.max(now) + state.interval).min(now + MAX_PAUSE));
        state.last_end = end.unwrap_or(now);
        self.state.set(state);
        end
    }
}

/// How long the worker of this thread has been busy since its start.
fn busy_time() -> Duration {
    Handle::current().metrics().worker_total_busy_duration(0)
}

/// The interval after a window.
fn adapted(interval: Duration, is_saturated: bool) -> Duration {
    if is_saturated {
        return (interval * 2).clamp(MIN_INTERVAL, MAX_INTERVAL);
    }
    let shorter = interval * 3 / 4;
    if shorter < MIN_INTERVAL { Duration::ZERO } else { shorter }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses a request every ten milliseconds while the worker is busy for this share of the time; the lengths of the pauses.
    fn pauses(share: f64, count: u32) -> Vec<Duration> {
        let start = Instant::now();
        let pacer = RefusalPacer::new(start);
        let refuse = |number: u32| {
            let elapsed = Duration::from_millis(10) * number;
            let end = pacer.pause(start + elapsed, || elapsed.mul_f64(share));
            end.map_or(Duration::ZERO, |end| end - (start + elapsed))
        };
        (0..count).map(refuse).collect()
    }

    #[test]
    fn nothing_is_paused_while_there_is_time() {
        assert_eq!(pauses(0.9, 1_000), [Duration::ZERO; 1_000]);
    }

    #[test]
    fn pauses_grow_with_each_saturated_window() {
        let pauses = pauses(1.0, 1_000);
        assert_eq!(pauses[..5], [Duration::ZERO; 5]);
        assert_eq!((pauses[5], pauses[10]), (MIN_INTERVAL, 2 * MIN_INTERVAL));
        assert_eq!(pauses[999], MAX_INTERVAL);
    }

    #[test]
    fn pauses_end_one_after_the_other_and_are_bounded() {
        let start = Instant::now();
        let pacer = RefusalPacer::new(start);
        let now = start + WINDOW;
        let pauses: Vec<Duration> =
            (0..200_000).map(|_| pacer.pause(now, || WINDOW).unwrap() - now).collect();
        assert_eq!(pauses[..2], [MIN_INTERVAL, 2 * MIN_INTERVAL]);
        assert_eq!(*pauses.last().unwrap(), MAX_PAUSE);
    }

    #[test]
    fn pauses_end_after_the_overload() {
        let start = Instant::now();
        let pacer = RefusalPacer::new(start);
        let saturated =
            |count: u32| assert!(pacer.pause(start + WINDOW * count, || WINDOW * count).is_some());
        (1..20).for_each(saturated);
        let calm = (20..60).map(|count| pacer.pause(start + WINDOW * count, || WINDOW * 19).is_some());
        assert_eq!(calm.filter(|is_paused| *is_paused).count(), 23);
        // At once, if nothing was refused for long.
        (60..80).for_each(saturated);
        assert!(pacer.pause(start + WINDOW * 80 + 2 * MAX_PAUSE, || WINDOW * 80).is_none());
    }
}
