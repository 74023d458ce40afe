//! Bodies in chunks (RFC 9112 §7.1).

use bytes::{Buf as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;

use super::decoded::{BodyFault, Decoded};

/// Digits of the size of a chunk: more could stand for a number that some take for a negative one.
const MAX_DIGITS: u8 = 15;
/// Bytes of the extensions of all chunks of a body.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Bytes of the trailers of a body, with the empty line.
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
    must_close: bool,
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
            must_close: false,
        }
    }

    pub fn is_end(&self) -> bool {
        self.place == Place::End
    }

    pub fn must_close(&self) -> bool {
        self.must_close
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
                    return Ok(Some(Decoded::Data(buffer.split_to(taken).freeze())));
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
        if end + 4 > MAX_TRAILERS {
            return Err(BodyFault::Trailers);
        }
        let trailers = parse(&buffer.split_to(end + 4))?;
        self.place = Place::End;
        // They may have ended earlier, at an empty line with a bare LF, and be followed by a request: it is not known
        // which the sender meant.
        self.must_close = true;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The body with its trailers, and what follows it; none if it is incomplete.
    type Outcome = Result<Option<(Vec<u8>, Vec<u8>)>, BodyFault>;

    fn decode(text: &[u8], is_response: bool, piece: usize) -> Outcome {
        let (mut decoder, mut buffer, mut body) =
            (ChunkedDecoder::new(is_response), BytesMut::new(), Vec::new());
        let mut pieces = text.chunks(piece);
        loop {
            match decoder.decode(&mut buffer)? {
                Some(Decoded::Data(data)) => body.extend_from_slice(&data),
                Some(Decoded::End(trailers)) => {
                    assert!(decoder.is_end());
                    for (name, value) in trailers.iter().flatten() {
                        body.extend_from_slice(name.as_str().as_bytes());
                        body.extend_from_slice(value.as_bytes());
                    }
                    buffer.extend(pieces.flatten());
                    return Ok(Some((body, buffer.to_vec())));
                }
                None => {
                    let Some(piece) = pieces.next() else { return Ok(None) };
                    buffer.extend_from_slice(piece);
                }
            }
        }
    }

    /// The same in one piece and in others, as a request.
    fn both(text: &[u8]) -> Outcome {
        let whole = decode(text, false, text.len());
        // A long text is cut near its end alone.
        let pieces = if text.len() < 2048 { 1..2 } else { text.len() - 4..text.len() };
        for piece in pieces {
            assert_eq!(decode(text, false, piece), whole);
        }
        whole
    }

    fn is_fine(text: &[u8]) -> bool {
        both(text).is_ok_and(|body| body.is_some())
    }

    #[test]
    fn chunks_are_joined_and_trailers_are_found() {
        let text = b"5;a=b\r\nhello\r\n00A \t;x\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY:2\r\n\r\nGET";
        assert_eq!(both(text), Ok(Some((b"hello0123456789x-sum1y2".to_vec(), b"GET".to_vec()))));
        assert_eq!(both(b"0\r\n\r\nGET"), Ok(Some((Vec::new(), b"GET".to_vec()))));
        for end in 0..text.len() - 3 {
            assert_eq!(both(&text[..end.max(1)]), Ok(None), "cut at {end}");
        }
    }

    #[test]
    fn only_trailers_end_the_connection() {
        for (text, is_last) in
            [(&b"0\r\n\r\n"[..], false), (b"0\r\nX: y\r\n\r\n", true), (b"0\r\n\nX\r\n\r\n", true)]
        {
            let (mut decoder, mut buffer) = (ChunkedDecoder::new(false), BytesMut::from(text));
            decoder.decode(&mut buffer).unwrap().unwrap();
            assert_eq!(decoder.must_close(), is_last, "{text:?}");
            assert_eq!(decoder.decode(&mut buffer), Ok(Some(Decoded::End(None))), "the end stays");
        }
    }

    #[test]
    fn sizes_have_fifteen_digits_at_most() {
        for (digits, is_right) in [(1, true), (15, true), (16, false), (17, false)] {
            let zeros = "0".repeat(digits - 1);
            assert_eq!(is_fine(format!("{zeros}1\r\nx\r\n0\r\n\r\n").as_bytes()), is_right, "{digits}");
            assert_eq!(is_fine(format!("{zeros}0\r\n\r\n").as_bytes()), is_right, "{digits}");
        }
        assert_eq!(both(b"fffffffffffffff\r\nx"), Ok(None));
        for odd in [
            "", "x", "-1", "+1", " 1", "0x1", "1_", "1\n", "1\n\n", "1;a\n\n", "1\r\r", "1 1", ";a", "1\0",
            "1,",
        ] {
            assert_eq!(both(format!("{odd}\r\nx\r\n0\r\n\r\n").as_bytes()), Err(BodyFault::Chunk), "{odd:?}");
        }
        for odd in ["1\r\nxx\r\n", "1\r\nx\n", "1\r\nx\rx", "1\r\nx0\r\n\r\n", "2\r\nx\r\n0\r\n\r\n"] {
            assert_eq!(both(odd.as_bytes()), Err(BodyFault::Chunk), "{odd:?}");
        }
    }

    #[test]
    fn blanks_behind_a_size_are_for_responses() {
        for text in [&b"1 \r\nx\r\n0\r\n\r\n"[..], b"1\r\nx\r\n0\t \r\n\r\n"] {
            assert_eq!(both(text), Err(BodyFault::Chunk));
            assert_eq!(decode(text, true, 1), Ok(Some((b"x".to_vec(), Vec::new()))));
        }
        assert_eq!(decode(b"1 1\r\nx\r\n0\r\n\r\n", true, 1), Err(BodyFault::Chunk));
    }

    #[test]
    fn extensions_have_a_bound_in_a_body_and_no_controls() {
        let extended = |count: usize, chunks: usize| {
            let chunk = format!("1;{}\r\nx\r\n", "a".repeat(count - 1));
            is_fine(format!("{}0\r\n\r\n", chunk.repeat(chunks)).as_bytes())
        };
        assert!(extended(MAX_EXTENSIONS, 1) && extended(MAX_EXTENSIONS / 64, 64));
        assert!(!extended(MAX_EXTENSIONS + 1, 1) && !extended(MAX_EXTENSIONS / 64 + 1, 64));
        assert!(!is_fine(format!("1{};\r\nx\r\n0\r\n\r\n", " ".repeat(MAX_EXTENSIONS)).as_bytes()));
        assert!(is_fine("1;a=\"é;\t\"\r\nx\r\n0;b\r\n\r\n".as_bytes()));
        for odd in [b'\n', b'\r', 0, 0x1b, 0x7f] {
            assert!(!is_fine(&[&b"1;a"[..], &[odd], b"b\r\nx\r\n0\r\n\r\n"].concat()), "{odd}");
        }
    }

    #[test]
    fn trailers_have_a_bound_wherever_they_are_cut() {
        let long = |bytes: usize| {
            let line = format!("X: {}\r\n\r\n", "y".repeat(bytes - 7));
            assert_eq!(line.len(), bytes);
            both(format!("0\r\n{line}").as_bytes()).map(|body| body.is_some())
        };
        assert_eq!(long(MAX_TRAILERS), Ok(true));
        for over in 1..6 {
            assert_eq!(long(MAX_TRAILERS + over), Err(BodyFault::Trailers), "{over} too many");
        }
        assert_eq!(both(b"0\r\nX: y\n\r\n"), Ok(None), "their end has two CRLFs");
        let many = |lines: usize| is_fine(format!("0\r\n{}\r\n", "X: y\r\n".repeat(lines)).as_bytes());
        assert!(many(MAX_TRAILER_LINES) && !many(MAX_TRAILER_LINES + 1));
        for odd in [
            "X\r\n",
            "X : y\r\n",
            " X: y\r\n",
            ": y\r\n",
            "X: y\r\n z\r\n",
            "X: \0\r\n",
            "X: y\rz\r\n",
            "\rX: y\r\n",
        ] {
            assert_eq!(both(format!("0\r\n{odd}\r\n").as_bytes()), Err(BodyFault::Trailers), "{odd:?}");
        }
    }
}
