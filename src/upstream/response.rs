//! The body of a response that is forwarded to the client, and the tunnel after a protocol switch.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_counts::ClientPermits;
use super::connection::{ActiveExchange, Duplex, TunnelHold};
use super::detached::ResponseStream;
use super::overload::HeldPlace;
use super::pool::InFlight;
use super::pool::connection_use::{CONTENDED_GRACE, ConnectionUse};
use super::server::ServerSpec;
use crate::body::{BodyError, PolledFrame, may_be_trailer, retain_trailers};
use crate::limiter::Permit;

/// The body of a response as it streams in. After the last byte the connection returns to its pool. If the body is
/// dropped before, the connection is closed, or a task reads the rest if the request holds concurrency slots.
#[derive(Debug)]
pub struct ResponseBody {
    stream: ResponseStream,
    in_flight: InFlight,
    reclaim_rule: ReclaimRule,
    _held: Held,
}

/// What a request holds until its end: the permit of its limits, its part of the bounds for each client, and its place under the limit
/// of an upstream with `overload`.
pub(super) type Held = (Permit, ClientPermits, Option<HeldPlace>);

/// What bounds the time of a response while requests of other clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReclaimRule {
    /// The server's, and the client's as far as its connection over HTTP/1.1 measures it.
    Server,
    /// The server's and the client's.
    Both,
    /// Neither: the response is open-ended.
    Lasting,
}

/// The server's end of a tunnel after a protocol switch. The request for the tunnel, with its limits and counts, lasts as
/// long as this value.
pub struct ServerEnd {
    stream: Box<dyn Duplex>,
    /// Whether the task that uses the tunnel is known.
    has_waker: bool,
    _request: ResponseBody,
    hold: TunnelHold,
}

impl ResponseBody {
    pub(super) fn new(stream: ResponseStream, in_flight: InFlight, held: Held, is_reclaimable: bool) -> Self {
        let reclaim_rule = match stream.exchange().is_some_and(ActiveExchange::is_open_ended) {
            true => ReclaimRule::Lasting,
            false if is_reclaimable => ReclaimRule::Both,
            false => ReclaimRule::Server,
        };
        let body = Self { stream, in_flight, reclaim_rule, _held: held };
        // The client may not even read the first part.
        body.record_part();
        body
    }

    /// Whether nothing of the body is missing. After the last byte of a known length, the frame that ends an HTTP/2 stream may still
    /// come.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.stream.is_end_stream() || self.stream.size_hint().exact() == Some(0)
    }

    /// Whether the response has no time limit, as an event stream or a gRPC call.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.stream.exchange().is_some_and(ActiveExchange::is_open_ended)
    }

    /// The use of the connection or stream to the server, until the end of the body.
    #[must_use]
    pub fn connection_use(&self) -> Option<&Arc<ConnectionUse>> {
        self.stream.exchange().map(ActiveExchange::connection_use)
    }

    /// Records a part of the server, and starts to wait until the client has read it. How many of its bytes the client has
    /// read is unknown here, so there is a grace period but no minimum rate.
    fn record_part(&self) {
        let Some(connection) = self.connection_use() else { return };
        match self.reclaim_rule {
            ReclaimRule::Lasting => connection.record_lasting(),
            ReclaimRule::Both if !self.stream.is_end_stream() => {
                connection.wait_for_client(Some(CONTENDED_GRACE));
            }
            ReclaimRule::Both | ReclaimRule::Server => connection.record_part(),
        }
    }

    /// The server's end of the tunnel, if the server has switched protocols.
    #[must_use]
    pub fn into_tunnel(mut self) -> Option<ServerEnd> {
        let (stream, hold) = self.stream.finish().and_then(ActiveExchange::into_tunnel)?;
        hold.connection_use().record_lasting();
        Some(ServerEnd { stream, has_waker: false, _request: self, hold })
    }

    /// Ends the exchange with the server, also if it would continue without its client.
    pub fn cancel(mut self) {
        self.stream.cancel();
    }

    /// The server that has sent the response.
    #[must_use]
    pub fn server_spec(&self) -> &ServerSpec {
        self.in_flight.pool().server()
    }

    /// The server's authority, for messages.
    #[must_use]
    pub fn server(&self) -> String {
        self.in_flight.pool().server().peer()
    }

    /// Polls the rest of the upload while the client does not read the response. Fails if the client has aborted the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        self.stream.poll_upload(cx)
    }

    fn release_connection(&mut self) {
        if let Some(connection) = self.stream.finish().and_then(ActiveExchange::finish) {
            self.in_flight.pool().connections().release(connection);
        }
    }
}

/// The parts of `impl Body` that a body has in common with the one in its field.
macro_rules! delegate_body {
    ($field:ident) => {
        type Data = bytes::Bytes;
        type Error = $crate::body::BodyError;

        fn is_end_stream(&self) -> bool {
            self.$field.is_end_stream()
        }

        fn size_hint(&self) -> hyper::body::SizeHint {
            self.$field.size_hint()
        }
    };
}
pub(crate) use delegate_body;

impl Body for ResponseBody {
    delegate_body!(stream);

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        if let Some(connection) = this.connection_use() {
            // The client has read all parts so far.
            connection.stop_waiting();
            if connection.is_reclaimed() {
                return Poll::Ready(Some(Err(BodyError::Reclaimed)));
            }
        }
        let mut frame = this.stream.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame {
            // Trailers must not change what the headers have decided, such as framing or credentials.
            retain_trailers(frame, |name| may_be_trailer(name.as_str()));
        }
        match &frame {
            // The next request may use the connection while the client still reads this response.
            Poll::Ready(None) => this.release_connection(),
            Poll::Ready(Some(Ok(_))) => this.record_part(),
            _ => {}
        }
        frame
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // A body of known length has ended with its last byte, and may be dropped without another poll.
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

impl ServerEnd {
    /// Polls the stream, unless other requests have reclaimed its connection.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut Box<dyn Duplex>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let connection = self.hold.connection_use();
        if !std::mem::replace(&mut self.has_waker, true) {
            connection.set_waker(cx.waker().clone());
        }
        if connection.is_reclaimed() {
            return Poll::Ready(Err(io::Error::other(BodyError::Reclaimed)));
        }
        let polled = poll(Pin::new(&mut self.stream), cx);
        if polled.is_ready() {
            connection.record_lasting();
        }
        polled
    }
}

impl AsyncRead for ServerEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(cx, |stream, cx| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
