//! Bodies in chunks (RFC 9112 §7.1).

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;

use super::body::{BodyFault, Decoded};

/// Digits of the size of a chunk: more could stand for a number that some take for a negative one.
const MAX_DIGITS: u8 = 15;
/// Bytes of the extensions of all chunks of a body.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Bytes of the trailers of a body.
const MAX_TRAILERS: usize = 16 * 1024;
/// Lines of the trailers of a body.
const MAX_TRAILER_LINES: usize = 100;

/// Finds the chunks of a body and the trailers behind them.
#[derive(Clone, Debug)]
pub(super) struct ChunkedDecoder {
    place: Place,
    /// Bytes of extensions that may still come.
    extensions: usize,
    /// Whether blanks may be behind a size, as some servers write them.
    allows_padding: bool,
    /// Whether nothing that follows the body can be read.
    is_last: bool,
}

/// Where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the size of a chunk, which is this so far, of so many digits.
    Size { size: u64, digits: u8 },
    /// In blanks behind a size.
    Blank { size: u64 },
    /// In the extensions of a chunk.
    Extension { size: u64 },
    /// Before the LF behind a size.
    SizeEnd { size: u64 },
    /// In a chunk of which so many bytes are left.
    Data { left: u64 },
    /// Before the CR and the LF behind a chunk.
    DataEnd { has_cr: bool },
    /// In the trailers.
    Trailers,
    /// Behind the body.
    End,
}

impl ChunkedDecoder {
    pub fn new(allows_padding: bool) -> Self {
        Self {
            place: Place::Size { size: 0, digits: 0 },
            extensions: MAX_EXTENSIONS,
            allows_padding,
            is_last: false,
        }
    }

    pub fn is_end(&self) -> bool {
        self.place == Place::End
    }

    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Takes the next part of the body out of the buffer; none if it is not there.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Decoded>, BodyFault> {
        loop {
            match self.place {
                Place::End => return Ok(Some(Decoded::End(None))),
                Place::Trailers => return self.trailers(buffer),
                _ if buffer.is_empty() => return Ok(None),
                Place::Data { left } => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                    let left = left - taken as u64;
                    self.place =
                        if left == 0 { Place::DataEnd { has_cr: false } } else { Place::Data { left } };
                    return Ok(Some(Decoded::Data(take(buffer, taken))));
                }
                _ => {
                    let byte = buffer.get_u8();
                    self.place = self.step(byte)?;
                }
            }
        }
    }

    /// Takes a byte of what is between two chunks.
    fn step(&mut self, byte: u8) -> Result<Place, BodyFault> {
        Ok(match (self.place, byte) {
            (Place::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Place::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Place::Size { digits: 0, .. }, _) => return Err(BodyFault::Chunk),
            (Place::Size { size, .. } | Place::Blank { size }, b' ' | b'\t') => {
                self.count_extension()?;
                Place::Blank { size }
            }
            (Place::Size { size, .. } | Place::Blank { size }, b';')
            | (Place::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count_extension()?;
                Place::Extension { size }
            }
            (Place::Size { size, .. } | Place::Extension { size }, b'\r') => Place::SizeEnd { size },
            (Place::Blank { size }, b'\r') if self.allows_padding => Place::SizeEnd { size },
            (Place::SizeEnd { size: 0 }, b'\n') => Place::Trailers,
            (Place::SizeEnd { size }, b'\n') => Place::Data { left: size },
            (Place::DataEnd { has_cr: false }, b'\r') => Place::DataEnd { has_cr: true },
            (Place::DataEnd { has_cr: true }, b'\n') => Place::Size { size: 0, digits: 0 },
            _ => return Err(BodyFault::Chunk),
        })
    }

    fn count_extension(&mut self) -> Result<(), BodyFault> {
        self.extensions = self.extensions.checked_sub(1).ok_or(BodyFault::Chunk)?;
        Ok(())
    }

    /// Takes the trailers out of the buffer, which end in CRLF CRLF, or are none.
    fn trailers(&mut self, buffer: &mut BytesMut) -> Result<Option<Decoded>, BodyFault> {
        if buffer.starts_with(b"\r\n") {
            buffer.advance(2);
            self.place = Place::End;
            return Ok(Some(Decoded::End(None)));
        }
        // A CR that ends nothing, in the place of the first line.
        if matches!(&buffer[..], [b'\r', other, ..] if *other != b'\n') {
            return Err(BodyFault::Trailers);
        }
        let Some(end) = memmem::find(buffer, b"\r\n\r\n") else {
            return if buffer.len() < MAX_TRAILERS { Ok(None) } else { Err(BodyFault::Trailers) };
        };
        if end >= MAX_TRAILERS {
            return Err(BodyFault::Trailers);
        }
        let trailers = parse(&buffer.split_to(end + 4))?;
        self.place = Place::End;
        // They may have ended earlier, at an empty line with a bare LF, and be followed by a request: it is not known
        // which the sender meant.
        self.is_last = true;
        Ok(Some(Decoded::End((!trailers.is_empty()).then_some(trailers))))
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

/// Takes the first bytes out of a buffer. All of them are taken without a copy; few of many are copied, so that they do
/// not keep the whole buffer.
pub(super) fn take(buffer: &mut BytesMut, length: usize) -> Bytes {
    buffer.split_to(length).freeze()
}
