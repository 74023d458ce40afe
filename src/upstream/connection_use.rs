//! Which client uses a connection to a server, and whether that client keeps the connection waiting.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::time::cached_now;

/// How long a request body may be slower than its minimum rate, and a part of a response unread, while requests of
/// other clients wait for the connection.
pub(super) const CONTENDED_GRACE: Duration = Duration::from_secs(2);

/// The connection does not wait for its client.
const NOT_WAITING: u64 = u64::MAX;
/// The connection was reclaimed.
const RECLAIMED: u64 = u64::MAX - 1;
/// The latest time that can be represented, in microseconds: some thousand years.
const LATEST: u64 = u64::MAX >> 8;

/// The use of one connection to a server. The worker that has the connection writes it; any worker may read it and
/// reclaim the connection from a slow client.
#[derive(Debug)]
pub struct ConnectionUse {
    epoch: Instant,
    /// The two halves of the client's address; zero while the connection is idle.
    client: [AtomicU64; 2],
    /// When the client that the connection waits for becomes too slow, in microseconds after `epoch`; or
    /// [`NOT_WAITING`] or [`RECLAIMED`].
    slow_from: AtomicU64,
    /// Wakes the task that uses the connection.
    waker: Mutex<Waker>,
}

impl ConnectionUse {
    pub(super) fn new() -> Self {
        Self {
            epoch: cached_now(),
            client: [const { AtomicU64::new(0) }; 2],
            slow_from: AtomicU64::new(NOT_WAITING),
            waker: Mutex::new(Waker::noop().clone()),
        }
    }

    /// Sets the waker of the task that uses the connection.
    pub(super) fn set_waker(&self, waker: Waker) {
        *self.waker.lock() = waker;
    }

    /// Starts a request of this client.
    pub(super) fn start(&self, client: IpAddr) {
        self.slow_from.store(NOT_WAITING, Ordering::Relaxed);
        self.set_client(bits(client));
    }

    /// Finishes the request.
    pub(super) fn finish(&self) {
        self.slow_from.store(NOT_WAITING, Ordering::Relaxed);
        self.set_client(0);
    }

    /// Whether a request of this client uses the connection.
    pub(super) fn is_used_by(&self, client: IpAddr) -> bool {
        self.client() == bits(client)
    }

    /// The client that uses the connection, as the bits of an IPv6 address; 0 if none does.
    pub(super) fn client(&self) -> u128 {
        let [high, low] = self.client.each_ref().map(|half| u128::from(half.load(Ordering::Relaxed)));
        high << 64 | low
    }

    /// Starts to wait for the client, which is too slow after `allowance`, if there is one. Repeated calls don't extend
    /// a wait.
    pub(super) fn wait_for_client(&self, allowance: Option<Duration>) {
        let Some(allowance) = allowance else { return };
        if self.slow_from.load(Ordering::Relaxed) == NOT_WAITING {
            let from = (cached_now() - self.epoch).saturating_add(allowance);
            let from = u64::try_from(from.as_micros()).unwrap_or(NOT_WAITING).min(LATEST);
            self.slow_from.store(from, Ordering::Relaxed);
        }
    }

    /// Starts to wait until the client has read a part of the response. `waker` wakes the task that uses the
    /// connection.
    pub fn wait_for_reader(&self, waker: &Waker) {
        if self.slow_from.load(Ordering::Relaxed) == NOT_WAITING {
            self.set_waker(waker.clone());
            self.wait_for_client(Some(CONTENDED_GRACE));
        }
    }

    /// Stops waiting for the client.
    pub fn stop_waiting(&self) {
        // Read first: most requests never wait.
        let from = self.slow_from.load(Ordering::Relaxed);
        if from < RECLAIMED {
            // Fails if another worker has reclaimed the connection meanwhile: then it stays reclaimed.
            let _ = self.slow_from.compare_exchange(from, NOT_WAITING, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Reclaims the connection from a client that is too slow; returns whether it was. The task that uses the
    /// connection is woken, and ends the request.
    pub(super) fn reclaim(&self, now: Instant) -> bool {
        let from = self.slow_from.load(Ordering::Relaxed);
        if !self.is_past(from, now) {
            return false;
        }
        // The client may have continued meanwhile.
        let is_swapped =
            self.slow_from.compare_exchange(from, RECLAIMED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_swapped {
            self.wake();
        }
        is_swapped
    }

    /// Wakes the task that uses the connection.
    pub(super) fn wake(&self) {
        self.waker.lock().wake_by_ref();
    }

    /// When the client that the connection waits for becomes too slow.
    pub(super) fn slow_from(&self) -> Instant {
        self.epoch + Duration::from_micros(self.slow_from.load(Ordering::Relaxed).min(LATEST))
    }

    /// Whether a client that is too slow uses the connection.
    pub(super) fn is_slow(&self, now: Instant) -> bool {
        self.is_past(self.slow_from.load(Ordering::Relaxed), now)
    }

    fn is_past(&self, from: u64, now: Instant) -> bool {
        from < RECLAIMED && self.epoch + Duration::from_micros(from) <= now
    }

    /// Whether the connection was reclaimed, so that its request has to end.
    #[must_use]
    pub fn is_reclaimed(&self) -> bool {
        self.slow_from.load(Ordering::Relaxed) == RECLAIMED
    }

    fn set_client(&self, bits: u128) {
        for (half, bits) in self.client.iter().zip([bits >> 64, bits]) {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half of the bits is stored")]
            half.store(bits as u64, Ordering::Relaxed);
        }
    }
}

/// The bits of an address, with IPv4 mapped to IPv6.
pub(super) fn bits(client: IpAddr) -> u128 {
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
            connection.start(client);
            assert!(connection.is_used_by(client) && connection.client() == bits(client));
            connection.finish();
            assert!(!connection.is_used_by(client) && connection.client() == 0);
        }
    }

    #[test]
    fn only_a_client_that_exceeds_its_allowance_loses_the_connection() {
        let (connection, now) = (ConnectionUse::new(), cached_now());
        connection.start("192.0.2.7".parse().unwrap());
        assert!(!connection.reclaim(now + 100 * SECOND));
        connection.wait_for_client(None);
        assert!(!connection.reclaim(now + 100 * SECOND));
        connection.wait_for_client(Some(SECOND));
        // The first allowance counts, however often the wait is repeated.
        connection.wait_for_client(Some(50 * SECOND));
        assert!(!connection.reclaim(now));
        connection.stop_waiting();
        assert!(!connection.reclaim(now + 100 * SECOND));
        connection.wait_for_client(Some(SECOND));
        assert!(connection.reclaim(now + 2 * SECOND) && connection.is_reclaimed());
        assert!(!connection.reclaim(now + 2 * SECOND));
        connection.stop_waiting();
        assert!(connection.is_reclaimed());
        connection.start("192.0.2.8".parse().unwrap());
        assert!(!connection.is_reclaimed());
    }
}
