//! An HTTP/1.1 connection to a server.
//!
//! No separate task drives it: the task that waits for its response, and then for the response's body, polls it. So a
//! request crosses no task boundary, the connection closes with the client that it serves, and an idle connection costs
//! only its memory.

pub(super) mod early_upload;
mod exchange;
mod io;

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hyper::body::SizeHint;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::time::Instant;

use self::exchange::Http1Exchange;
use self::io::Io;
use super::error::{Cause, SendError};
use super::message::{ExchangeTimeouts, UpstreamRequest};
use super::pool::connection_limit::ConnectionPermit;
use super::pool::connection_use::ConnectionUse;
use crate::body::{BodyError, PolledFrame};
use crate::http1::{ResponseHead, write_request};
use crate::socket::TimedStream;
use crate::time::{cached_now, monotonic};
use crate::tls::Transport;

/// An HTTP/1.1 connection to a server, in use or idle.
pub(super) struct Http1Connection {
    io: Io,
    state: State,
    /// When its last request finished; none before that.
    idle_since: Option<Instant>,
}

/// The state of a connection.
#[derive(Debug)]
enum State {
    /// No request is in progress.
    Idle,
    /// A request is being sent, or its response read.
    Active(Http1Exchange),
    /// No more requests can be sent.
    Closed,
}

impl Http1Connection {
    /// A new connection over a transport.
    pub fn new(transport: Transport, permit: ConnectionPermit) -> Box<Self> {
        let io = Io::new(transport, permit);
        Box::new(Self { io, state: State::Idle, idle_since: None })
    }

    /// Whether the connection has served a request before.
    pub fn is_reused(&self) -> bool {
        self.idle_since.is_some()
    }

    /// Finishes a request whose response is complete; returns whether the connection can take another one.
    pub fn finish_request(&mut self) -> bool {
        self.idle_since = Some(cached_now());
        self.connection_use().finish();
        let is_complete = match &self.state {
            State::Idle => true,
            State::Active(exchange) => exchange.is_reusable(),
            State::Closed => false,
        };
        // Bytes after the response would be read as the next response.
        let is_reusable = is_complete && self.io.stream.unread_length() == 0;
        self.state = if is_reusable { State::Idle } else { State::Closed };
        self.io.reset();
        self.io.stream.shrink();
        is_reusable
    }

    /// The use of the connection.
    pub fn connection_use(&self) -> &Arc<ConnectionUse> {
        self.io.permit.connection_use()
    }

    /// How long the connection has been idle.
    pub fn idle_for(&self) -> Duration {
        self.idle_since.map_or(Duration::ZERO, |since| monotonic() - since)
    }

    /// Whether an idle connection has ended, or the server has sent something without a request. If that happens later,
    /// no task is woken.
    pub fn is_dead(&mut self) -> bool {
        self.io.clear_wakers();
        let mut byte = [MaybeUninit::uninit(); 1];
        // A read that is ready on an idle connection is its end, or a response without a request.
        let (byte, cx) = (&mut ReadBuf::uninit(&mut byte), &mut Context::from_waker(Waker::noop()));
        !matches!(self.state, State::Idle)
            || Pin::new(self.io.stream.get_mut()).poll_read(cx, byte).is_ready()
    }

    /// Whether the response may pause without a time limit.
    pub fn is_open_ended(&self) -> bool {
        matches!(&self.state, State::Active(exchange) if exchange.is_open_ended)
    }

    /// Whether the response has started before the request was sent completely.
    pub fn is_uploading(&self) -> bool {
        matches!(&self.state, State::Active(exchange) if !exchange.is_sent())
    }

    /// When the server got the end of the request; none if it does not have that.
    pub fn sent_at(&self) -> Option<Instant> {
        if let State::Active(exchange) = &self.state { exchange.sent_at() } else { None }
    }

    /// Closes the connection, and returns its permit.
    pub fn into_permit(self: Box<Self>) -> ConnectionPermit {
        self.io.permit
    }

    /// The stream of bytes after the server has switched protocols, and the connection's permit.
    pub fn into_tunnel(self: Box<Self>) -> Option<(TimedStream<Transport>, ConnectionPermit)> {
        let has_switched = matches!(&self.state, State::Active(exchange) if exchange.has_switched());
        let Io { stream, permit, timeouts, .. } = self.io;
        let (stream, read) = stream.into_parts();
        has_switched.then(|| (TimedStream::new(stream, read, timeouts.stall), permit))
    }

    /// Starts a request with these timeouts.
    pub fn start(&mut self, timeouts: ExchangeTimeouts) -> &ConnectionUse {
        self.io.timeouts = timeouts;
        self.connection_use()
    }

    /// Sends a request and waits for the head of the response. Without a response the request's head is unchanged, and its body keeps
    /// what can be sent again.
    pub async fn send(&mut self, request: &mut UpstreamRequest) -> Result<ResponseHead, SendError> {
        let sent_before = self.io.stream.total_written();
        let exchange = Http1Exchange::start(request, &self.io, self.is_reused());
        write_request(self.io.stream.out(), &request.head, exchange.framing);
        // An exchange is large: it is moved once, to where the response is read from.
        self.state = State::Active(exchange);
        let mut is_first = true;
        let result = poll_fn(|cx| {
            // Once: the task that polls stays the same until the head has arrived.
            if std::mem::take(&mut is_first) {
                self.connection_use().set_waker(cx.waker().clone());
            }
            let State::Active(exchange) = &mut self.state else { return Poll::Ready(Err(Cause::Closed)) };
            let head = ready!(exchange.poll_head(&mut self.io, request, cx))?;
            exchange.start_response(&mut self.io, &head, &mut request.body);
            Poll::Ready(Ok(head))
        });
        result.await.map_err(|cause| {
            let has_response = matches!(&self.state, State::Active(exchange) if exchange.has_response());
            self.state = State::Closed;
            // If no byte was written, the server can't have processed the request, and it may be sent again.
            let is_unsent = self.io.stream.total_written() == sent_before && !cause.is_caused_by_client();
            let is_uploading = request.body.is_incoming();
            SendError { cause, is_unsent, is_without_response: !has_response, is_uploading }
        })
    }

    /// Polls the rest of the upload of a request whose response has started. Fails if the client has aborted the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        match &mut self.state {
            State::Active(exchange) if !exchange.is_sent() => exchange.poll_early_upload(&mut self.io, cx),
            _ => Ok(()),
        }
    }

    /// Polls the next part of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match &mut self.state {
            State::Active(exchange) => exchange.poll_response(&mut self.io, cx),
            State::Idle | State::Closed => Poll::Ready(None),
        }
    }

    /// Whether the response's body is complete.
    pub fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Active(exchange) => exchange.is_end_stream(),
            State::Idle | State::Closed => true,
        }
    }

    /// The length of the rest of the response's body.
    pub fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Active(exchange) => exchange.size_hint(),
            State::Idle | State::Closed => SizeHint::with_exact(0),
        }
    }
}

impl std::fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Connection").field("state", &self.state).finish_non_exhaustive()
    }
}
