//! Errors of requests to servers.

use std::io;
use std::num::NonZeroUsize;

use super::server::ServerSpec;
use crate::body::{BodyError, cause, io_kind};
use crate::http1::ParseError;
use crate::overload::Refusal;
use crate::telemetry::{AttemptOutcome, UpstreamEvent};
use crate::tls::HandshakeFault;

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No connection could be made.
    #[error("can't connect to {server}: {error}")]
    Connect {
        /// The server's authority.
        server: String,
        /// The error of the system or of TLS.
        error: io::Error,
    },
    /// No connection was made within `connect_timeout`.
    #[error("can't connect to {0} in time")]
    ConnectTimeout(String),
    /// `max_connections` are in use, and none was released within `pending_timeout`.
    #[error("no connection to {0} is free")]
    NoFreeConnection(String),
    /// The client has more than a quarter of the connections to the server, which has not responded, and others need one.
    #[error("the connection to {0}, which had not responded, was given to another client")]
    Reclaimed(String),
    /// The client has as many concurrent requests as `max_requests_per_client` allows, or tunnels as `max_tunnels_per_client` does.
    #[error("the client has {max} {noun}, which is the limit (`{key}`)", max = .1, noun = .0.noun(), key = .0.key())]
    ClientLimit(Counted, NonZeroUsize),
    /// The limit of the upstream is reached, and other requests come first.
    #[error("the upstream is overloaded: a request of the class {} was refused ({})", .0.class, .0.reason.name())]
    Overloaded(Refusal),
    /// No server's name has been resolved yet.
    #[error("no server of the upstream {0} has an address")]
    Unresolved(Box<str>),
    /// No response within `response_timeout`.
    #[error("no response from {0} in time")]
    ResponseTimeout(String),
    /// The connection broke, or the response was malformed.
    #[error("no valid response from {server}: {error}")]
    Broken {
        /// The server's authority.
        server: String,
        /// The violation.
        error: ResponseError,
    },
    /// The server switched protocols without a matching handshake.
    #[error("{0} sent a 101 response that does not match the Upgrade of the request")]
    Switched(String),
    /// The server has not enabled extended CONNECT (RFC 8441).
    #[error("{0} does not support WebSockets over HTTP/2")]
    NoTunnels(String),
    /// The framing of the response is ambiguous.
    #[error("the response of {0} has an ambiguous length or an unknown transfer coding")]
    Framing(String),
    /// The request's body is malformed or incomplete.
    #[error("the request's body failed: {0}")]
    RequestBody(BodyError),
    /// The client sent the request's body too slowly.
    #[error("the request's body did not arrive in time")]
    RequestBodyTimeout,
    /// The request's body is larger than the route's `max_body`.
    #[error("the request's body is larger than max_body")]
    RequestBodyTooLarge,
    /// The request came back by the same route to the same target, or too often.
    #[error(
        "request loop: the request came back by the same route to the same target, or for the sixth time, so its upstream \
         leads back to this proxy"
    )]
    Loop,
    /// Base path and target together are not a valid target.
    #[error("can't prefix the path with the server's base path: {0}")]
    Target(http::Error),
}

/// What is counted of each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Requests, until the last byte of the response: `max_requests_per_client`.
    Requests,
    /// Tunnels, from the handshake until both ends have closed: `max_tunnels_per_client`.
    Tunnels,
}

/// Why a response is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// An error of HTTP/2.
    #[error(transparent)]
    Http2(hyper::Error),
    /// The head of an HTTP/1.1 response is malformed.
    #[error(transparent)]
    Malformed(ParseError),
    /// The connection has ended.
    #[error("the connection was closed before the response")]
    Closed,
    /// The connection has failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
}

/// Why a request failed, without the server's name.
#[derive(Debug)]
pub(super) enum Cause {
    /// The connection has ended.
    Closed,
    /// The connection has failed.
    Io(io::Error),
    /// The head of an HTTP/1.1 response is malformed.
    Malformed(ParseError),
    /// The request's body has failed.
    Body(BodyError),
    /// The HTTP/2 connection or stream has failed.
    Http2(hyper::Error),
    /// There was no response in time.
    TooLate,
    /// The server sent nothing, and another client needed the connection.
    Reclaimed,
    /// The server does not support tunnels.
    NoTunnels,
    /// The Host header is no valid authority.
    Target(http::Error),
}

/// A request that got no response over a connection.
#[derive(Debug)]
pub(super) struct SendError {
    pub cause: Cause,
    /// Whether no byte of the request was sent.
    pub is_unsent: bool,
    /// Whether no byte of a response arrived.
    pub is_without_response: bool,
    /// Whether a part of the body still had to arrive from the client.
    pub is_uploading: bool,
}

impl Cause {
    /// Whether the client is the cause.
    pub fn is_caused_by_client(&self) -> bool {
        matches!(self, Self::Body(_) | Self::Reclaimed)
    }
}

impl Counted {
    /// The event of a refused request.
    pub(super) fn refusal(self) -> UpstreamEvent {
        match self {
            Self::Requests => UpstreamEvent::TooManyRequests,
            Self::Tunnels => UpstreamEvent::TooManyTunnels,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Requests => "concurrent requests",
            Self::Tunnels => "open tunnels",
        }
    }

    /// The key of the configuration that bounds it.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Requests => "max_requests_per_client",
            Self::Tunnels => "max_tunnels_per_client",
        }
    }
}

impl From<BodyError> for Cause {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl SendError {
    /// An error after which the request must not be sent again.
    pub fn new(cause: Cause) -> Self {
        Self { cause, is_unsent: false, is_without_response: false, is_uploading: false }
    }
}

/// The server has not agreed to HTTP/2 in the TLS handshake.
#[derive(Debug, thiserror::Error)]
#[error("the server does not speak HTTP/2")]
pub(super) struct NotHttp2;

impl ForwardError {
    /// The error for a failure at this server.
    pub(super) fn new(cause: Cause, server: &ServerSpec) -> Self {
        let broken = |error| Self::Broken { server: server.peer(), error };
        let error = match cause {
            Cause::Http2(error) => error,
            Cause::Closed => return broken(ResponseError::Closed),
            Cause::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Self::ResponseTimeout(server.peer());
            }
            Cause::Io(error) => return broken(ResponseError::Io(error)),
            Cause::Malformed(ParseError::TransferCoding | ParseError::Ambiguous) => {
                return Self::Framing(server.peer());
            }
            Cause::Malformed(error) => return broken(ResponseError::Malformed(error)),
            Cause::Body(error) => return Self::from_body_error(error),
            Cause::Reclaimed => return Self::Reclaimed(server.peer()),
            Cause::TooLate => return Self::ResponseTimeout(server.peer()),
            Cause::NoTunnels => return Self::NoTunnels(server.peer()),
            Cause::Target(error) => return Self::Target(error),
        };
        if io_kind(&error) == Some(io::ErrorKind::TimedOut) {
            Self::ResponseTimeout(server.peer())
        } else {
            broken(ResponseError::Http2(error))
        }
    }

    /// The error for a request's body that could not be read.
    #[must_use]
    pub fn from_body_error(error: BodyError) -> Self {
        match error {
            BodyError::TooLate(_) | BodyError::Reclaimed => Self::RequestBodyTimeout,
            BodyError::Broken(error) if io_kind(&error) == Some(io::ErrorKind::TimedOut) => {
                Self::RequestBodyTimeout
            }
            BodyError::TooLarge => Self::RequestBodyTooLarge,
            error => Self::RequestBody(error),
        }
    }

    /// The error as a word for the access log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect_failed",
            Self::ConnectTimeout(_) => "connect_timeout",
            Self::NoFreeConnection(_) => "no_free_connection",
            Self::Reclaimed(_) => "reclaimed",
            Self::ClientLimit(counted, _) => counted.key(),
            Self::Overloaded(_) => "overloaded",
            Self::Unresolved(_) => "unresolved_name",
            Self::ResponseTimeout(_) => "response_timeout",
            Self::Broken { .. } if self.is_dead_connection() => "connection_lost",
            Self::Broken { .. } => "invalid_response",
            Self::Switched(_) => "switched_protocols",
            Self::NoTunnels(_) => "no_tunnels",
            Self::Framing(_) => "ambiguous_response",
            Self::RequestBody(_) => "request_broken",
            Self::RequestBodyTimeout => "request_stalled",
            Self::RequestBodyTooLarge => "request_too_large",
            Self::Loop => "request_loop",
            Self::Target(_) => "target_too_long",
        }
    }

    /// Whether all connections or requests that the configuration allows are in use.
    #[must_use]
    pub fn is_over_capacity(&self) -> bool {
        matches!(
            self,
            Self::NoFreeConnection(_) | Self::Reclaimed(_) | Self::ClientLimit(..) | Self::Overloaded(_)
        )
    }

    /// The result of the attempt at the server; none if the server was not involved.
    pub(super) fn attempt(&self) -> Option<AttemptOutcome> {
        match self {
            Self::NoFreeConnection(_)
            | Self::ClientLimit(..)
            | Self::Overloaded(_)
            | Self::Unresolved(_)
            | Self::Loop
            | Self::Target(_)
            | Self::NoTunnels(_) => None,
            Self::Connect { .. } | Self::ConnectTimeout(_) => Some(AttemptOutcome::Unreachable),
            Self::ResponseTimeout(_) => Some(AttemptOutcome::TimedOut),
            Self::Broken { .. } | Self::Switched(_) | Self::Framing(_) => Some(AttemptOutcome::Broken),
            Self::Reclaimed(_)
            | Self::RequestBody(_)
            | Self::RequestBodyTimeout
            | Self::RequestBodyTooLarge => Some(AttemptOutcome::Abandoned),
        }
    }

    /// Whether the head of a response arrived, and could not be used.
    pub(super) fn has_head(&self) -> bool {
        matches!(self, Self::Switched(_) | Self::Framing(_))
    }

    /// Whether the connection ended before any byte of a response, as an idle connection that the server has closed.
    pub(super) fn is_dead_connection(&self) -> bool {
        let error = match self {
            Self::Broken { error: ResponseError::Http2(error), .. } => error,
            Self::Broken { error: ResponseError::Closed | ResponseError::Io(_), .. } => return true,
            _ => return false,
        };
        error.is_canceled()
            || error.is_closed()
            // hyper reports a request that was queued on a closed connection as an error of its user.
            || error.is_user()
            || io_kind(error).is_some()
            || cause(error).is_some_and(|error: &h2::Error| error.is_go_away() || is_refused(error))
    }

    /// What may have to be changed in the configuration of `server`. The errors of handshakes say so themselves.
    pub(super) fn hint(&self, server: &ServerSpec) -> Option<&'static str> {
        match self {
            _ if self.is_not_http2() => Some("is `protocol = \"h2\"` right for it?"),
            Self::Broken { error: ResponseError::Malformed(_), .. } if !server.is_tls => {
                Some("if it expects TLS, its URL must begin with https://")
            }
            // With TLS 1.3 a server rejects the certificate of a client after the handshake.
            Self::Broken { error: ResponseError::Io(error), .. } => {
                HandshakeFault::of(error).map(HandshakeFault::cure)
            }
            _ => None,
        }
    }

    /// Whether the server does not speak HTTP/2: it has not agreed to that, or its first frame is malformed.
    pub(super) fn is_not_http2(&self) -> bool {
        match self {
            Self::Connect { error, .. } => {
                error.get_ref().and_then(|error| error.downcast_ref::<NotHttp2>()).is_some()
            }
            Self::Broken { error: ResponseError::Http2(error), .. } => {
                cause(error).is_some_and(|error: &h2::Error| {
                    error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR) && !error.is_remote()
                })
            }
            _ => false,
        }
    }

    /// Whether the server states that it has not processed the request, so that even one that is not idempotent may be
    /// sent again.
    pub(super) fn is_refused(&self) -> bool {
        let Self::Broken { error: ResponseError::Http2(error), .. } = self else { return false };
        cause(error).is_some_and(is_refused)
    }
}

/// Whether the error states that the request was not processed (RFC 9113 §8.7): its stream was refused, or is beyond the
/// last one of a GOAWAY, whatever its reason. h2 reports the streams up to that one as broken with the connection.
fn is_refused(error: &h2::Error) -> bool {
    error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
        || error.is_go_away() && error.is_remote()
}
