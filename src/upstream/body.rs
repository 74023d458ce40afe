//! Bodies on their way: the client's to the server, and the server's back.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::pool::Visit;
use super::wire::Wire;
use crate::limiter::Permit;
use crate::socket::{Patience, Reading};
use crate::time::monotonic;

/// Why a body ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// What it came over broke, or it was no HTTP.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// It has more bytes than it may.
    #[error("the body is larger than it may be")]
    TooLarge,
}

/// A request's body as it goes upstream.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Option<Incoming>,
    /// How many more bytes it may have, if that is bounded.
    left: Option<u64>,
    /// The client's connection, which owes us nothing more once the body is there.
    client: Option<Rc<Patience>>,
    /// The server's connection, which owes us an answer in this time once the body is sent.
    server: Option<(Rc<Patience>, Duration)>,
}

impl RequestBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self { incoming: None, left: None, client: None, server: None }
    }

    /// A body that streams in; `client` is told when it is there.
    #[must_use]
    pub fn streaming(incoming: Incoming, client: Rc<Patience>) -> Self {
        Self { incoming: Some(incoming), left: None, client: Some(client), server: None }
    }

    /// The same body, which fails where it has more than so many bytes.
    #[must_use]
    pub fn at_most(mut self, bytes: Option<u64>) -> Self {
        self.left = bytes;
        self
    }

    pub(super) fn then_expect_answer(&mut self, server: Rc<Patience>, within: Duration) {
        self.server = Some((server, within));
    }

    fn end(&mut self) {
        self.incoming = None;
        if let Some(client) = self.client.take() {
            client.set(Reading::Unbounded);
        }
        // Once an answer has begun, its own times hold.
        if let Some((server, within)) = self.server.take().filter(|(server, _)| server.is_unbounded()) {
            server.set(Reading::Until(monotonic() + within));
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let mut frame = Pin::new(&mut *incoming).poll_frame(cx).map_err(BodyError::Broken);
        let is_whole = matches!(frame, Poll::Ready(None)) || incoming.is_end_stream();
        if let Some(client) = &self.client {
            match &frame {
                // What a client had sent before it closed its sending side was not all of its body.
                Poll::Pending if client.starve() => cx.waker().wake_by_ref(),
                // hyper reads trailers up to an empty line that ends in CR LF, and takes an earlier one that ends in
                // LF for their end: a request may have been lost in between, and the next answer would seem to be its.
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => client.set_last(),
                _ => {}
            }
            if is_whole {
                client.set_unfinished(false);
            }
        }
        if let (Some(left), Poll::Ready(Some(Ok(some)))) = (&mut self.left, &frame) {
            let length = some.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(length) {
                Some(still) => *left = still,
                None => frame = Poll::Ready(Some(Err(BodyError::TooLarge))),
            }
        }
        if is_whole || matches!(frame, Poll::Ready(Some(Err(_)))) {
            self.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // Dropped before its end: the response came early, or nothing will. Whoever holds the server's
        // connection has set its patience already.
        self.server = None;
        self.end();
    }
}

/// A response's body as it streams in. The connection goes back to its pool after the last byte; if the body
/// is dropped before, the connection is closed.
#[derive(Debug)]
pub struct ResponseBody {
    incoming: Incoming,
    wire: Option<Box<Wire>>,
    visit: Visit,
    _permit: Permit,
}

impl ResponseBody {
    pub(super) fn new(incoming: Incoming, wire: Box<Wire>, visit: Visit, permit: Permit) -> Self {
        Self { incoming, wire: Some(wire), visit, _permit: permit }
    }

    /// The server that it comes from, for messages.
    #[must_use]
    pub fn server(&self) -> String {
        self.visit.pool().server().authority()
    }

    fn give_back(&mut self) {
        if let Some(wire) = self.wire.take() {
            self.visit.pool().give_back(wire);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let Some(wire) = &mut this.wire else { return Poll::Ready(None) };
        let frame = wire.drive(cx, |cx| Pin::new(&mut this.incoming).poll_frame(cx));
        if matches!(frame, Poll::Ready(None)) {
            this.give_back();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}
