//! Opening an HTTP/2 connection.

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

use super::connection::{Driver, Http2Connection, INITIAL_MAX_STREAMS, MAX_STREAMS, ResetBudget};
use crate::socket::TimedStream;
use crate::time::cached_now;
use crate::tls::Transport;
use crate::upstream::connection_limit::ConnectionPermit;
use crate::upstream::error::NotHttp2;
use crate::upstream::upload::UploadExecutor;

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

/// Opens an HTTP/2 connection over a transport. Fails when the server has not agreed to HTTP/2, or the transport fails.
pub(super) async fn open(
    transport: Transport,
    permit: ConnectionPermit,
    alive: Rc<()>,
    response_timeout: Duration,
    stall_timeout: Duration,
) -> io::Result<Rc<Http2Connection>> {
    let is_tls = matches!(transport, Transport::Tls(_));
    if is_tls && !transport.is_http2() {
        return Err(io::Error::other(NotHttp2));
    }
    let stream = TimedStream::new(transport, Bytes::new(), stall_timeout);
    let activity = Rc::clone(stream.activity());
    let executor = UploadExecutor::new(stall_timeout);
    let (sender, driver) =
        builder(&executor).handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = Rc::new(RefCell::new(Some(driver)));
    tokio::task::spawn_local(drive(Rc::clone(&driver)));
    Ok(Rc::new(Http2Connection {
        sender,
        permit,
        alive,
        response_timeout,
        stall_timeout,
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
