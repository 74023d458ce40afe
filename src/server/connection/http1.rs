//! A client's connection over HTTP/1.1: one request after the other (RFC 9112 §9.3).
//!
//! One task reads a request head, passes the request to the proxy, reads the request body on demand, writes the
//! response, and starts over. The [`State`] determines what the task waits for, and for how long.

mod exchange;
mod io;
mod response;
mod upload;

use std::error::Error;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Uri, Version};
use tokio::time::Instant;

use self::exchange::{Next, Session};
use self::io::ClientIo;
use self::response::ExchangeError;
use self::upload::Upload;
use crate::boxed::rare;
use crate::http1::{
    Framing, HeadLimits, ParseError, ParsedRequest, ResponseFraming, ResponseHead, parse_request,
    write_response,
};
use crate::proxy::{ActiveProxy, ClientConnection, Tunnel};
use crate::server::drain::{ConnectionTracker, IDLE_GRACE};
use crate::server::spec::ListenerSpec;
use crate::server::start_queue::Starter;
use crate::socket::{BufferedStream, TimedStream};
use crate::time::{cached_now, http_date, monotonic};
use crate::tls::Transport;

/// How long a connection is idle before it is parked.
const PARK_AFTER: Duration = Duration::from_millis(500);

/// The total time for which the rest of a request body is read and discarded after the response.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection with its buffers.
struct BufferedConnection<'l> {
    io: ClientIo,
    session: Session<'l>,
    starter: Starter,
    /// When an idle connection closes, set once the server drains.
    drain_deadline: Option<Instant>,
    /// The target of the last request. Targets often repeat, and are then not parsed again.
    last_target: Option<Uri>,
}

/// The states of a connection.
enum State {
    /// Keep-alive: waits until `deadline` for the first byte of a request, and is parked at `park_at`.
    Idle { deadline: Instant, park_at: Instant },
    /// Reads nothing before `end`: the worker is saturated, and has refused a request over this connection.
    Paused { end: Instant },
    /// Reads a request head, which has to be complete by `deadline`.
    ReadingHead { deadline: Instant },
    /// Passes a request to the proxy and writes the response.
    Responding(ParsedRequest),
    /// Reads and discards the rest of a request body after the response, so that the connection can be used again.
    DiscardingBody(Box<Upload>),
    /// Idle for longer: the caller keeps only the stream, without buffers, until the first byte of the next request.
    Parked { deadline: Instant },
    /// Forwards bytes in both directions after the protocol was switched.
    Tunnel(Box<Tunnel>),
    /// Flushes and closes; lingers if the client may still be sending a head or a body.
    Closing { client_is_sending: bool },
    /// Closes after the response to a malformed request head.
    RejectedHead(ParseError),
    /// Closes without a response: the client has not sent a whole request head in time, or its request is denied without one.
    Abandoned,
}

/// An idle connection without buffers.
pub(super) struct Parked {
    pub stream: BufferedStream<Transport>,
    /// When the next request has to start.
    pub deadline: Instant,
}

/// Flushes and closes a connection on which no request is in progress.
pub(super) async fn close(
    stream: BufferedStream<Transport>,
    spec: &ListenerSpec,
    tracker: &ConnectionTracker,
    client_is_sending: bool,
) {
    ClientIo::new(stream, spec.idle_timeout).close(tracker, client_is_sending).await;
}

/// Serves requests until either side closes the connection, or it is parked. The first bytes of a head are in the stream's
/// buffer. The caller has the task woken when the server drains. Fails when a request or its response failed in a way that ended
/// the connection.
pub(super) async fn serve(
    stream: BufferedStream<Transport>,
    client: ClientConnection,
    spec: &ListenerSpec,
    proxy: &ActiveProxy,
    tracker: &ConnectionTracker,
) -> Result<Option<Parked>, Box<dyn Error>> {
    let io = ClientIo::new(stream, spec.idle_timeout);
    let starter = tracker.starter(client.ip(), &proxy.current());
    let session = Session { client, spec, proxy, tracker };
    let mut connection = BufferedConnection { io, session, starter, drain_deadline: None, last_target: None };
    let mut state = State::ReadingHead { deadline: cached_now() + spec.header_timeout };
    loop {
        state = match state {
            State::Idle { deadline, park_at } => {
                poll_fn(|cx| connection.poll_first_byte(deadline, park_at, cx)).await
            }
            State::Paused { end } => poll_fn(|cx| connection.poll_pause(end, cx)).await,
            State::ReadingHead { deadline } => connection.read_head(deadline).await,
            State::Responding(request) => connection.respond_to(request).await?,
            State::DiscardingBody(upload) => connection.discard_body(upload).await,
            State::Parked { deadline } => {
                let mut stream = connection.io.stream;
                // Most connections are idle at any time: without buffers they take little memory.
                stream.release();
                return Ok(Some(Parked { stream, deadline }));
            }
            State::Tunnel(tunnel) => {
                let (stream, read) = connection.io.stream.into_parts();
                rare(tunnel.run(TimedStream::new(stream, read, spec.idle_timeout))).await;
                return Ok(None);
            }
            State::Closing { client_is_sending } => {
                rare(connection.io.close(tracker, client_is_sending)).await;
                return Ok(None);
            }
            State::RejectedHead(error) => {
                rare(connection.io.close(tracker, true)).await;
                return Err(error.into());
            }
            State::Abandoned => {
                rare(connection.io.abandon(tracker)).await;
                return Ok(None);
            }
        };
    }
}

impl BufferedConnection<'_> {
    /// The state that waits for the next request.
    fn idle(&self) -> State {
        let now = cached_now();
        State::Idle { deadline: now + self.session.spec.idle_timeout, park_at: now + PARK_AFTER }
    }

    /// Waits without reading until the end of a pause, or until the connection has to close.
    fn poll_pause(&mut self, end: Instant, cx: &mut Context<'_>) -> Poll<State> {
        let tracker = self.session.tracker;
        tracker.set_idle(true);
        // The idle state closes the connection if it has to: a pause only ends here.
        if tracker.is_draining() || tracker.is_evicted() || self.io.has_passed(end, cx) {
            return Poll::Ready(self.idle());
        }
        Poll::Pending
    }

    /// Waits for the first byte of a request head.
    fn poll_first_byte(&mut self, deadline: Instant, park_at: Instant, cx: &mut Context<'_>) -> Poll<State> {
        if self.io.stream.unread_length() == 0 {
            match self.io.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Poll::Ready(State::Closing { client_is_sending: false });
                }
                Poll::Pending => return self.poll_idle(deadline, park_at, cx),
            }
        } else {
            // Pipelined: it would start in the same turn of the event loop.
            ready!(self.starter.poll_start(cx));
        }
        Poll::Ready(State::ReadingHead { deadline: cached_now() + self.session.spec.header_timeout })
    }

    /// Waits while the client sends nothing: until the connection times out, is parked, or has to close.
    fn poll_idle(&mut self, deadline: Instant, park_at: Instant, cx: &mut Context<'_>) -> Poll<State> {
        let tracker = self.session.tracker;
        tracker.set_idle(true);
        let deadline = if tracker.is_draining() {
            deadline.min(*self.drain_deadline.get_or_insert_with(|| monotonic() + IDLE_GRACE))
        } else {
            deadline
        };
        if tracker.is_evicted() {
            return Poll::Ready(State::Closing { client_is_sending: false });
        }
        if !self.io.has_passed(deadline.min(park_at), cx) {
            return Poll::Pending;
        }
        // With an idle timeout shorter than the time to parking, the connection is never parked.
        Poll::Ready(if deadline <= park_at {
            State::Closing { client_is_sending: false }
        } else {
            State::Parked { deadline }
        })
    }

    /// Reads a request head.
    async fn read_head(&mut self, deadline: Instant) -> State {
        let mut seen = 0;
        let read = poll_fn(|cx| {
            loop {
                if let Some(request) = self.parse(seen)? {
                    return Poll::Ready(Ok(Some(request)));
                }
                // The search for the end of the head continues there, so that a head in single bytes takes linear time.
                seen = self.io.stream.unread_length();
                match self.io.poll_fill(cx) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Ok(None)),
                    Poll::Pending => {
                        // An incomplete head is no request yet, so the connection may be evicted.
                        self.session.tracker.set_idle(true);
                        let is_over = self.io.has_passed(deadline, cx) || self.session.tracker.is_evicted();
                        return if is_over { Poll::Ready(Ok(None)) } else { Poll::Pending };
                    }
                }
            }
        });
        match read.await {
            Ok(Some(request)) => State::Responding(request),
            Ok(None) => State::Abandoned,
            Err(error) => self.reject_head(error),
        }
    }

    /// Parses a request head, if all of it is in the buffer. `seen` bytes of it were parsed before.
    fn parse(&mut self, seen: usize) -> Result<Option<ParsedRequest>, ParseError> {
        let ListenerSpec { max_header_bytes, max_headers, .. } = *self.session.spec;
        let limits = HeadLimits { max_bytes: max_header_bytes, max_headers };
        let unread = self.io.stream.unread();
        if unread.len() == seen {
            return Ok(None);
        }
        let parsed = parse_request(unread, seen, limits, self.last_target.as_ref())?;
        if let Some(request) = &parsed {
            bytes::Buf::advance(unread, request.length);
        }
        Ok(parsed)
    }

    /// Writes the response to a malformed request head. Since its end is unknown, the connection has to close.
    fn reject_head(&mut self, error: ParseError) -> State {
        let head = ResponseHead::new(error.status());
        let framing = ResponseFraming { version: Version::HTTP_11, body: Framing::Length(0), is_last: true };
        let out = self.io.stream.out();
        let start = out.len();
        write_response(out, &head, framing, &http_date());
        self.session.spec.header_case.apply(&mut out[start..]);
        State::RejectedHead(error)
    }

    /// Serves a request.
    async fn respond_to(&mut self, request: ParsedRequest) -> Result<State, ExchangeError> {
        self.session.tracker.set_idle(false);
        // Requests of one connection often have one target: the parser then clones it instead of parsing it.
        if self.last_target.as_ref() != Some(&request.head.uri) {
            self.last_target = Some(request.head.uri.clone());
        }
        Ok(match self.session.serve_request(&mut self.io, request).await? {
            Next::Request => self.idle(),
            Next::Pause(end) => State::Paused { end },
            Next::DiscardBody(upload) => State::DiscardingBody(upload),
            Next::Tunnel(tunnel) => State::Tunnel(tunnel),
            Next::Abandon => State::Abandoned,
            Next::Close { client_is_sending } => State::Closing { client_is_sending },
        })
    }

    /// Reads and discards the rest of a request body.
    async fn discard_body(&mut self, mut upload: Box<Upload>) -> State {
        let deadline = monotonic() + DISCARD_TIMEOUT;
        let is_complete = poll_fn(|cx| upload.poll_discard(&mut self.io, deadline, cx)).await;
        // After an incomplete body, its rest would be read as the next request.
        if is_complete && !upload.must_close() {
            self.idle()
        } else {
            State::Closing { client_is_sending: !is_complete }
        }
    }
}
