//! Parts of a decoded body, and decoding errors.

use bytes::Bytes;
use http::HeaderMap;

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Bytes of the body.
    Data(Bytes),
    /// The end of the body, with its trailers if there are any.
    End(Option<HeaderMap>),
}

/// Why a body can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The size, extension or end of a chunk is malformed.
    #[error("malformed chunk in the body")]
    Chunk,
    /// The chunks have too little data for their sizes and extensions.
    #[error("too little data for the sizes and extensions of the chunks of the body")]
    Overhead,
    /// The trailers are malformed or too large.
    #[error("malformed or too large trailers")]
    Trailers,
    /// The connection was closed before the end of the body.
    #[error("connection closed before the end of the body")]
    Incomplete,
}
