//! The body of a response on its way to the client.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::body::BodyError;
use super::client_counts::ClientPermit;
use super::connection::ActiveExchange;
use super::connection_use::{CONTENDED_GRACE, ConnectionUse};
use super::detached::ResponseStream;
use super::pool::InFlight;
use super::trailers::{self, may_trail};
use super::tunnel::ServerEnd;
use crate::limiter::Permit;

/// A response's body as it streams in. The connection goes back to its pool after the last byte; if the body
/// is dropped before, the connection is closed, or the rest is read for as long as the request holds concurrency slots.
#[derive(Debug)]
pub struct ResponseBody {
    stream: ResponseStream,
    visit: InFlight,
    /// Whether the client has to take it in time.
    is_timed: bool,
    _admitted: (Permit, Option<Rc<ClientPermit>>),
}

impl ResponseBody {
    pub(super) fn new(
        stream: ResponseStream,
        visit: InFlight,
        admitted: (Permit, Option<Rc<ClientPermit>>),
        is_timed: bool,
    ) -> Self {
        let is_timed = is_timed && !stream.exchange().is_some_and(ActiveExchange::is_open_ended);
        let body = Self { stream, visit, is_timed, _admitted: admitted };
        // It may not even take the first part.
        body.is_handed_on();
        body
    }

    /// Whether it has no time limit, as an event stream or a gRPC call.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.stream.exchange().is_some_and(ActiveExchange::is_open_ended)
    }

    /// Who uses the connection that it comes over, if no other request does.
    #[must_use]
    pub fn connection(&self) -> Option<&Arc<ConnectionUse>> {
        self.stream.exchange().and_then(ActiveExchange::connection)
    }

    /// The client has taken what there was.
    fn is_taken(&self) {
        if let Some(connection) = self.connection().filter(|_| self.is_timed) {
            connection.go_on();
        }
    }

    /// The client has to take a part of it before it gets more. How much of that it has taken already can't be seen from
    /// here, so that there is no rate.
    fn is_handed_on(&self) {
        if self.is_timed
            && !self.stream.is_end_stream()
            && let Some(connection) = self.connection()
        {
            connection.wait_for_client(Some(CONTENDED_GRACE));
        }
    }

    /// The server's end of the tunnel, once it has switched protocols.
    #[must_use]
    pub fn into_tunnel(mut self) -> Option<ServerEnd> {
        let (stream, held) = self.stream.finish().and_then(ActiveExchange::into_switched)?;
        Some(ServerEnd::new(stream, self, held))
    }

    /// The server that it comes from, for messages.
    #[must_use]
    pub fn server(&self) -> String {
        self.visit.pool().server().authority()
    }

    /// Goes on with what is still to be sent of the request, while no more of the response can be taken.
    ///
    /// # Errors
    /// When the client has broken off the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        self.stream.poll_upload(cx)
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.stream.finish().and_then(ActiveExchange::into_kept) {
            self.visit.pool().give_back(connection);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.is_taken();
        if this.connection().is_some_and(|connection| connection.is_reclaimed()) {
            return Poll::Ready(Some(Err(BodyError::Reclaimed)));
        }
        let mut frame = this.stream.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame {
            trailers::cut(frame, |name| may_trail(name.as_str()));
        }
        match &frame {
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Ok(_))) => this.is_handed_on(),
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.stream.is_end_stream() {
            self.give_back();
        }
    }
}
