//! A client's connection over HTTP/1.1: requests that come one after the other.
//!
//! One task does all of it: it reads a head, has the proxy answer the request, reads the request's body as far as it is
//! wanted, writes the response, and begins anew. What may be waited for, and for how long, follows from the [`State`].

mod closing;
mod exchange;
mod io;
mod upload;

use std::error::Error;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use tokio::time::Instant;

use self::exchange::Next;
use self::io::ClientIo;
use self::upload::Upload;
use super::LINGER;
use crate::http1::{HeadLimits, ParseError, ParsedRequest, ResponseHead, parse_request, write_response};
use crate::proxy::{ActiveProxy, ClientConnection, Tunnel};
use crate::server::ListenerSpec;
use crate::server::drain::ConnectionTracker;
use crate::socket::BufferedStream;
use crate::time::{http_date, monotonic, recent};
use crate::tls::Transport;
use crate::upstream::BodyError;

/// How long a connection is idle before it is parked.
const PARK_AFTER: Duration = Duration::from_millis(500);

/// How long the rest of the body of a request that is answered is read in all.
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// A connection that is being used.
struct Connection<'l> {
    io: ClientIo,
    peer: ClientConnection,
    spec: &'l ListenerSpec,
    live: &'l ActiveProxy,
    open: &'l ConnectionTracker,
    /// By when the next head has to begin once the server drains.
    drained_by: Option<Instant>,
    /// The target of the last request, which is often that of the next one too.
    last_target: Option<Uri>,
}

/// What a connection does.
enum State {
    /// It waits for the first byte of a head, until `by`, and is parked at `parks_at`.
    AwaitingHead { by: Instant, parks_at: Instant },
    /// It reads a head, which has to be complete by then.
    ReadingHead { by: Instant },
    /// The proxy answers a request.
    Responding(ParsedRequest),
    /// It reads the rest of the body of a request that is answered, and throws it away.
    Discarding(Box<Upload>),
    /// It has been idle for a while, and needs no buffers until the first byte of a head, which has to come by then.
    Parked { by: Instant },
    /// It goes on with bytes both ways.
    Switched(Box<Tunnel>),
    /// It ends. The client may still be sending a head or a body.
    Closing { is_sending: bool },
    /// It has answered a head that can't be read, and ends.
    Refused(ParseError),
    /// It ends without a response, since the client has not sent all of a head in time.
    Abandoned,
}

/// Why a connection ends before its time.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("the client has disconnected")]
    Disconnected,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the response broke off: {0}")]
    Response(#[from] BodyError),
    #[error("the response is shorter than announced")]
    Incomplete,
    #[error("it reads its response too slowly, and others need the connection to the server")]
    Reclaimed,
}

/// A connection that is parked.
pub(super) struct Parked {
    pub stream: BufferedStream<Transport>,
    /// By when the next head has to begin.
    pub by: Instant,
}

/// Closes a connection on which no request is under way, after what waits was written.
pub(super) async fn close(
    stream: BufferedStream<Transport>,
    spec: &ListenerSpec,
    open: &ConnectionTracker,
    is_sending: bool,
) {
    closing::close(&mut ClientIo::new(stream, spec.idle_timeout), open, is_sending).await;
}

/// Serves requests until either side ends the connection, or it is parked. The first bytes of a head are in the stream's
/// buffer. The task is woken when the server drains.
pub(super) async fn serve(
    stream: BufferedStream<Transport>,
    peer: ClientConnection,
    spec: &ListenerSpec,
    live: &ActiveProxy,
    open: &ConnectionTracker,
) -> Result<Option<Parked>, Box<dyn Error>> {
    let io = ClientIo::new(stream, spec.idle_timeout);
    let mut connection = Connection { io, peer, spec, live, open, drained_by: None, last_target: None };
    let mut state = State::ReadingHead { by: recent() + spec.header_timeout };
    loop {
        state = match state {
            State::AwaitingHead { by, parks_at } => {
                poll_fn(|cx| connection.poll_first_byte((by, parks_at), cx)).await
            }
            State::ReadingHead { by } => connection.read_head(by).await,
            State::Responding(request) => connection.respond_to(request).await?,
            State::Discarding(upload) => connection.discard(upload).await,
            State::Parked { by } => {
                let mut stream = connection.io.stream;
                stream.release();
                return Ok(Some(Parked { stream, by }));
            }
            State::Switched(tunnel) => {
                let (stream, read) = connection.io.stream.into_parts();
                Box::pin(tunnel.run(super::tunnel_end(stream, read, spec))).await;
                return Ok(None);
            }
            State::Closing { is_sending } => {
                Box::pin(closing::close(&mut connection.io, open, is_sending)).await;
                return Ok(None);
            }
            State::Refused(error) => {
                Box::pin(closing::close(&mut connection.io, open, true)).await;
                return Err(error.into());
            }
            State::Abandoned => {
                Box::pin(closing::abandon(&mut connection.io, open)).await;
                return Ok(None);
            }
        };
    }
}

impl Connection<'_> {
    /// The next request may come.
    fn await_head(&self) -> State {
        let now = recent();
        State::AwaitingHead { by: now + self.spec.idle_timeout, parks_at: now + PARK_AFTER }
    }

    /// Waits for the first byte of a head.
    fn poll_first_byte(&mut self, (by, parks_at): (Instant, Instant), cx: &mut Context<'_>) -> Poll<State> {
        if self.io.stream.unread_length() == 0 {
            match self.io.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(State::Closing { is_sending: false }),
                Poll::Pending => return self.poll_idle((by, parks_at), cx),
            }
        }
        Poll::Ready(State::ReadingHead { by: recent() + self.spec.header_timeout })
    }

    /// Nothing has come.
    fn poll_idle(&mut self, (by, parks_at): (Instant, Instant), cx: &mut Context<'_>) -> Poll<State> {
        self.open.set_idle(true);
        let by = if self.open.is_draining() {
            by.min(*self.drained_by.get_or_insert_with(|| monotonic() + LINGER))
        } else {
            by
        };
        if self.open.is_evicted() {
            return Poll::Ready(State::Closing { is_sending: false });
        }
        if !self.io.is_past(by.min(parks_at), cx) {
            return Poll::Pending;
        }
        let is_over = by <= parks_at;
        Poll::Ready(if is_over { State::Closing { is_sending: false } } else { State::Parked { by } })
    }

    /// Reads a head.
    async fn read_head(&mut self, by: Instant) -> State {
        let mut seen = 0;
        let read = poll_fn(|cx| {
            loop {
                if let Some(request) = self.parse(seen)? {
                    return Poll::Ready(Ok(Some(request)));
                }
                seen = self.io.stream.unread_length();
                match self.io.poll_fill(cx) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Ok(None)),
                    Poll::Pending => {
                        // A connection that has not sent a whole head makes room before others do.
                        self.open.set_idle(true);
                        let is_over = self.io.is_past(by, cx) || self.open.is_evicted();
                        return if is_over { Poll::Ready(Ok(None)) } else { Poll::Pending };
                    }
                }
            }
        });
        match read.await {
            Ok(Some(request)) => State::Responding(request),
            Ok(None) => State::Abandoned,
            Err(error) => self.refuse(error),
        }
    }

    /// The head of a request, if all of it has come.
    fn parse(&mut self, seen: usize) -> Result<Option<ParsedRequest>, ParseError> {
        let ListenerSpec { max_header_bytes, max_headers, .. } = *self.spec;
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

    /// Answers a head that can't be read. What follows it can't be read either.
    fn refuse(&mut self, error: ParseError) -> State {
        let head = ResponseHead::new(error.status());
        let framing = (http::Version::HTTP_11, crate::http1::Framing::Length(0));
        write_response(self.io.stream.out(), &head, framing, true, &http_date());
        State::Refused(error)
    }

    /// Has the proxy answer a request.
    async fn respond_to(&mut self, request: ParsedRequest) -> Result<State, ConnectionError> {
        self.open.set_idle(false);
        if self.last_target.as_ref() != Some(&request.head.uri) {
            self.last_target = Some(request.head.uri.clone());
        }
        Ok(match self.serve_request(request).await? {
            Next::Request => self.await_head(),
            Next::Discard(upload) => State::Discarding(upload),
            Next::Tunnel(tunnel) => State::Switched(tunnel),
            Next::End { is_sending } => State::Closing { is_sending },
        })
    }

    /// Reads the rest of a body.
    async fn discard(&mut self, mut upload: Box<Upload>) -> State {
        let by = monotonic() + DISCARD_TIME;
        let is_complete = poll_fn(|cx| upload.poll_discard(&mut self.io, by, cx)).await;
        if is_complete && !upload.is_last() {
            self.await_head()
        } else {
            State::Closing { is_sending: !is_complete }
        }
    }
}
