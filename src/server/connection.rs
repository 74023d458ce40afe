//! One connection of a client, from its first byte until it is closed.
//!
//! A connection waits or is served. While it waits, for its first byte or because its client has been idle for a while, it
//! holds only its socket; buffers and protocol state are allocated when a request arrives.
//!
//! # States and timeouts
//! Over HTTP/1.1 one task reads heads, runs the pipeline, reads bodies and writes responses (`server::connection::http1`). The
//! state determines which timeout applies:
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Idle: TCP, PROXY header, TLS (handshake_timeout)
//!     Idle --> Parked: 500 ms without a byte
//!     Idle --> ReadingHead: first byte
//!     Parked --> ReadingHead: first byte
//!     Idle --> [*]: idle_timeout
//!     Parked --> [*]: idle_timeout
//!     ReadingHead --> Responding: head complete
//!     ReadingHead --> Refused: malformed
//!     ReadingHead --> Abandoned: header_timeout
//!     Responding --> Idle: response written, keep-alive
//!     Responding --> Paused: no slot or connection free, worker saturated
//!     Paused --> Idle: at most 1 s
//!     Responding --> DiscardingBody: rest of the request body
//!     Responding --> Tunnel: protocol switched
//!     Responding --> Closing: Connection close, drain
//!     Responding --> Abandoned: denied without a response
//!     DiscardingBody --> Idle: read within 1 s
//!     DiscardingBody --> Closing: not read in time
//!     Refused --> Closing: 400, 414, 431, 501
//!     Abandoned --> [*]: without a response
//!     Closing --> [*]: flush, shut down, linger
//!     Tunnel --> [*]: tunnel_timeout
//! ```
//!
//! While the state is `Responding` (`body_timeout`, `min_body_rate`, `idle_timeout` for writes), one poll drives everything:
//! the future of the pipeline, the request's body (`Upload` reads the next part only when the other end of its `body_channel`
//! requests it), then the response's body and the socket. At most one part of a body waits in each direction. While the proxy
//! works, the connection reads ahead a little, to notice that the client disconnects.
//!
//! - **Parking.** After half a second without a byte, a connection keeps its stream only; buffers return to the worker
//!   (`BufferedStream`). A parked connection is read through rustls, not merely watched by its descriptor, since rustls may
//!   already hold plaintext. HTTP/2 is not parked: its tables and windows belong to both sides. Once a second `server::worker`
//!   frees a large block, which makes the allocator return memory to the system.
//! - **Overload.** `server::refusal_pacer` measures how busy the worker is, and sets the pauses of connections whose requests
//!   were refused because all slots of a limit or all connections of an upstream are in use. The time between the ends of two
//!   pauses bounds the rate of such refusals: it doubles with each window in which the worker is saturated, and shrinks by a
//!   quarter with each other one. Each client has its own sequence of pauses at its part of that rate. Pauses change when a
//!   request is read, and nothing else.
//! - **Turns of the event loop.** A task that becomes ready runs after all that are ready already, so turns must be short.
//!   `server::start_queue` lets 64 requests over HTTP/2, or pipelined ones, start in a turn. Further ones wait, and client
//!   addresses take turns. A first request over HTTP/1.1 does not wait: a connection has only one.
//! - **Half-closed clients.** A client that has shut down its sending side may still wait for the response; it can't be
//!   distinguished from one that has disconnected. So the request continues until the client has read nothing for two seconds.
//!   In the middle of a request body the end of the connection is an error at once, also while a limit delays the request.
//! - **Closing.** If a socket is closed with unread input, the kernel resets the connection and the client may lose its
//!   response. So a connection on which the client may still be sending is shut down in one direction and read for a while
//!   (`socket::Lingering`).
//! - **Lazy timers.** A timer that is set and cleared for each request costs too much. A `LazyTimer` is checked only when a
//!   read or write is pending; after progress it is left as it is, and if it fires early it is set to the remaining time. It is
//!   polled outside tokio's cooperative budget, so that a task that polls it once is woken.
//! - **Slow clients.** A small body is read completely before an endpoint is chosen (`RequestBody::buffered`; `BufferBudget`
//!   bounds it for the streams of a connection). Other bodies, and responses, have a minimum rate: `socket::TransferRate`
//!   counts only the time spent waiting for the client. When a listener is full, the connection table
//!   (`server::connection_limiter`) closes an idle connection of the client with the most connections.

mod frame_flood;
mod http1;
mod http2;
mod stream_tracker;

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use self::frame_flood::{PREFACE, PREFACE_MISSING};
use self::http1::Parked;
use super::drain::{ConnectionTracker, IDLE_GRACE};
use super::spec::{ListenerSpec, Protocols};
use super::transport::Accepted;
use crate::boxed::rare;
use crate::proxy::{ActiveProxy, ClientConnection};
use crate::socket::{BufferedStream, LazyTimer};
use crate::time::monotonic;
use crate::tls::Transport;

/// The protocol that the first bytes of a connection, or of a request on a parked one, indicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Http1,
    Http2,
    /// Something else on a connection that allows only HTTP/2.
    NotHttp2,
    /// The connection was closed, timed out, or has to close.
    Closed,
}

/// A connection that waits for its first bytes, or, when it is parked, for those of the next request.
struct WaitingConnection<'l> {
    stream: BufferedStream<Transport>,
    spec: &'l ListenerSpec,
    tracker: &'l ConnectionTracker,
    /// The HTTP/2 preface; empty if HTTP/2 is not allowed on the connection.
    preface: &'static [u8],
    must_be_http2: bool,
    /// When the first bytes have to be complete.
    deadline: Instant,
    /// Whether a byte has arrived.
    has_started: bool,
    timer: LazyTimer,
}

/// Serves a connection until either side closes it.
pub(super) async fn serve(
    accepted: Accepted,
    spec: &ListenerSpec,
    proxy: &Rc<ActiveProxy>,
    tracker: &ConnectionTracker,
) {
    let Accepted { stream, address } = accepted;
    let mut drain_started = pin!(tracker.drain_started());
    // Registered once: the waker of a task does not change.
    poll_fn(|cx| {
        let _ = drain_started.as_mut().poll(cx);
        tracker.set_waker(cx);
        Poll::Ready(())
    })
    .await;
    let mut waiting = WaitingConnection::new(stream, spec, tracker);
    let result = loop {
        let start = waiting.read_start().await;
        // Boxed so that a waiting connection does not hold the memory of a served one.
        let served = match start {
            Start::Closed => {
                rare(http1::close(waiting.stream, spec, tracker, false)).await;
                break Ok(());
            }
            Start::NotHttp2 => {
                let mut stream = waiting.stream;
                stream.out().extend_from_slice(&PREFACE_MISSING);
                rare(http1::close(stream, spec, tracker, true)).await;
                break Err(
                    "client sent no HTTP/2 preface, but only HTTP/2 is allowed on this connection".into()
                );
            }
            Start::Http1 => {
                let client = client_connection(address, spec, waiting.stream.get_ref(), tracker);
                Box::pin(http1::serve(waiting.stream, client, spec, proxy, tracker)).await
            }
            Start::Http2 => {
                let client = client_connection(address, spec, waiting.stream.get_ref(), tracker);
                Box::pin(http2::serve(waiting.stream, client, spec, proxy, tracker)).await.map(|()| None)
            }
        };
        match served {
            Ok(Some(parked)) => waiting = WaitingConnection::parked(parked, spec, tracker),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if let Err(error) = result {
        tracing::debug!(%address, "connection ended: {error}");
    }
}

fn client_connection(
    address: SocketAddr,
    spec: &ListenerSpec,
    transport: &Transport,
    tracker: &ConnectionTracker,
) -> ClientConnection {
    let client = ClientConnection::new(address, spec.client_timeouts()).asking(spec.forward_auth);
    let client = client.at(spec.name.clone(), spec.redirect.clone()).of_client(tracker.client_bodies());
    match transport {
        Transport::Plain(_) => client,
        Transport::Tls(_) => client.over_tls(transport.peer_names()),
    }
}

impl<'l> WaitingConnection<'l> {
    /// A connection that was just accepted.
    fn new(stream: Transport, spec: &'l ListenerSpec, tracker: &'l ConnectionTracker) -> Self {
        let Protocols { h1, h2 } = spec.protocols;
        // Over TLS only the protocol that ALPN has agreed on may be used (RFC 9113 §3.2 and §3.3).
        let must_be_http2 = !h1 || stream.is_http2();
        let may_be_http2 = h2 && (must_be_http2 || matches!(stream, Transport::Plain(_)));
        Self {
            stream: BufferedStream::new(stream),
            spec,
            tracker,
            preface: if may_be_http2 { PREFACE } else { b"" },
            must_be_http2,
            deadline: monotonic() + spec.idle_timeout,
            has_started: false,
            timer: LazyTimer::default(),
        }
    }

    /// An idle connection over HTTP/1.1, which can't change to HTTP/2 any more.
    fn parked(parked: Parked, spec: &'l ListenerSpec, tracker: &'l ConnectionTracker) -> Self {
        Self {
            stream: parked.stream,
            spec,
            tracker,
            preface: b"",
            must_be_http2: false,
            deadline: parked.deadline,
            has_started: false,
            timer: LazyTimer::default(),
        }
    }

    /// Waits for enough bytes to recognize the preface; if HTTP/2 is not allowed, for the first byte.
    async fn read_start(&mut self) -> Start {
        self.tracker.set_idle(true);
        poll_fn(|cx| self.poll_start(cx)).await
    }

    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Start> {
        loop {
            if let Some(start) = self.start() {
                return Poll::Ready(start);
            }
            match self.stream.poll_fill(cx) {
                Poll::Ready(Ok(1..)) if !self.has_started => {
                    self.has_started = true;
                    self.deadline = monotonic() + self.spec.header_timeout;
                }
                Poll::Ready(Ok(1..)) => {}
                // The connection ended within what could have been the preface.
                Poll::Ready(Ok(0)) if self.stream.unread_length() > 0 => {
                    return Poll::Ready(self.not_preface());
                }
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Start::Closed),
                Poll::Pending => break,
            }
        }
        // A waiting connection keeps no buffer: the other connections of the worker share it.
        self.stream.release();
        if self.tracker.is_draining() && !self.has_started {
            self.deadline = self.deadline.min(monotonic() + IDLE_GRACE);
        }
        // TLS may have messages to send, such as session tickets.
        let is_broken = matches!(self.poll_flush(cx), Poll::Ready(Err(_)));
        if is_broken || self.tracker.is_evicted() || self.timer.wait_until(self.deadline, cx).is_ready() {
            return Poll::Ready(Start::Closed);
        }
        Poll::Pending
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.get_mut() {
            Transport::Plain(_) => Poll::Ready(Ok(())),
            stream @ Transport::Tls(_) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// The protocol of the bytes in the buffer; none if more are needed to decide.
    fn start(&mut self) -> Option<Start> {
        let (unread, preface) = (&self.stream.unread()[..], self.preface);
        if unread.is_empty() || unread.len() < preface.len() && preface.starts_with(unread) {
            return None;
        }
        Some(if !preface.is_empty() && unread.starts_with(preface) {
            Start::Http2
        } else {
            self.not_preface()
        })
    }

    fn not_preface(&self) -> Start {
        if self.must_be_http2 { Start::NotHttp2 } else { Start::Http1 }
    }
}
