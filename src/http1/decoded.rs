//! The parts of a decoded body, and why one can't be decoded.

use bytes::Bytes;
use http::HeaderMap;

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Bytes of it.
    Data(Bytes),
    /// Its end, with its trailers if it has any.
    End(Option<HeaderMap>),
}

/// Why a body can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// A chunk is malformed.
    #[error("a chunk of the body is malformed")]
    Chunk,
    /// The trailers are malformed.
    #[error("the trailers are malformed")]
    Trailers,
    /// The connection has ended before the body.
    #[error("the connection ended before the body")]
    Incomplete,
}
