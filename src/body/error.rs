//! Errors of bodies.

use std::error::Error;
use std::io;
use std::task::Poll;

use bytes::Bytes;
use hyper::body::Frame;

use crate::http1::BodyFault;
use crate::socket::TooLate;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Its HTTP/2 stream or connection has failed.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// It is malformed, or its HTTP/1.1 connection has ended.
    #[error("{0}")]
    Malformed(#[from] BodyFault),
    /// Its connection has failed.
    #[error("the connection failed: {0}")]
    Lost(#[from] io::Error),
    /// Its stream was reset, or its sender dropped.
    #[error("the body ended early")]
    Aborted,
    /// Its next part did not arrive in time.
    #[error("the next part of the body did not arrive in time")]
    TooLate(#[from] TooLate),
    /// Its client has more than a quarter of the connections to the server, and others need one.
    #[error("its connection to the server was given to another client")]
    Reclaimed,
    /// The units of its request are used up.
    #[error("the units of the request are used up")]
    Stopped,
    /// It is larger than allowed.
    #[error("the body is larger than allowed")]
    TooLarge,
}

/// The next part of a body, if it has arrived; none at its end.
pub type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl BodyError {
    /// The error of a response's body as a word for the access log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooLate(_) => "response_stalled",
            Self::Reclaimed => "reclaimed",
            Self::Stopped => "stopped",
            Self::Broken(error) if io_kind(error) == Some(io::ErrorKind::TimedOut) => "response_stalled",
            Self::Broken(_) | Self::Aborted | Self::Malformed(_) | Self::Lost(_) | Self::TooLarge => {
                "response_broken"
            }
        }
    }
}

/// The kind of the first error of the system in the chain of sources.
pub(crate) fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    cause::<io::Error>(error).map(io::Error::kind)
}

/// The first error of this type in the chain of sources.
pub(crate) fn cause<E: Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
