//! One HTTP/2 connection to a server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use http::uri::Scheme;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::socket::{Activity, TimedStream};
use crate::time::monotonic;
use crate::tls::Transport;
use crate::upstream::body::RequestBody;
use crate::upstream::connection_limit::ConnectionPermit;
use crate::upstream::upload::UploadExecutor;

/// The most concurrent requests on a connection before another one is opened.
pub(super) const MAX_STREAMS: usize = 128;
/// The most concurrent requests until the server's SETTINGS arrive.
pub(super) const INITIAL_MAX_STREAMS: usize = 1;
/// How long other requests wait for the SETTINGS of a new connection.
const SETTINGS_TIMEOUT: Duration = Duration::from_millis(500);
/// How many resets a connection may send at once, and the time after which it may send one more. Servers that count
/// resets allow at least this: Netty 200 in 30 seconds, nghttp2 and Node 33 a second, h2 20 before it reads their requests.
const RESET_BURST: u32 = 16;
pub(super) const RESET_INTERVAL: Duration = Duration::from_millis(250);

/// hyper's future that drives a connection.
pub(super) type Driver = http2::Connection<TokioIo<TimedStream<Transport>>, RequestBody, UploadExecutor>;

/// An HTTP/2 connection, as its requests see it.
pub(super) struct Http2Connection {
    pub sender: http2::SendRequest<RequestBody>,
    /// The permit for the connection, which goes to another connection afterwards.
    #[expect(dead_code, reason = "held until it is dropped")]
    pub permit: ConnectionPermit,
    /// Counts the connections of the pool, including those that only finish their requests.
    #[expect(dead_code, reason = "held until it is dropped")]
    pub alive: Rc<()>,
    pub response_timeout: Duration,
    pub stall_timeout: Duration,
    pub executor: UploadExecutor,
    pub scheme: Scheme,
    pub opened: Instant,
    pub requests: Cell<usize>,
    pub idle_since: Cell<Instant>,
    pub resets: ResetBudget,
    /// The driver, which has the server's SETTINGS; none after its end.
    pub driver: Rc<RefCell<Option<Driver>>>,
    /// When bytes of the server last arrived.
    pub activity: Rc<Activity>,
    /// Whether the connection seems dead, so that it gets no more requests.
    pub is_suspect: Cell<bool>,
}

/// The resets that a connection may send (GCRA).
#[derive(Debug, Default)]
pub(super) struct ResetBudget {
    /// When the whole burst is available again.
    full_at: Cell<Option<Instant>>,
}

impl ResetBudget {
    /// Takes one reset; returns whether there was one.
    pub fn take(&self, now: Instant) -> bool {
        let next = self.full_at.get().map_or(now, |full_at| full_at.max(now)) + RESET_INTERVAL;
        let is_allowed = next <= now + RESET_INTERVAL * RESET_BURST;
        if is_allowed {
            self.full_at.set(Some(next));
        }
        is_allowed
    }
}

impl Http2Connection {
    /// Whether the connection can take requests.
    pub fn is_usable(&self) -> bool {
        !self.is_suspect.get() && !self.sender.is_closed()
    }

    /// Checks the connection after a request since `since` has timed out. If the server has sent nothing at all in the
    /// second half of that time, the connection may be dead and gets no more requests. Otherwise only the response is
    /// slow.
    pub fn check_activity(&self, since: Instant) {
        let now = monotonic();
        let waited = (now - since).min(self.response_timeout);
        if self.activity.last_read().is_none_or(|last_read| now - last_read >= waited / 2) {
            self.is_suspect.set(true);
        }
    }

    /// How many more streams the server's limit allows.
    pub fn capacity(&self) -> usize {
        let limit = self.stream_limit();
        let is_late = limit == INITIAL_MAX_STREAMS && monotonic() - self.opened >= SETTINGS_TIMEOUT;
        // A server whose SETTINGS are late gets the requests all the same: hyper queues them until then.
        let limit = if is_late && !self.is_settled() { MAX_STREAMS } else { limit.min(MAX_STREAMS) };
        limit.saturating_sub(self.requests.get())
    }

    /// Whether the server's SETTINGS have arrived, which are the first frame that it sends.
    pub fn is_settled(&self) -> bool {
        self.stream_limit() != INITIAL_MAX_STREAMS || self.activity.last_read().is_some()
    }

    fn stream_limit(&self) -> usize {
        self.driver.borrow().as_ref().map_or(0, Driver::current_max_send_streams)
    }

    /// Whether the server supports extended CONNECT (RFC 8441), as needed for tunnels.
    pub fn supports_extended_connect(&self) -> bool {
        self.driver.borrow().as_ref().is_some_and(Driver::is_extended_connect_protocol_enabled)
    }
}

impl std::fmt::Debug for Http2Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Connection").field("requests", &self.requests).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_bounded_at_once_and_by_rate() {
        let (budget, now) = (ResetBudget::default(), monotonic());
        let take = |count, at| (0..count).filter(|_| budget.take(at)).count();
        assert_eq!(take(100, now), 16);
        assert_eq!(take(100, now + RESET_INTERVAL - Duration::from_millis(1)), 0);
        assert_eq!(take(100, now + 3 * RESET_INTERVAL), 3);
        assert_eq!(take(100, now + 1_000 * RESET_INTERVAL), 16);
    }
}
