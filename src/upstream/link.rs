//! A request's connection to a server, whatever is spoken there.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::{BodyError, RequestBody};
use super::connection_use::ConnectionUse;
use super::driven::Driven;
use super::http2::Lane;
use super::tunnel::Duplex;
use super::wire::{SendError, Wire};

/// A request's connection to a server.
#[derive(Debug)]
pub(super) enum Link {
    /// One of its own.
    Http1(Box<Wire>),
    /// Its part in one.
    Http2(Lane),
}

/// The same once its response has begun.
#[derive(Debug)]
pub(super) enum Answering {
    /// A connection of its own, which goes on while the response is asked for.
    Http1(Box<Wire>),
    /// One with a response that came before its request was whole, which goes on by itself.
    Early(Driven),
    /// A part in one.
    Http2(Lane),
}

impl Link {
    /// A request of this client begins.
    pub fn begin(&self, client: IpAddr) {
        if let Self::Http1(wire) = self {
            wire.connection().begin(client);
        }
    }

    /// Whether it was there before the request.
    pub fn was_kept(&self) -> bool {
        match self {
            Self::Http1(wire) => wire.was_kept(),
            Self::Http2(lane) => lane.was_kept(),
        }
    }

    /// Whether other requests have it as well.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Sends a request, which it takes out of where it stands, and waits for the head of its response. If
    /// nothing of it was sent, it stands there again after a failure. All must be over by `deadline`, the
    /// response's body too.
    pub async fn send(
        self,
        request: &mut Request<RequestBody>,
        deadline: Option<Instant>,
    ) -> Result<(Response<Incoming>, Answering), SendError> {
        match self {
            Self::Http1(wire) => {
                let (response, wire) = wire.send(request, deadline).await?;
                let is_early = wire.is_early();
                let answering =
                    if is_early { Answering::Early(Driven::new(wire)) } else { Answering::Http1(wire) };
                Ok((response, answering))
            }
            Self::Http2(lane) => {
                // Apart, because it is large.
                let sent = Box::pin(lane.send(request, deadline)).await;
                sent.map(|(response, lane)| (response, Answering::Http2(lane)))
            }
        }
    }
}

impl Answering {
    /// The next part of the response's body.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Http1(wire) => {
                wire.drive(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx).map_err(BodyError::Broken))
            }
            Self::Early(_) => Pin::new(incoming).poll_frame(cx).map_err(BodyError::Broken),
            Self::Http2(lane) => lane.poll_body(cx, incoming),
        }
    }

    /// Who uses the connection, if no other request does.
    pub fn connection(&self) -> Option<&Arc<ConnectionUse>> {
        match self {
            Self::Http1(wire) => Some(wire.connection()),
            Self::Early(driven) => Some(driven.connection()),
            Self::Http2(_) => None,
        }
    }

    /// Whether the response may be silent without a time limit.
    pub fn is_open_ended(&self) -> bool {
        match self {
            Self::Http1(wire) => wire.is_open_ended(),
            Self::Early(driven) => driven.is_open_ended(),
            Self::Http2(lane) => lane.is_open_ended(),
        }
    }

    /// What is left after the server has switched protocols.
    pub fn leave(&mut self) -> Option<Box<dyn Duplex>> {
        match self {
            Self::Http1(wire) => wire.leave().map(|stream| Box::new(stream) as Box<dyn Duplex>),
            // The request for a tunnel has no body.
            Self::Early(_) => None,
            Self::Http2(lane) => lane.leave().map(|stream| Box::new(TokioIo::new(stream)) as Box<dyn Duplex>),
        }
    }

    /// The connection after the end of the response, if it is to be had for the next request.
    pub fn into_wire(self) -> Option<Box<Wire>> {
        match self {
            Self::Http1(wire) => Some(wire),
            Self::Early(driven) => driven.stop(),
            Self::Http2(lane) => {
                lane.finish();
                None
            }
        }
    }
}
