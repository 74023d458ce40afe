//! The beginning of a connection over HTTP/2.

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

use super::{Connection, MAX_STREAMS, UNSETTLED};
use crate::socket::TimedStream;
use crate::time::recent;
use crate::tls::Transport;
use crate::upstream::connection_limit::ConnectionPermit;
use crate::upstream::error::OtherProtocol;
use crate::upstream::upload::UploadExecutor;

/// Bytes of an answer's body that a server may send ahead of its client.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same of all responses of a connection together: as much as all of them have, so that a client that does not read
/// delays no other.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 128;
const _: () = assert!(CONNECTION_WINDOW as usize >= MAX_STREAMS * STREAM_WINDOW as usize);
/// Bytes of a request's body that wait for a server to read them.
const MAX_UNREAD: usize = 64 * 1024;
/// The largest head of an answer.
const MAX_HEAD: u32 = 256 * 1024;
/// After so much silence while an answer is waited for, a server is asked whether it is there. gRPC's servers take
/// offence at less than five minutes.
const PING_AFTER: Duration = Duration::from_secs(310);
/// How long it may take to answer that.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Begins to speak HTTP/2 over a stream.
pub(super) async fn open(
    stream: Transport,
    place: ConnectionPermit,
    alive: Rc<()>,
    response_timeout: Duration,
    stall_timeout: Duration,
) -> io::Result<Rc<Connection>> {
    let is_tls = matches!(stream, Transport::Tls(_));
    if is_tls && !stream.is_http2() {
        return Err(io::Error::other(OtherProtocol));
    }
    let stream = TimedStream::new(stream, Bytes::new(), stall_timeout);
    let activity = Rc::clone(stream.activity());
    let io = TokioIo::new(stream);
    let carriers = UploadExecutor::new(stall_timeout);
    let (sender, running) = http2::Builder::new(carriers.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_UNREAD)
        .max_header_list_size(MAX_HEAD)
        .initial_max_send_streams(UNSETTLED)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(io)
        .await
        .map_err(io::Error::other)?;
    let running = Rc::new(RefCell::new(Some(running)));
    let connection = Rc::new(Connection {
        sender,
        _place: place,
        _alive: alive,
        response_timeout,
        stall_timeout,
        carriers,
        scheme: if is_tls { Scheme::HTTPS } else { Scheme::HTTP },
        requests: Cell::new(0),
        idle_since: Cell::new(recent()),
        running: Rc::clone(&running),
        activity,
        is_doubtful: Cell::new(false),
    });
    // It ends when its last sender is gone.
    tokio::task::spawn_local(async move {
        let end = poll_fn(|cx| {
            let mut running = running.borrow_mut();
            let end = running.as_mut().map_or(Poll::Ready(Ok(())), |running| Pin::new(running).poll(cx));
            if end.is_ready() {
                // Now, so that who waits for something from it hears of its end.
                *running = None;
            }
            end
        });
        if let Err(error) = end.await {
            tracing::debug!("a connection to a server ended: {error}");
        }
    });
    Ok(connection)
}
