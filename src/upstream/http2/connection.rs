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
    pub requests: Cell<usize>,
    pub idle_since: Cell<Instant>,
    /// The driver, which has the server's SETTINGS; none after its end.
    pub driver: Rc<RefCell<Option<Driver>>>,
    /// When bytes of the server last arrived.
    pub activity: Rc<Activity>,
    /// Whether the connection seems dead, so that it gets no more requests.
    pub is_suspect: Cell<bool>,
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

    /// Whether the server's limit allows another stream. Until its SETTINGS arrive, which are the first frame that it
    /// sends, hyper sends one request and queues the others.
    pub fn has_capacity(&self) -> bool {
        let driver = self.driver.borrow();
        let limit = driver.as_ref().map_or(0, Driver::current_max_send_streams);
        let is_settled = limit != INITIAL_MAX_STREAMS || self.activity.last_read().is_some();
        self.requests.get() < if is_settled { limit.min(MAX_STREAMS) } else { MAX_STREAMS }
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
