//! Parts of a decoded body, its trailers (RFC 9112 §7.1.2), and decoding errors.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;

/// The most bytes of the trailers of a body, with the empty line.
const MAX_TRAILERS: usize = 16 * 1024;
/// The most lines of the trailers of a body.
const MAX_TRAILER_LINES: usize = 100;

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

/// What follows the last chunk of a body.
pub(super) enum Trailers {
    /// An empty line.
    None,
    /// Lines, and an empty line.
    Lines(HeaderMap),
}

impl Trailers {
    /// Takes the trailers out of the buffer: an empty line, or lines that end with CRLF CRLF; none if more bytes are needed.
    pub fn take(buffer: &mut BytesMut) -> Result<Option<Self>, BodyFault> {
        if buffer.starts_with(b"\r\n") {
            buffer.advance(2);
            return Ok(Some(Self::None));
        }
        // A bare CR, which other parsers may read as a line end.
        if matches!(&buffer[..], [b'\r', other, ..] if *other != b'\n') {
            return Err(BodyFault::Trailers);
        }
        let Some(end) = memmem::find(buffer, b"\r\n\r\n") else {
            return if buffer.len() < MAX_TRAILERS { Ok(None) } else { Err(BodyFault::Trailers) };
        };
        if end + 4 > MAX_TRAILERS {
            return Err(BodyFault::Trailers);
        }
        parse(&buffer.split_to(end + 4)).map(|lines| Some(Self::Lines(lines)))
    }
}

fn parse(text: &[u8]) -> Result<HeaderMap, BodyFault> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_TRAILER_LINES];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(text, &mut lines) else {
        return Err(BodyFault::Trailers);
    };
    let mut trailers = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| BodyFault::Trailers)?;
        trailers.append(name, HeaderValue::from_bytes(line.value).map_err(|_| BodyFault::Trailers)?);
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Result<Option<usize>, BodyFault> = Err(BodyFault::Trailers);

    /// The number of lines, wherever the text is split into reads; none if it is incomplete.
    fn lines(text: &str) -> Result<Option<usize>, BodyFault> {
        let lines = |piece| {
            let mut buffer = BytesMut::new();
            for piece in text.as_bytes().chunks(piece) {
                buffer.extend_from_slice(piece);
                match Trailers::take(&mut buffer)? {
                    None => {}
                    Some(Trailers::None) => return Ok(Some(0)),
                    Some(Trailers::Lines(lines)) => return Ok(Some(lines.len())),
                }
            }
            Ok(None)
        };
        let whole = lines(text.len());
        // A long text is cut only near its end.
        let pieces = if text.len() < 2048 { 1..2 } else { text.len() - 4..text.len() };
        for piece in pieces {
            assert_eq!(lines(piece), whole, "{piece}");
        }
        whole
    }

    #[test]
    fn trailers_are_bounded_however_they_are_split() {
        for (over, outcome) in (0..6).map(|over| (over, if over == 0 { Ok(Some(1)) } else { FAULT })) {
            let long = format!("X: {}\r\n\r\n", "y".repeat(MAX_TRAILERS + over - 7));
            assert_eq!((long.len(), lines(&long)), (MAX_TRAILERS + over, outcome), "{over} too many");
        }
        let many = |count: usize| lines(&("X: y\r\n".repeat(count) + "\r\n"));
        assert_eq!(
            [0, 1, MAX_TRAILER_LINES].map(many),
            [0, 1, MAX_TRAILER_LINES].map(|count| Ok(Some(count)))
        );
        assert_eq!(many(MAX_TRAILER_LINES + 1), FAULT);
    }

    /// RFC 9112 §7.1.2.
    #[test]
    fn malformed_trailers_are_rejected() {
        assert_eq!(lines("X: y\n\r\n"), Ok(None), "trailers end with two CRLFs");
        for malformed in [
            "X\r\n",
            "X : y\r\n",
            " X: y\r\n",
            ": y\r\n",
            "X: y\r\n z\r\n",
            "X: \0\r\n",
            "X: y\rz\r\n",
            "\rX: y\r\n",
        ] {
            assert_eq!(lines(&format!("{malformed}\r\n")), FAULT, "{malformed:?}");
        }
    }
}
