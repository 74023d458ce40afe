//! Which client uses a connection to a server, or a stream of a shared one, and what the connection waits for.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::time::cached_now;

/// How long a request body may be slower than its minimum rate, and a part of a response unread, while requests of
/// other clients wait for the connection.
pub(in crate::upstream) const CONTENDED_GRACE: Duration = Duration::from_secs(2);
/// How long the server may send nothing, from when a waiting request has first found the connection in use.
const SERVER_GRACE: Duration = Duration::from_millis(400);

/// Nothing is known about what the connection waits for.
const NOT_WAITING: u64 = u64::MAX;
/// The connection was reclaimed.
const RECLAIMED: u64 = u64::MAX - 1;
/// The latest time that can be represented, in microseconds: some thousand years.
const LATEST: u64 = u64::MAX >> 8;
/// The bits of a state that say what its time means; see [`Wait`].
const LASTING: u64 = 1 << 56;
const SERVER: u64 = 2 << 56;

/// What a connection in use waits for, in the order in which waiting requests reclaim connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::upstream) enum Wait {
    /// Its client, which is too slow from a time on.
    Client,
    /// Nothing in particular: it is a tunnel or an open-ended response, silent since a time.
    Lasting,
    /// Its server, seen by a waiting request at a time.
    Server,
}

/// The use of one connection to a server, or of one stream. The worker that has the connection writes it; any worker may
/// read it and reclaim the connection.
#[derive(Debug)]
pub struct ConnectionUse {
    epoch: Instant,
    /// The two halves of the client's address; zero while the connection is idle.
    client: [AtomicU64; 2],
    /// Whether the request holds slots of a concurrency limit, which bounds how many its client has at the server. Such a
    /// request is not ended while the server works on it: its slots would be free before the server is.
    has_slots: AtomicBool,
    /// What the connection waits for, with a time in microseconds after `epoch`; or [`NOT_WAITING`] or [`RECLAIMED`].
    state: AtomicU64,
    /// Wakes the task that uses the connection.
    waker: Mutex<Waker>,
}

impl ConnectionUse {
    pub(in crate::upstream) fn new() -> Self {
        Self {
            epoch: cached_now(),
            client: [const { AtomicU64::new(0) }; 2],
            has_slots: AtomicBool::new(false),
            state: AtomicU64::new(NOT_WAITING),
            waker: Mutex::new(Waker::noop().clone()),
        }
    }

    /// Sets the waker of the task that uses the connection.
    pub(in crate::upstream) fn set_waker(&self, waker: Waker) {
        *self.waker.lock() = waker;
    }

    /// Sets the waker to that of the present task.
    pub(in crate::upstream) async fn use_here(&self) {
        poll_fn(|cx| {
            self.set_waker(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    }

    /// Starts a request of this client, which may hold slots of a concurrency limit.
    pub(in crate::upstream) fn start(&self, client: IpAddr, has_slots: bool) {
        self.state.store(NOT_WAITING, Ordering::Relaxed);
        self.has_slots.store(has_slots, Ordering::Relaxed);
        self.set_client(bits(client));
    }

    /// Finishes the request.
    pub(in crate::upstream) fn finish(&self) {
        self.state.store(NOT_WAITING, Ordering::Relaxed);
        self.set_client(0);
    }

    /// Whether a request of this client uses the connection.
    pub(in crate::upstream) fn is_used_by(&self, client: IpAddr) -> bool {
        self.client() == bits(client)
    }

    /// The client that uses the connection, as the bits of an IPv6 address; 0 if none does.
    pub(in crate::upstream) fn client(&self) -> u128 {
        let [high, low] = self.client.each_ref().map(|half| u128::from(half.load(Ordering::Relaxed)));
        high << 64 | low
    }

    /// Starts to wait for the client, which is too slow after `allowance`, if there is one. Repeated calls don't extend
    /// a wait.
    pub(in crate::upstream) fn wait_for_client(&self, allowance: Option<Duration>) {
        let Some(allowance) = allowance else { return };
        let state = self.state.load(Ordering::Relaxed);
        if state == NOT_WAITING || wait(state) == Some(Wait::Server) {
            let from = self.micros(cached_now()).saturating_add(micros(allowance));
            self.replace(state, from.min(LATEST));
        }
    }

    /// Starts to wait until the client has read a part of the response. `waker` wakes the task that uses the
    /// connection.
    pub fn wait_for_reader(&self, waker: &Waker) {
        if wait(self.state.load(Ordering::Relaxed)) != Some(Wait::Client) {
            self.set_waker(waker.clone());
            self.wait_for_client(Some(CONTENDED_GRACE));
        }
    }

    /// Stops waiting for the client.
    pub fn stop_waiting(&self) {
        // Read first: most requests never wait.
        let state = self.state.load(Ordering::Relaxed);
        if state <= LATEST {
            self.replace(state, NOT_WAITING);
        }
    }

    /// Records that the server or the client has sent a part.
    pub(in crate::upstream) fn record_part(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state < RECLAIMED {
            self.replace(state, NOT_WAITING);
        }
    }

    /// Records that bytes have passed in a tunnel or an open-ended response, or that it has started.
    pub(in crate::upstream) fn record_lasting(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state != RECLAIMED {
            self.replace(state, LASTING | self.micros(cached_now()));
        }
    }

    /// Starts to observe how long the server sends nothing, on behalf of a waiting request. So a request pays nothing for
    /// it while none waits.
    pub(in crate::upstream) fn observe(&self, now: Instant) {
        if self.client() != 0
            && !self.has_slots.load(Ordering::Relaxed)
            && self.state.load(Ordering::Relaxed) == NOT_WAITING
        {
            self.replace(NOT_WAITING, SERVER | self.micros(now));
        }
    }

    /// What the connection waits for, and since when, if a request may reclaim it. `is_contended` says that requests
    /// have waited for a while.
    pub(in crate::upstream) fn reclaimable(
        &self,
        now: Instant,
        is_contended: bool,
    ) -> Option<(Wait, Instant)> {
        let state = self.state.load(Ordering::Relaxed);
        let wait = wait(state)?;
        let since = self.epoch + Duration::from_micros(state & LATEST);
        let may_be = match wait {
            Wait::Client => since <= now,
            Wait::Lasting => is_contended,
            Wait::Server => since + SERVER_GRACE <= now,
        };
        may_be.then_some((wait, since))
    }

    /// Reclaims the connection if it still waits as [`Self::reclaimable`] says; returns whether it was. The task that
    /// uses the connection is woken, and ends the request.
    pub(in crate::upstream) fn reclaim(&self, now: Instant, is_contended: bool) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        // The client may have continued meanwhile.
        let is_reclaimed = self.reclaimable(now, is_contended).is_some() && self.replace(state, RECLAIMED);
        if is_reclaimed {
            self.wake();
        }
        is_reclaimed
    }

    /// Wakes the task that uses the connection.
    pub(in crate::upstream) fn wake(&self) {
        self.waker.lock().wake_by_ref();
    }

    /// Whether the connection was reclaimed, so that its request has to end.
    #[must_use]
    pub fn is_reclaimed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RECLAIMED
    }

    /// Replaces a state, unless another worker has replaced it meanwhile; returns whether it did. A reclaimed connection
    /// stays reclaimed.
    fn replace(&self, state: u64, next: u64) -> bool {
        self.state.compare_exchange(state, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The microseconds from `epoch` to a time.
    fn micros(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.epoch))
    }

    fn set_client(&self, bits: u128) {
        for (half, bits) in self.client.iter().zip([bits >> 64, bits]) {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half of the bits is stored")]
            half.store(bits as u64, Ordering::Relaxed);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(LATEST).min(LATEST)
}

/// What a state waits for; none if that is unknown or the connection was reclaimed.
fn wait(state: u64) -> Option<Wait> {
    match state & !LATEST {
        _ if state >= RECLAIMED => None,
        0 => Some(Wait::Client),
        LASTING => Some(Wait::Lasting),
        _ => Some(Wait::Server),
    }
}

/// The bits of an address, with IPv4 mapped to IPv6.
fn bits(client: IpAddr) -> u128 {
    let v6: Ipv6Addr = match client {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    v6.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_client_is_known_during_a_request() {
        let connection = ConnectionUse::new();
        for client in ["192.0.2.7", "2001:db8::7", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
            let client = client.parse().unwrap();
            connection.start(client, false);
            assert!(connection.is_used_by(client) && connection.client() == bits(client));
            connection.finish();
            assert!(!connection.is_used_by(client) && connection.client() == 0);
        }
    }

    fn used() -> (ConnectionUse, Instant) {
        let connection = ConnectionUse::new();
        connection.start("192.0.2.7".parse().unwrap(), false);
        (connection, cached_now())
    }

    #[test]
    fn only_a_client_that_exceeds_its_allowance_loses_the_connection() {
        let (connection, now) = used();
        assert!(!connection.reclaim(now + 100 * SECOND, true));
        connection.wait_for_client(None);
        assert!(!connection.reclaim(now + 100 * SECOND, true));
        connection.wait_for_client(Some(SECOND));
        // The first allowance counts, however often the wait is repeated.
        connection.wait_for_client(Some(50 * SECOND));
        assert!(!connection.reclaim(now, true));
        connection.stop_waiting();
        assert!(!connection.reclaim(now + 100 * SECOND, true));
        connection.wait_for_client(Some(SECOND));
        assert!(connection.reclaim(now + 2 * SECOND, false) && connection.is_reclaimed());
        assert!(!connection.reclaim(now + 2 * SECOND, true));
        connection.stop_waiting();
        connection.record_part();
        connection.record_lasting();
        assert!(connection.is_reclaimed());
        connection.start("192.0.2.8".parse().unwrap(), false);
        assert!(!connection.is_reclaimed());
    }

    #[test]
    fn a_request_is_ended_if_its_server_sends_nothing_while_it_is_observed() {
        let (connection, now) = used();
        let later = now + SERVER_GRACE;
        connection.observe(now);
        assert_eq!(connection.reclaimable(now, true), None);
        assert!(matches!(connection.reclaimable(later, false), Some((Wait::Server, _))));
        // Parts that the server sends start the wait again, and the polls of a client do not.
        connection.record_part();
        connection.observe(later);
        connection.stop_waiting();
        assert_eq!(connection.reclaimable(later, true), None);
        assert!(connection.reclaim(later + SERVER_GRACE, false));
        // A finished request is not observed, nor is one with slots.
        connection.finish();
        connection.observe(now);
        connection.start("192.0.2.7".parse().unwrap(), true);
        connection.observe(now);
        assert_eq!(connection.reclaimable(now + 100 * SECOND, true), None);
    }

    #[test]
    fn a_tunnel_can_be_reclaimed_when_requests_have_waited_for_a_while() {
        let (connection, now) = used();
        connection.record_lasting();
        connection.observe(now);
        assert_eq!(connection.reclaimable(now + 100 * SECOND, false), None);
        assert!(matches!(connection.reclaimable(now, true), Some((Wait::Lasting, _))));
        assert!(Wait::Client < Wait::Lasting && Wait::Lasting < Wait::Server);
        assert!(connection.reclaim(now, true));
    }
}
