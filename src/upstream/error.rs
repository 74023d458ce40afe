//! What can go wrong on the way to a server.

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;

use http::uri::InvalidUri;

use super::body::BodyError;
use super::spec::ServerSpec;
use super::upload::BodyFailure;
use crate::http1::ParseError;
use crate::telemetry::Attempt;

/// Why no response came.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No connection could be made.
    #[error("can't connect to {server}: {error}")]
    Connect {
        /// Which server.
        server: String,
        /// Why.
        error: io::Error,
    },
    /// No connection was made in time.
    #[error("no connection to {0} in time")]
    ConnectTimeout(String),
    /// Every connection that may be is in use, and none came free in time.
    #[error("no connection to {0} is free")]
    Full(String),
    /// The client has as many requests at the upstream as it may.
    #[error("{0} requests of this client are under way")]
    ClientLimit(NonZeroUsize),
    /// The name of no server has been resolved yet.
    #[error("no server of the upstream {0} has an address")]
    Unresolved(Box<str>),
    /// No response in time.
    #[error("no response from {0} in time")]
    ResponseTimeout(String),
    /// The connection broke, or what came was no HTTP.
    #[error("no valid response from {server}: {error}")]
    Broken {
        /// Which server.
        server: String,
        /// Why.
        error: ResponseError,
    },
    /// It switched protocols though nobody had asked.
    #[error("{0} switched protocols unasked")]
    Switched(String),
    /// It speaks HTTP/2, and has not said that it takes tunnels over that.
    #[error("{0} takes no WebSockets over HTTP/2")]
    NoTunnels(String),
    /// Its answer could be read in more than one way.
    #[error("{0} gave an answer with an ambiguous end, or in a transfer coding that is not understood")]
    Framing(String),
    /// The client's own body failed on the way.
    #[error("the request's body failed on the way: {0}")]
    RequestBody(BodyError),
    /// The client's own body did not come in time.
    #[error("the request's body did not come in time")]
    RequestBodyTimeout,
    /// The client's own body has more bytes than the route lets pass.
    #[error("the request's body is larger than it may be")]
    RequestBodyTooLarge,
    /// The request has been forwarded by this proxy before, and would be forwarded for ever.
    #[error("the request came back to the route that had forwarded it: its upstream leads to this proxy")]
    Loop,
    /// The path does not fit behind the server's own.
    #[error("the path can't be put behind the server's own: {0}")]
    Target(InvalidUri),
}

/// Why a response can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// Over HTTP/2.
    #[error(transparent)]
    Http2(hyper::Error),
    /// Its head is no HTTP/1.1.
    #[error(transparent)]
    Malformed(ParseError),
    /// Its connection has ended.
    #[error("the connection was closed before the response")]
    Closed,
    /// Its connection has failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
}

/// What has gone wrong with a request that was sent.
#[derive(Debug)]
pub(super) enum Cause {
    /// The connection has ended.
    Closed,
    /// The connection has failed.
    Io(io::Error),
    /// The response is no HTTP/1.1.
    Malformed(ParseError),
    /// The request's body has failed.
    Body(BodyError),
    /// The connection over HTTP/2, or one of the bodies.
    Http2(hyper::Error),
    /// The request's body, and what came of it where a task of the library sends it.
    Upload(BodyFailure, hyper::Error),
    /// There was no response in time.
    TooLate,
    /// The client sends too slowly, and others needed the connection.
    Reclaimed,
    /// The server takes no tunnels.
    NoTunnels,
    /// The Host header does not fit into a target.
    Target(InvalidUri),
}

/// Why a request got no response.
#[derive(Debug)]
pub(super) struct SendError {
    pub cause: Cause,
    /// Whether nothing of the request was sent.
    pub is_unsent: bool,
    /// Whether not even a part of a response came.
    pub is_unanswered: bool,
}

impl Cause {
    /// Whether the client is the cause.
    pub fn is_by_client(&self) -> bool {
        matches!(self, Self::Body(_) | Self::Upload(..) | Self::Reclaimed)
    }
}

impl SendError {
    /// One after which the request is not to be sent again.
    pub fn of(cause: Cause) -> Self {
        Self { cause, is_unsent: false, is_unanswered: false }
    }
}

/// A server that has not agreed to HTTP/2.
#[derive(Debug, thiserror::Error)]
#[error("the server does not speak HTTP/2")]
pub(super) struct OtherProtocol;

impl ForwardError {
    pub(super) fn of(cause: Cause, server: &ServerSpec) -> Self {
        let broken = |error| Self::Broken { server: server.authority(), error };
        let error = match cause {
            Cause::Http2(error) => error,
            Cause::Closed => return broken(ResponseError::Closed),
            Cause::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Self::ResponseTimeout(server.authority());
            }
            Cause::Io(error) => return broken(ResponseError::Io(error)),
            Cause::Malformed(ParseError::TransferCoding | ParseError::Ambiguous) => {
                return Self::Framing(server.authority());
            }
            Cause::Malformed(error) => return broken(ResponseError::Malformed(error)),
            Cause::Body(error) => return Self::of_body(error),
            Cause::Upload(BodyFailure::TooLarge, _) => return Self::RequestBodyTooLarge,
            Cause::Upload(BodyFailure::TooLate, _) | Cause::Reclaimed => return Self::RequestBodyTimeout,
            Cause::Upload(BodyFailure::Broken, error) => return Self::RequestBody(BodyError::Broken(error)),
            Cause::TooLate => return Self::ResponseTimeout(server.authority()),
            Cause::NoTunnels => return Self::NoTunnels(server.authority()),
            Cause::Target(error) => return Self::Target(error),
        };
        if io_kind(&error) == Some(io::ErrorKind::TimedOut) {
            Self::ResponseTimeout(server.authority())
        } else {
            broken(ResponseError::Http2(error))
        }
    }

    /// For a client's own body that was read here.
    #[must_use]
    pub fn of_body(error: BodyError) -> Self {
        match error.flaw() {
            BodyFailure::TooLate => Self::RequestBodyTimeout,
            BodyFailure::TooLarge => Self::RequestBodyTooLarge,
            BodyFailure::Broken => Self::RequestBody(error),
        }
    }

    /// It in a word, for the access log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect_failed",
            Self::ConnectTimeout(_) => "connect_timeout",
            Self::Full(_) => "no_free_connection",
            Self::ClientLimit(_) => "max_requests_per_client",
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

    /// What it says of an attempt at a server; nothing if there was none.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::Full(_)
            | Self::ClientLimit(_)
            | Self::Unresolved(_)
            | Self::Loop
            | Self::Target(_)
            | Self::NoTunnels(_) => None,
            Self::Connect { .. } | Self::ConnectTimeout(_) => Some(Attempt::Unreachable),
            Self::ResponseTimeout(_) => Some(Attempt::Late),
            Self::Broken { .. } | Self::Switched(_) | Self::Framing(_) => Some(Attempt::Broken),
            Self::RequestBody(_) | Self::RequestBodyTimeout | Self::RequestBodyTooLarge => {
                Some(Attempt::Abandoned)
            }
        }
    }

    /// Whether the head of an answer came, and could not be used.
    pub(super) fn has_head(&self) -> bool {
        matches!(self, Self::Switched(_) | Self::Framing(_))
    }

    /// Whether the connection ended before anything was answered, as one does that the server closed while it
    /// was kept.
    pub(super) fn is_dead_connection(&self) -> bool {
        let error = match self {
            Self::Broken { error: ResponseError::Http2(error), .. } => error,
            Self::Broken { error: ResponseError::Closed | ResponseError::Io(_), .. } => return true,
            _ => return false,
        };
        error.is_canceled()
            || error.is_closed()
            // What waited in a connection that ended: the library says that its user has dropped it.
            || error.is_user()
            || io_kind(error).is_some()
            || cause(error).is_some_and(|error: &h2::Error| error.is_go_away() || is_refused(error))
    }

    /// What may be wrong with the configuration of `server` if this is how its requests fail; to be put behind it.
    pub(super) fn hint(&self, server: &ServerSpec) -> &'static str {
        match self {
            _ if self.is_other_protocol() => "; is `protocol = \"h2\"` right for it?",
            Self::Broken { error: ResponseError::Malformed(_), .. } if !server.is_tls => {
                "; if it expects TLS, its URL must begin with https://"
            }
            _ => "",
        }
    }

    /// Whether the server speaks something else than HTTP/2: it has not agreed to that, or what it says is none.
    pub(super) fn is_other_protocol(&self) -> bool {
        match self {
            Self::Connect { error, .. } => {
                error.get_ref().and_then(|error| error.downcast_ref::<OtherProtocol>()).is_some()
            }
            Self::Broken { error: ResponseError::Http2(error), .. } => {
                cause(error).is_some_and(|error: &h2::Error| {
                    error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR) && !error.is_remote()
                })
            }
            _ => false,
        }
    }

    /// Whether the server has said that it has not looked at the request, so that any may be sent again.
    pub(super) fn is_refused(&self) -> bool {
        let Self::Broken { error: ResponseError::Http2(error), .. } = self else { return false };
        cause(error).is_some_and(is_refused)
    }
}

/// Whether it says that nobody has looked at the request (RFC 9113 §8.7). A connection that ends in order says so of
/// those requests alone that it leaves out; one that ends for an error may have ended over any.
fn is_refused(error: &h2::Error) -> bool {
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => error.is_reset(),
        Some(h2::Reason::NO_ERROR) => error.is_go_away() && error.is_remote(),
        _ => false,
    }
}

impl BodyError {
    /// What it says of a request's body.
    pub(super) fn flaw(&self) -> BodyFailure {
        match self {
            Self::Broken(error) if io_kind(error) == Some(io::ErrorKind::TimedOut) => BodyFailure::TooLate,
            Self::Broken(_) | Self::BrokenOff | Self::Malformed(_) | Self::Lost(_) => BodyFailure::Broken,
            Self::TooLate(_) | Self::Reclaimed => BodyFailure::TooLate,
            Self::TooLarge => BodyFailure::TooLarge,
        }
    }

    /// In a word, what went wrong with the body of an answer.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooLate(_) => "response_stalled",
            Self::Reclaimed => "client_too_slow",
            Self::Broken(error) if io_kind(error) == Some(io::ErrorKind::TimedOut) => "response_stalled",
            Self::Broken(_) | Self::BrokenOff | Self::Malformed(_) | Self::Lost(_) | Self::TooLarge => {
                "response_broken"
            }
        }
    }
}

fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    cause::<io::Error>(error).map(io::Error::kind)
}

/// The first cause of this type.
fn cause<E: Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
