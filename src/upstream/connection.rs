//! A request's connection to a server, over either version of HTTP.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::UpstreamRequest;
use super::body::BodyError;
use super::connection_limit::ConnectionPermit;
use super::connection_use::ConnectionUse;
use super::early_upload::EarlyUpload;
use super::error::SendError;
use super::http1::Http1Connection;
use super::http2::Http2Stream;
use super::tunnel::Duplex;
use crate::http1::ResponseHead;

/// A request's connection to a server.
#[derive(Debug)]
pub(super) enum Connection {
    /// One of its own.
    Http1(Box<Http1Connection>),
    /// Its stream in one.
    Http2(Box<Http2Stream>),
}

/// The same once its response has begun.
#[derive(Debug)]
pub(super) enum ActiveExchange {
    /// A connection of its own.
    Http1(Box<Http1Connection>),
    /// One with a response that came before its request was sent, which a task goes on with.
    Early(EarlyUpload),
    /// A stream in one, with its response.
    Http2(Box<Http2Stream>, Box<Incoming>),
}

/// What a tunnel holds at the server until its end.
#[derive(Debug)]
pub(super) enum TunnelHold {
    /// A connection's right to be there.
    Connection(#[expect(dead_code, reason = "held until it is dropped")] ConnectionPermit),
    /// A stream in a connection.
    Stream(#[expect(dead_code, reason = "held until it is dropped")] Box<Http2Stream>),
}

impl Connection {
    /// A request of this client begins.
    pub fn begin(&self, client: IpAddr) {
        if let Self::Http1(connection) = self {
            connection.connection().begin(client);
        }
    }

    /// Whether it was there before the request.
    pub fn was_kept(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.was_kept(),
            Self::Http2(lane) => lane.was_kept(),
        }
    }

    /// Whether other requests have it as well.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Sends a request and waits for the head of its response. All must be over by `deadline`, the response's body too.
    /// `polls_upload` says that the caller calls [`ActiveExchange::poll_upload`] while it can't take the response.
    ///
    /// # Errors
    /// When there is no response. The head of the request stays as it is.
    pub async fn send(
        self,
        request: &mut UpstreamRequest,
        deadline: Option<Instant>,
        polls_upload: bool,
    ) -> Result<(ResponseHead, ActiveExchange), SendError> {
        match self {
            Self::Http1(mut connection) => {
                let head = connection.send(request, deadline).await?;
                let is_early = !polls_upload && connection.is_uploading();
                let exchange = if is_early {
                    ActiveExchange::Early(EarlyUpload::start(connection))
                } else {
                    ActiveExchange::Http1(connection)
                };
                Ok((head, exchange))
            }
            Self::Http2(lane) => {
                // Boxed because it is large.
                let (head, incoming, lane) = Box::pin(lane.send(request, deadline)).await?;
                Ok((head, ActiveExchange::Http2(lane, incoming)))
            }
        }
    }
}

impl ActiveExchange {
    /// The next part of the response's body. What is still to be sent of the request goes on as well.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Http1(connection) => match connection.poll_upload(cx) {
                Ok(()) => connection.poll_frame(cx),
                Err(error) => Poll::Ready(Some(Err(error))),
            },
            Self::Early(upload) => upload.poll_frame(cx),
            Self::Http2(lane, incoming) => lane.poll_body(cx, incoming),
        }
    }

    /// Goes on with what is still to be sent of the request, while no more of the response can be taken.
    ///
    /// # Errors
    /// When the client has broken off the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        match self {
            Self::Http1(connection) => connection.poll_upload(cx),
            // These go on by themselves.
            Self::Early(_) | Self::Http2(..) => Ok(()),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_end_stream(),
            Self::Early(upload) => upload.is_end_stream(),
            Self::Http2(_, incoming) => incoming.is_end_stream(),
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection) => connection.size_hint(),
            Self::Early(upload) => upload.ask(Http1Connection::size_hint).unwrap_or(SizeHint::with_exact(0)),
            Self::Http2(_, incoming) => incoming.size_hint(),
        }
    }

    /// Who uses the connection, if no other request does.
    pub fn connection(&self) -> Option<&Arc<ConnectionUse>> {
        match self {
            Self::Http1(connection) => Some(connection.connection()),
            Self::Early(upload) => Some(upload.connection()),
            Self::Http2(..) => None,
        }
    }

    /// Whether the response may be silent without a time limit.
    pub fn is_open_ended(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_open_ended(),
            Self::Early(upload) => upload.ask(Http1Connection::is_open_ended).unwrap_or(false),
            Self::Http2(lane, _) => lane.is_open_ended(),
        }
    }

    /// The stream after the server has switched protocols, and what it holds.
    pub fn into_switched(self) -> Option<(Box<dyn Duplex>, TunnelHold)> {
        match self {
            Self::Http1(connection) => {
                let (stream, place) = connection.into_switched()?;
                Some((Box::new(stream), TunnelHold::Connection(place)))
            }
            // The request for a tunnel has no body.
            Self::Early(_) => None,
            Self::Http2(mut lane, _) => {
                let tunnel = lane.leave()?;
                Some((Box::new(TokioIo::new(tunnel)), TunnelHold::Stream(lane)))
            }
        }
    }

    /// The connection after the end of the response, if it can be kept for the next request.
    pub fn into_kept(self) -> Option<Box<Http1Connection>> {
        match self {
            Self::Http1(connection) => Some(connection),
            Self::Early(upload) => upload.stop(),
            Self::Http2(mut lane, _) => {
                lane.finish();
                None
            }
        }
    }
}
