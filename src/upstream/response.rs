//! The body of a response that is forwarded to the client, and the tunnel after a protocol switch.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_counts::ClientPermit;
use super::connection::{ActiveExchange, Duplex, TunnelHold};
use super::connection_use::{CONTENDED_GRACE, ConnectionUse};
use super::detached::ResponseStream;
use super::error::BodyError;
use super::in_flight::InFlight;
use super::trailers::{self, may_be_trailer};
use crate::limiter::Permit;

/// The body of a response as it streams in. After the last byte the connection returns to its pool. If the body is
/// dropped before, the connection is closed, or a task reads the rest if the request holds concurrency slots.
#[derive(Debug)]
pub struct ResponseBody {
    stream: ResponseStream,
    in_flight: InFlight,
    /// Whether the connection may be reclaimed if the client reads too slowly.
    is_reclaimable: bool,
    _permits: (Permit, Option<Rc<ClientPermit>>),
}

/// The server's end of a tunnel after a protocol switch. The request for the tunnel, with its limits and counts, lasts as
/// long as this value.
pub struct ServerEnd {
    stream: Box<dyn Duplex>,
    _request: ResponseBody,
    _hold: TunnelHold,
}

impl ResponseBody {
    pub(super) fn new(
        stream: ResponseStream,
        in_flight: InFlight,
        permits: (Permit, Option<Rc<ClientPermit>>),
        is_reclaimable: bool,
    ) -> Self {
        let is_reclaimable = is_reclaimable && !stream.exchange().is_some_and(ActiveExchange::is_open_ended);
        let body = Self { stream, in_flight, is_reclaimable, _permits: permits };
        // The client may not even read the first part.
        body.wait_for_client();
        body
    }

    /// Whether the response has no time limit, as an event stream or a gRPC call.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.stream.exchange().is_some_and(ActiveExchange::is_open_ended)
    }

    /// The use of the connection to the server, unless requests share it.
    #[must_use]
    pub fn connection_use(&self) -> Option<&Arc<ConnectionUse>> {
        self.stream.exchange().and_then(ActiveExchange::connection_use)
    }

    /// Records that the client has read all parts so far.
    fn stop_waiting(&self) {
        if let Some(connection) = self.connection_use().filter(|_| self.is_reclaimable) {
            connection.stop_waiting();
        }
    }

    /// Starts to wait until the client has read a part. How many of its bytes the client has read is unknown here, so
    /// there is a grace period but no minimum rate.
    fn wait_for_client(&self) {
        if self.is_reclaimable
            && !self.stream.is_end_stream()
            && let Some(connection) = self.connection_use()
        {
            connection.wait_for_client(Some(CONTENDED_GRACE));
        }
    }

    /// The server's end of the tunnel, if the server has switched protocols.
    #[must_use]
    pub fn into_tunnel(mut self) -> Option<ServerEnd> {
        let (stream, hold) = self.stream.finish().and_then(ActiveExchange::into_tunnel)?;
        Some(ServerEnd { stream, _request: self, _hold: hold })
    }

    /// The server's authority, for messages.
    #[must_use]
    pub fn server(&self) -> String {
        self.in_flight.pool().server().authority()
    }

    /// Polls the rest of the upload while the client does not read the response.
    ///
    /// # Errors
    /// The client has aborted the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        self.stream.poll_upload(cx)
    }

    fn release_connection(&mut self) {
        if let Some(connection) = self.stream.finish().and_then(ActiveExchange::finish) {
            self.in_flight.pool().connections().release(connection);
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
        this.stop_waiting();
        if this.connection_use().is_some_and(|connection| connection.is_reclaimed()) {
            return Poll::Ready(Some(Err(BodyError::Reclaimed)));
        }
        let mut frame = this.stream.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame {
            trailers::retain(frame, |name| may_be_trailer(name.as_str()));
        }
        match &frame {
            Poll::Ready(None) => this.release_connection(),
            Poll::Ready(Some(Ok(_))) => this.wait_for_client(),
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
            self.release_connection();
        }
    }
}

impl fmt::Debug for ServerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerEnd").finish_non_exhaustive()
    }
}

impl AsyncRead for ServerEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
