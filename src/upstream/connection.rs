//! A request's connection to a server, over HTTP/1.1 or HTTP/2.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::SizeHint;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::error::SendError;
use super::http1::Http1Connection;
use super::http1::early_upload::EarlyUpload;
use super::http2::Http2Stream;
use super::message::{ExchangeTimeouts, UpstreamRequest};
use super::pool::connection_limit::ConnectionPermit;
use super::pool::connection_use::ConnectionUse;
use crate::body::{BodyError, PolledFrame};
use crate::boxed::rare;
use crate::http1::ResponseHead;

/// A request's connection to a server.
#[derive(Debug)]
pub(super) enum Connection {
    /// An HTTP/1.1 connection, used by one request at a time.
    Http1(Box<Http1Connection>),
    /// A stream in an HTTP/2 connection.
    Http2(Box<Http2Stream>),
}

/// A connection whose response has started.
#[derive(Debug)]
pub(super) enum ActiveExchange {
    /// An HTTP/1.1 connection, used by one request at a time.
    Http1(Box<Http1Connection>),
    /// An HTTP/1.1 connection while a task sends the rest of the request.
    Early(EarlyUpload),
    /// A stream in an HTTP/2 connection.
    Http2(Box<Http2Stream>),
}

/// A stream of bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// The permit or stream that a tunnel to a server holds until its end.
#[derive(Debug)]
pub(super) enum TunnelHold {
    /// The permit of its connection.
    Connection(ConnectionPermit),
    /// The stream in a shared connection.
    Stream(Box<Http2Stream>),
}

impl TunnelHold {
    /// The use of the connection or stream.
    pub fn connection_use(&self) -> &Arc<ConnectionUse> {
        match self {
            Self::Connection(permit) => permit.connection_use(),
            Self::Stream(stream) => stream.connection_use(),
        }
    }
}

impl Connection {
    /// Starts a request of this client, which may hold slots of a concurrency limit. `timeouts` apply to the request, to the head of
    /// its response and to the response's body.
    pub fn start(&mut self, client: IpAddr, has_slots: bool, timeouts: ExchangeTimeouts) {
        let connection_use = match self {
            Self::Http1(connection) => connection.start(timeouts),
            Self::Http2(stream) => stream.start(timeouts),
        };
        connection_use.start(client, has_slots);
    }

    /// Whether the connection existed before the request.
    pub fn is_reused(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_reused(),
            Self::Http2(stream) => stream.is_reused(),
        }
    }

    /// Whether other requests may use the connection at the same time.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Sends a request that was started and waits for the head of the response. `polls_upload` says that the caller calls [`ActiveExchange::poll_upload`] while its client does not read the response. Without a response
    /// the request's head is unchanged, and its body keeps what can be sent again.
    pub async fn send(
        self,
        request: &mut UpstreamRequest,
        polls_upload: bool,
    ) -> Result<(ResponseHead, ActiveExchange), SendError> {
        match self {
            Self::Http1(mut connection) => {
                let head = connection.send(request).await?;
                let is_early = !polls_upload && connection.is_uploading();
                let exchange = if is_early {
                    ActiveExchange::Early(EarlyUpload::start(connection))
                } else {
                    ActiveExchange::Http1(connection)
                };
                Ok((head, exchange))
            }
            Self::Http2(stream) => {
                let (head, stream) = rare(stream.send(request)).await?;
                Ok((head, ActiveExchange::Http2(stream)))
            }
        }
    }
}

impl ActiveExchange {
    /// Polls the next part of the response's body, and the rest of the upload.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            Self::Http1(connection) => match connection.poll_upload(cx) {
                Ok(()) => connection.poll_frame(cx),
                Err(error) => Poll::Ready(Some(Err(error))),
            },
            Self::Early(upload) => upload.poll_frame(cx),
            Self::Http2(stream) => stream.poll_body(cx),
        }
    }

    /// Polls the rest of the upload while the client does not read the response. Fails if the client has aborted the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        match self {
            Self::Http1(connection) => connection.poll_upload(cx),
            // Separate tasks send these uploads.
            Self::Early(_) | Self::Http2(_) => Ok(()),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_end_stream(),
            Self::Early(upload) => upload.is_end_stream(),
            Self::Http2(stream) => stream.is_end_stream(),
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection) => connection.size_hint(),
            Self::Early(upload) => upload.read(Http1Connection::size_hint).unwrap_or(SizeHint::with_exact(0)),
            Self::Http2(stream) => stream.size_hint(),
        }
    }

    /// The use of the connection or stream.
    pub fn connection_use(&self) -> &Arc<ConnectionUse> {
        match self {
            Self::Http1(connection) => connection.connection_use(),
            Self::Early(upload) => upload.connection_use(),
            Self::Http2(stream) => stream.connection_use(),
        }
    }

    /// When the end of the request was sent, if that was before the head of the response.
    pub fn sent_at(&self) -> Option<Instant> {
        match self {
            Self::Http1(connection) => connection.sent_at(),
            Self::Early(_) => None,
            Self::Http2(stream) => stream.sent_at(),
        }
    }

    /// Whether the response may pause without a time limit.
    pub fn is_open_ended(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_open_ended(),
            Self::Early(upload) => upload.read(Http1Connection::is_open_ended).unwrap_or(false),
            Self::Http2(stream) => stream.is_open_ended(),
        }
    }

    /// The stream of bytes after the server has switched protocols, and what it holds.
    pub fn into_tunnel(self) -> Option<(Box<dyn Duplex>, TunnelHold)> {
        match self {
            Self::Http1(connection) => {
                let (stream, permit) = connection.into_tunnel()?;
                Some((Box::new(stream), TunnelHold::Connection(permit)))
            }
            // A handshake has no body.
            Self::Early(_) => None,
            Self::Http2(mut stream) => {
                let tunnel = stream.take_tunnel()?;
                Some((Box::new(TokioIo::new(tunnel)), TunnelHold::Stream(stream)))
            }
        }
    }

    /// The connection after the end of the response, unless requests share it.
    pub fn finish(self) -> Option<Box<Http1Connection>> {
        match self {
            Self::Http1(connection) => Some(connection),
            Self::Early(upload) => upload.stop(),
            Self::Http2(mut stream) => {
                stream.finish();
                None
            }
        }
    }
}
