//! Overload: pauses after refused requests while a worker has no CPU time left.
//!
//! A client may send its next request as soon as one is refused because all slots of a limit, or all connections of an upstream,
//! are in use. When a worker spends its time on such refusals, admitted requests take longer and hold their slots for longer,
//! so that fewer are admitted. So a saturated worker waits before it reads the next request of a connection whose last one was
//! refused: meanwhile the request waits in the kernel, and costs nothing. It is then served as any other. Connections whose
//! requests are admitted are read as usual, and so are those of trusted proxies, which clients share. Clients take turns: the
//! pauses of one client do not make those of another longer, except by its share of the worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::time::monotonic;

/// For how long the busy time is averaged, at least.
const WINDOW: Duration = Duration::from_millis(50);
/// From this share of busy time on a worker is saturated. A worker that is never idle still spends some time in system calls
/// that wait for events.
const SATURATED: f64 = 0.95;
/// How many refusals a second are worth a pause: fewer take little of the CPU time.
const MIN_RATE: f64 = 1_000.0;
/// The shortest and the longest time from the end of one pause to the next, of all clients together. Refusals at the lower
/// rate take less than a hundredth of the CPU time, also of a slow CPU; at the higher rate they could take all of it.
const MIN_INTERVAL: Duration = Duration::from_micros(10);
const MAX_INTERVAL: Duration = Duration::from_millis(8);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The pauses of one worker.
#[derive(Debug)]
pub(super) struct RefusalPacer {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    /// When the window started, and how long the worker had been busy by then.
    window_start: Instant,
    busy: Duration,
    /// How many requests were refused in the window.
    refused: u32,
    /// The time from the end of one pause to the next; zero while there are no pauses.
    interval: Duration,
    /// When the last pause of each client ends; no more clients than have been paused in the last window or since.
    last_ends: HashMap<IpAddr, Instant>,
}

impl RefusalPacer {
    pub fn new(now: Instant) -> Self {
        Self {
            state: RefCell::new(State {
                window_start: now,
                busy: Duration::ZERO,
                refused: 0,
                interval: Duration::ZERO,
                last_ends: HashMap::new(),
            }),
        }
    }

    /// When the next request of a client with this address may be read after one was refused; none if it may be at once.
    pub fn pause_after_refusal(&self, client: IpAddr, proxy: &Proxy) -> Option<Instant> {
        let client = proxy.client_at(client)?;
        let now = monotonic();
        let end = self.pause(client, now, busy_time)?;
        proxy.record_pause(end - now);
        Some(end)
    }

    /// Counts a refused request of a client; when the pause after it ends, if there is one. `busy` is how long the worker has been
    /// busy since its start.
    fn pause(&self, client: IpAddr, now: Instant, busy: impl FnOnce() -> Duration) -> Option<Instant> {
        let mut state = self.state.borrow_mut();
        state.refused += 1;
        let window = now.saturating_duration_since(state.window_start);
        if window >= WINDOW {
            let busy = busy();
            let is_saturated = busy.saturating_sub(state.busy) >= window.mul_f64(SATURATED);
            let rate = f64::from(state.refused) / window.as_secs_f64();
            // After so long without a refusal the last overload is over.
            let last = if window < 2 * MAX_PAUSE { state.interval } else { Duration::ZERO };
            state.interval = adapted(last, is_saturated && (rate >= MIN_RATE || last > Duration::ZERO));
            (state.window_start, state.busy, state.refused) = (now, busy, 0);
            let is_paused = !state.interval.is_zero();
            state.last_ends.retain(|_, end| is_paused && *end > now);
        }
        if state.interval.is_zero() {
            return None;
        }
        let last_end = *state.last_ends.entry(client).or_insert(now);
        // With so many clients each has this part of the rate.
        let clients = u32::try_from(state.last_ends.len()).unwrap_or(u32::MAX);
        let end = (last_end.max(now) + state.interval.saturating_mul(clients)).min(now + MAX_PAUSE);
        state.last_ends.insert(client, end);
        Some(end)
    }
}

/// How long the worker of this thread has been busy since its start.
fn busy_time() -> Duration {
    Handle::current().metrics().worker_total_busy_duration(0)
}

/// The interval after a window: twice as long if refusals have taken time that admitted requests need, and a quarter shorter if
/// not.
fn adapted(interval: Duration, is_overloaded: bool) -> Duration {
    if is_overloaded {
        return (interval * 2).clamp(MIN_INTERVAL, MAX_INTERVAL);
    }
    let shorter = interval * 3 / 4;
    if shorter < MIN_INTERVAL { Duration::ZERO } else { shorter }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    /// Refuses a request in each `step` while the worker is busy for this share of the time; the lengths of the pauses.
    fn pauses(step: Duration, share: f64, count: u32) -> Vec<Duration> {
        let start = monotonic();
        let pacer = RefusalPacer::new(start);
        let refuse = |number: u32| {
            let elapsed = step * number;
            let end = pacer.pause(client(1), start + elapsed, || elapsed.mul_f64(share));
            end.map_or(Duration::ZERO, |end| end - (start + elapsed))
        };
        (0..count).map(refuse).collect()
    }

    /// 2,000 refusals a second.
    const STEP: Duration = Duration::from_micros(500);

    #[test]
    fn nothing_is_paused_while_there_is_time_or_after_few_refusals() {
        assert_eq!(pauses(STEP, 0.9, 1_000), [Duration::ZERO; 1_000]);
        assert_eq!(pauses(STEP * 5 / 2, 1.0, 1_000), [Duration::ZERO; 1_000]);
    }

    #[test]
    fn pauses_grow_with_each_saturated_window() {
        let pauses = pauses(STEP, 1.0, 1_200);
        assert_eq!(pauses[..100], [Duration::ZERO; 100]);
        assert_eq!(
            (pauses[100], pauses[200], pauses[300]),
            (MIN_INTERVAL, 2 * MIN_INTERVAL, 4 * MIN_INTERVAL)
        );
        // The interval is 8 ms, of which 0.5 ms pass until the next refusal.
        assert_eq!(pauses[1_109] + MAX_INTERVAL, pauses[1_110] + STEP);
    }

    #[test]
    fn pauses_end_one_after_the_other_and_are_bounded() {
        let start = monotonic();
        let pacer = RefusalPacer::new(start);
        let refuse_of = |number, now: Instant| {
            pacer.pause(client(number), now, || now - start).map_or(Duration::ZERO, |end| end - now)
        };
        let refuse = |now| refuse_of(1, now);
        (0..100).for_each(|_| assert_eq!(refuse(start), Duration::ZERO));
        let now = start + WINDOW;
        let pauses: Vec<Duration> = (0..200_000).map(|_| refuse(now)).collect();
        assert_eq!(pauses[..2], [MIN_INTERVAL, 2 * MIN_INTERVAL]);
        assert_eq!(*pauses.last().unwrap(), MAX_PAUSE);
        // Another client does not wait behind them.
        assert_eq!([refuse_of(2, now), refuse_of(2, now)], [2 * MIN_INTERVAL, 4 * MIN_INTERVAL]);
        assert_eq!(refuse_of(3, now), 3 * MIN_INTERVAL);
    }

    #[test]
    fn pauses_end_after_the_overload() {
        let start = monotonic();
        let pacer = RefusalPacer::new(start);
        let refuse = |window: u32, busy: u32| {
            let pause = |_| pacer.pause(client(1), start + WINDOW * window, || WINDOW * busy).is_some();
            (0..100).map(pause).last().unwrap()
        };
        assert!(!refuse(0, 0));
        assert!((1..20).all(|window| refuse(window, window)));
        let calm = (20..60).filter(|window| refuse(*window, 19));
        assert_eq!(calm.count(), 23);
        // At once, if nothing was refused for long.
        assert!((60..80).all(|window| refuse(window, window)));
        assert!(pacer.pause(client(1), start + WINDOW * 79 + 2 * MAX_PAUSE, || WINDOW * 80).is_none());
    }
}
