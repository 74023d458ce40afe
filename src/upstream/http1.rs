//! A connection to a server over HTTP/1.1.
//!
//! It has no task of its own: the task that waits for its response, and then for the response's body, polls it. So a
//! request crosses no task on its way, a client that disconnects takes the connection with it, and an idle connection
//! costs nothing but its memory.

mod exchange;
mod io;

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::time::Instant;

use self::exchange::Exchange;
use self::io::Io;
use super::UpstreamRequest;
use super::body::BodyError;
use super::connection_limit::ConnectionPermit;
use super::connection_use::ConnectionUse;
use super::error::SendError;
use crate::http1::{ResponseHead, write_request};
use crate::socket::TimedStream;
use crate::time::{monotonic, recent};
use crate::tls::Transport;

/// A connection to a server, in use or kept for the next request.
pub(super) struct Http1Connection {
    io: Io,
    state: State,
    /// Since when it has been kept; none for a connection that has not served yet.
    kept_since: Option<Instant>,
}

/// What a connection is used for.
#[derive(Debug)]
enum State {
    /// No request is under way.
    Idle,
    /// A response is being read.
    Receiving(Exchange),
    /// No more requests can be sent.
    Closed,
}

impl Http1Connection {
    /// Speaks HTTP/1.1 over a stream, which has this place.
    pub fn new(
        stream: Transport,
        place: ConnectionPermit,
        response_timeout: Duration,
        stall_timeout: Duration,
    ) -> Box<Self> {
        let io = Io::new(stream, place, response_timeout, stall_timeout);
        Box::new(Self { io, state: State::Idle, kept_since: None })
    }

    /// Whether it has served before and was kept.
    pub fn was_kept(&self) -> bool {
        self.kept_since.is_some()
    }

    /// Ends a request whose response has been read to its end; says whether the connection can be kept for another one.
    pub fn keep(&mut self) -> bool {
        self.kept_since = Some(recent());
        self.connection().end();
        let is_reusable = match &self.state {
            State::Idle => true,
            State::Receiving(exchange) => exchange.is_reusable(),
            State::Closed => false,
        };
        // A server that sends more than its response is not understood.
        let is_kept = is_reusable && self.io.stream.unread_length() == 0;
        self.state = if is_kept { State::Idle } else { State::Closed };
        self.io.reset();
        self.io.stream.shrink();
        is_kept
    }

    /// Who uses it.
    pub fn connection(&self) -> &Arc<ConnectionUse> {
        self.io.place.connection()
    }

    /// How long it has been kept.
    pub fn idle_for(&self) -> Duration {
        self.kept_since.map_or(Duration::ZERO, |since| monotonic() - since)
    }

    /// Whether an idle connection has ended, or the server has sent something unasked. No task is woken if that happens
    /// later.
    pub fn is_dead(&mut self) -> bool {
        self.io.forget_tasks();
        let mut room = [MaybeUninit::uninit(); 1];
        let (room, cx) = (&mut ReadBuf::uninit(&mut room), &mut Context::from_waker(Waker::noop()));
        !matches!(self.state, State::Idle)
            || Pin::new(self.io.stream.get_mut()).poll_read(cx, room).is_ready()
    }

    /// Whether the response may be silent without a time limit.
    pub fn is_open_ended(&self) -> bool {
        matches!(&self.state, State::Receiving(exchange) if exchange.is_open_ended)
    }

    /// Whether the response has come before its request was sent.
    pub fn is_uploading(&self) -> bool {
        matches!(&self.state, State::Receiving(exchange) if !exchange.is_sent())
    }

    /// Closes it, and leaves its place to another.
    pub fn into_place(self: Box<Self>) -> ConnectionPermit {
        self.io.place
    }

    /// The stream after the server has switched protocols, and its right to be there.
    pub fn into_switched(self: Box<Self>) -> Option<(TimedStream<Transport>, ConnectionPermit)> {
        let has_switched = matches!(&self.state, State::Receiving(exchange) if exchange.has_switched());
        let Io { stream, place, stall_timeout, .. } = self.io;
        let (stream, read) = stream.into_parts();
        has_switched.then(|| (TimedStream::new(stream, read, stall_timeout), place))
    }

    /// Sends a request and waits for the head of its response. All must be over by `deadline`, the response's body too.
    ///
    /// # Errors
    /// When there is no response. The head of the request stays as it is, and so does what is stored of its body.
    pub async fn send(
        &mut self,
        request: &mut UpstreamRequest,
        deadline: Option<Instant>,
    ) -> Result<ResponseHead, SendError> {
        let sent_before = self.io.stream.total_written();
        let mut exchange = Exchange::begin(request, deadline, &self.io, self.was_kept());
        write_request(self.io.stream.out(), &request.head, exchange.framing);
        let mut is_first = true;
        let result = poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                self.connection().set_waker(cx.waker().clone());
            }
            exchange.poll_head(&mut self.io, &mut request.body, cx)
        })
        .await;
        match result {
            Ok(head) => {
                exchange.begin_response(&mut self.io, &head, &mut request.body);
                self.state = State::Receiving(exchange);
                Ok(head)
            }
            Err(cause) => {
                self.state = State::Closed;
                let is_unsent = self.io.stream.total_written() == sent_before && !cause.is_by_client();
                Err(SendError { cause, is_unsent, is_unanswered: !exchange.has_response() })
            }
        }
    }

    /// Goes on with what is still to be sent of a request whose response has begun.
    ///
    /// # Errors
    /// When the client has broken off the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        match &mut self.state {
            State::Receiving(exchange) if !exchange.is_sent() => exchange.poll_early_upload(&mut self.io, cx),
            _ => Ok(()),
        }
    }

    /// The next part of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.state {
            State::Receiving(exchange) => exchange.poll_response(&mut self.io, cx),
            State::Idle | State::Closed => Poll::Ready(None),
        }
    }

    /// Whether the response's body has come to its end.
    pub fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Receiving(exchange) => exchange.is_end_stream(),
            State::Idle | State::Closed => true,
        }
    }

    /// How long the rest of the response's body is.
    pub fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Receiving(exchange) => exchange.size_hint(),
            State::Idle | State::Closed => SizeHint::with_exact(0),
        }
    }
}

impl std::fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Connection").field("state", &self.state).finish_non_exhaustive()
    }
}
