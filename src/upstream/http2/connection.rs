//! One HTTP/2 connection to a server.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::upload::{UploadBody, UploadExecutor};
use crate::socket::{Activity, TimedStream};
use crate::time::{cached_now, monotonic};
use crate::tls::Transport;
use crate::upstream::error::NotHttp2;
use crate::upstream::pool::connection_limit::ConnectionPermit;

/// The most concurrent requests on a connection before another one is opened.
const MAX_STREAMS: usize = 128;
/// The most concurrent requests until the server's SETTINGS arrive.
const INITIAL_MAX_STREAMS: usize = 1;
/// How long other requests wait for the SETTINGS of a new connection.
const SETTINGS_TIMEOUT: Duration = Duration::from_millis(500);
/// How many resets a connection may send at once, and the time after which it may send one more. Servers that count
/// resets allow at least this: Netty 200 in 30 seconds, nghttp2 and Node 33 a second, h2 20 before it reads their requests.
const RESET_BURST: u32 = 16;
pub(super) const RESET_INTERVAL: Duration = Duration::from_millis(250);
/// Flow-control window of a stream: bytes of a response's body that a server may send ahead of the client.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection: the sum of the windows of all its streams, so that a client that does not read
/// delays no other.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 128;
const _: () = assert!(CONNECTION_WINDOW as usize >= MAX_STREAMS * STREAM_WINDOW as usize);
/// The most bytes of a request's body that are buffered until the server reads them.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// The largest head of a response, in bytes.
const MAX_HEAD: u32 = 256 * 1024;
/// A server that sends nothing for this long while a response is awaited gets a PING. gRPC servers close connections that
/// send a PING more often than every five minutes.
const PING_INTERVAL: Duration = Duration::from_secs(310);
/// How long the server may take to acknowledge the PING.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How often, and at which interval, a request that waits for the server's SETTINGS checks them.
const MAX_CHECKS: u32 = 50;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// hyper's future that drives a connection.
type Driver = http2::Connection<TokioIo<TimedStream<Transport>>, UploadBody, UploadExecutor>;

/// An HTTP/2 connection, as its requests see it.
pub(super) struct Http2Connection {
    pub sender: http2::SendRequest<UploadBody>,
    /// The permit for the connection, which goes to another connection afterwards.
    #[expect(dead_code, reason = "held until it is dropped")]
    pub permit: ConnectionPermit,
    /// Counts the connections of the pool, including those that only finish their requests.
    #[expect(dead_code, reason = "held until it is dropped")]
    pub alive: Rc<()>,
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

    /// Checks the connection after a request since `since` has timed out, of which the response may take `response_timeout`.
    /// If the server has sent nothing at all in the second half of that time, the connection may be dead and gets no more
    /// requests. Otherwise only the response is slow.
    pub fn check_activity(&self, since: Instant, response_timeout: Duration) {
        let now = monotonic();
        let waited = (now - since).min(response_timeout);
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

/// Opens an HTTP/2 connection over a transport, each write of which may take `stall_timeout`. Fails when the server has not agreed to HTTP/2, or the transport fails.
pub(super) async fn open(
    transport: Transport,
    permit: ConnectionPermit,
    alive: Rc<()>,
    stall_timeout: Duration,
) -> io::Result<Rc<Http2Connection>> {
    let is_tls = matches!(transport, Transport::Tls(_));
    if is_tls && !transport.is_http2() {
        return Err(io::Error::other(NotHttp2));
    }
    let stream = TimedStream::new(transport, Bytes::new(), stall_timeout);
    let activity = Rc::clone(stream.activity());
    let executor = UploadExecutor::default();
    let (sender, driver) =
        builder(&executor).handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = Rc::new(RefCell::new(Some(driver)));
    tokio::task::spawn_local(drive(Rc::clone(&driver)));
    Ok(Rc::new(Http2Connection {
        sender,
        permit,
        alive,
        executor,
        scheme: if is_tls { Scheme::HTTPS } else { Scheme::HTTP },
        opened: cached_now(),
        requests: Cell::new(0),
        idle_since: Cell::new(cached_now()),
        resets: ResetBudget::default(),
        driver,
        activity,
        is_suspect: Cell::new(false),
    }))
}

fn builder(executor: &UploadExecutor) -> http2::Builder<UploadExecutor> {
    let mut builder = http2::Builder::new(executor.clone());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .max_header_list_size(MAX_HEAD)
        .initial_max_send_streams(INITIAL_MAX_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Drives a connection until its last sender is dropped.
async fn drive(driver: Rc<RefCell<Option<Driver>>>) {
    let end = poll_fn(|cx| {
        let mut driver = driver.borrow_mut();
        let end = driver.as_mut().map_or(Poll::Ready(Ok(())), |driver| Pin::new(driver).poll(cx));
        if end.is_ready() {
            // Dropped at once, so that its requests fail without delay.
            *driver = None;
        }
        end
    });
    if let Err(error) = end.await {
        tracing::debug!("an HTTP/2 connection to a server ended with an error: {error}");
    }
}

/// Waits up to half a second until a condition on the server's SETTINGS holds; returns whether it does. It polls, because
/// hyper reports no event when SETTINGS arrive; they do soon after the connection is made.
pub(super) async fn settings_allow(condition: impl Fn() -> bool) -> bool {
    for _ in 0..MAX_CHECKS {
        if condition() {
            return true;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    false
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
