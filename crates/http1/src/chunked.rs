//! The chunked transfer coding (RFC 9112 §7.1).

use bytes::{Buf as _, BytesMut};

use super::decoded::{BodyFault, Decoded, Trailers};

/// The most digits of a chunk size: with 16 it could overflow the signed numbers of other parsers.
const MAX_DIGITS: u8 = 15;
/// The most credit that a body can have for the lines of its chunks (sizes and extensions), in bytes: these lines carry no
/// data, but each costs work.
const MAX_CREDIT: u64 = 16 * 1024;
/// Credit that each byte of data earns. With it, chunks of two bytes without extensions pay for their lines.
const CREDIT_PER_BYTE: u64 = 2;
/// Credit that each chunk of a response earns besides: some servers pad sizes or send extensions.
const CREDIT_PER_RESPONSE_CHUNK: u64 = 64;
/// Data of a later chunk up to this size is copied to the end of the data before it: a part of its own would cost more.
const MAX_COPIED: usize = 8 * 1024;

/// Decodes a chunked body and its trailers.
#[derive(Clone, Debug)]
pub(super) struct ChunkedDecoder {
    state: State,
    /// How many bytes the lines of chunks may have, besides what later chunks earn.
    credit: u64,
    /// Whether the body belongs to a response: whitespace may follow a size then, as some servers write it.
    is_response: bool,
    /// Whether the connection has to close after the body, since its end is ambiguous.
    must_close: bool,
}

/// The part of the body to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A chunk size, with its value and its number of digits so far.
    Size { size: u64, digits: u8 },
    /// Whitespace after a size.
    Padding { size: u64 },
    /// The extensions of a chunk.
    Extension { size: u64 },
    /// The LF after a size.
    SizeEnd { size: u64 },
    /// The data of a chunk, of which so many bytes remain.
    Data { remaining: u64 },
    /// The CR or the LF after the data of a chunk.
    DataEnd { has_cr: bool },
    /// The trailers.
    Trailers,
    /// Nothing: the body is complete.
    End,
}

impl ChunkedDecoder {
    pub fn new(is_response: bool) -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, credit: MAX_CREDIT, is_response, must_close: false }
    }

    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// Adds credit for the lines of chunks, in bytes.
    pub fn earn(&mut self, credit: u64) {
        self.credit = self.credit.saturating_add(credit).min(MAX_CREDIT);
    }

    pub fn must_close(&self) -> bool {
        self.must_close
    }

    /// Takes the next part of the body out of the buffer; none if more bytes are needed. All data in the buffer is one part,
    /// except that the data of a chunk that is too large to be copied starts a new one.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Decoded>, BodyFault> {
        // The first bytes of the buffer are data. Between them and the rest is what was read without being kept.
        let (mut data, mut read) = (0, 0);
        while let Some(&byte) = buffer.get(read) {
            match self.state {
                State::Trailers | State::End => break,
                State::Data { remaining } => {
                    let length = usize::try_from(remaining).unwrap_or(usize::MAX).min(buffer.len() - read);
                    if data == 0 {
                        buffer.advance(std::mem::take(&mut read));
                    } else if length <= MAX_COPIED {
                        buffer.copy_within(read..read + length, data);
                    } else {
                        break;
                    }
                    data += length;
                    read += length;
                    let remaining = remaining - length as u64;
                    self.state = if remaining == 0 {
                        State::DataEnd { has_cr: false }
                    } else {
                        State::Data { remaining }
                    };
                }
                _ => match self.step(byte) {
                    Ok(()) => read += 1,
                    // Data before a fault is returned first, wherever the body is split into reads.
                    Err(_) if data > 0 => break,
                    Err(fault) => return Err(fault),
                },
            }
        }
        if data > 0 {
            let part = buffer.split_to(data).freeze();
            buffer.advance(read - data);
            return Ok(Some(Decoded::Data(part)));
        }
        buffer.advance(read);
        match self.state {
            State::End => Ok(Some(Decoded::End(None))),
            State::Trailers => self.end(buffer),
            _ => Ok(None),
        }
    }

    /// Takes a byte that is not data. After a fault nothing has changed.
    fn step(&mut self, byte: u8) -> Result<(), BodyFault> {
        let next = self.state_after(byte)?;
        // The line of a chunk is charged byte by byte, since it may be endless. The line end after its data costs nothing.
        if !matches!(self.state, State::DataEnd { .. }) {
            self.credit = self.credit.checked_sub(1).ok_or(BodyFault::Overhead)?;
        }
        if let State::Data { remaining: size } = next {
            self.earn(size.saturating_mul(CREDIT_PER_BYTE));
            if self.is_response {
                self.earn(CREDIT_PER_RESPONSE_CHUNK);
            }
        }
        self.state = next;
        Ok(())
    }

    /// The state after a byte that is not data.
    fn state_after(&self, byte: u8) -> Result<State, BodyFault> {
        Ok(match (self.state, byte) {
            (State::Size { size, digits }, _)
                if digits < MAX_DIGITS
                    && let Some(digit) = char::from(byte).to_digit(16) =>
            {
                State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return Err(BodyFault::Chunk),
            (State::Size { size, .. } | State::Padding { size }, b' ' | b'\t') => State::Padding { size },
            (State::Size { size, .. } | State::Padding { size }, b';')
            | (State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => State::Extension { size },
            (State::Size { size, .. } | State::Extension { size }, b'\r') => State::SizeEnd { size },
            (State::Padding { size }, b'\r') if self.is_response => State::SizeEnd { size },
            (State::SizeEnd { size: 0 }, b'\n') => State::Trailers,
            (State::SizeEnd { size }, b'\n') => State::Data { remaining: size },
            (State::DataEnd { has_cr: false }, b'\r') => State::DataEnd { has_cr: true },
            (State::DataEnd { has_cr: true }, b'\n') => State::Size { size: 0, digits: 0 },
            _ => return Err(BodyFault::Chunk),
        })
    }

    /// Takes the trailers out of the buffer, and ends the body.
    fn end(&mut self, buffer: &mut BytesMut) -> Result<Option<Decoded>, BodyFault> {
        let Some(trailers) = Trailers::take(buffer)? else { return Ok(None) };
        self.state = State::End;
        let Trailers::Lines(lines) = trailers else { return Ok(Some(Decoded::End(None))) };
        // Another parser may see the end at an earlier empty line with a bare LF, and read the rest as another request
        // (request smuggling), so the connection is not reused.
        self.must_close = true;
        Ok(Some(Decoded::End((!lines.is_empty()).then_some(lines))))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// The body with its trailers, and the bytes after it; none if it is incomplete.
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

    /// Decodes the body of a request in one piece, and compares the result with that for smaller pieces.
    fn decode_in_pieces(text: &[u8]) -> Outcome {
        let whole = decode(text, false, text.len());
        // A long text is cut only near its end.
        let pieces = match text.len() {
            length @ ..256 => 1..length.max(2),
            256..2048 => 1..2,
            length => length - 4..length,
        };
        for piece in pieces {
            assert_eq!(decode(text, false, piece), whole);
        }
        whole
    }

    fn is_valid(text: &[u8]) -> bool {
        decode_in_pieces(text).is_ok_and(|body| body.is_some())
    }

    /// RFC 9112 §7.1.
    #[test]
    fn chunks_are_joined_and_trailers_are_parsed() {
        let text = b"5;a=b\r\nhello\r\n00A \t;x\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY:2\r\n\r\nGET";
        assert_eq!(decode_in_pieces(text), Ok(Some((b"hello0123456789x-sum1y2".to_vec(), b"GET".to_vec()))));
        assert_eq!(decode_in_pieces(b"0\r\n\r\nGET"), Ok(Some((Vec::new(), b"GET".to_vec()))));
        for end in 0..text.len() - 3 {
            assert_eq!(decode_in_pieces(&text[..end.max(1)]), Ok(None), "cut at {end}");
        }
    }

    /// The parts of a body whose bytes are all in the buffer.
    fn parts(text: &[u8], is_response: bool) -> (Vec<Bytes>, Result<(), BodyFault>) {
        let (mut decoder, mut buffer) = (ChunkedDecoder::new(is_response), BytesMut::from(text));
        let mut parts = Vec::new();
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(Decoded::Data(data))) => parts.push(data),
                Ok(_) => return (parts, Ok(())),
                Err(fault) => return (parts, Err(fault)),
            }
        }
    }

    #[test]
    fn the_chunks_in_the_buffer_are_one_part() {
        let text = "1\r\nx\r\n2;a\r\nyz\r\n".repeat(1000);
        let joined = "xyz".repeat(1000);
        for (end, rest) in [("", ""), ("0\r\n\r\n", ""), ("5\r\nsom", "som"), ("1;a", ""), ("0\r\nX: y", "")]
        {
            let (parts, outcome) = parts((text.clone() + end).as_bytes(), false);
            assert_eq!((parts, outcome), (vec![Bytes::from(joined.clone() + rest)], Ok(())), "{end:?}");
        }
        let (parts, outcome) = parts((text + "-").as_bytes(), false);
        assert_eq!(
            (parts, outcome),
            (vec![Bytes::from(joined)], Err(BodyFault::Chunk)),
            "data before a fault"
        );
    }

    #[test]
    fn a_large_chunk_is_not_copied() {
        let large = "x".repeat(MAX_COPIED + 1);
        let text =
            format!("{:x}\r\n{large}\r\n1\r\ny\r\n{:x}\r\n{large}\r\n1\r\nz\r\n", large.len(), large.len());
        let mut buffer = BytesMut::from(text.as_bytes());
        let address = buffer.as_ptr().addr();
        let mut decoder = ChunkedDecoder::new(false);
        for (place, data) in
            [(text.find('x'), format!("{large}y")), (text.rfind('y').map(|at| at + 9), format!("{large}z"))]
        {
            let Ok(Some(Decoded::Data(part))) = decoder.decode(&mut buffer) else { panic!() };
            assert_eq!((part.as_ptr().addr() - address, &part[..]), (place.unwrap(), data.as_bytes()));
        }
    }

    #[test]
    fn a_response_may_have_any_number_of_short_padded_and_extended_chunks() {
        for chunk in
            ["1\r\nx\r\n", "1       \r\nx\r\n", "000000000000001\r\nx\r\n", "5;name=\"value\"\r\nhello\r\n"]
        {
            let text = chunk.repeat(50_000) + "0\r\n\r\n";
            assert_eq!(parts(text.as_bytes(), true).1, Ok(()), "{chunk:?}");
        }
        // An extension may be twice as long as the data of its chunk.
        let long = format!("1000;{}\r\n{}\r\n", "a".repeat(8000), "x".repeat(4096)).repeat(100) + "0\r\n\r\n";
        for is_response in [false, true] {
            assert_eq!(parts(long.as_bytes(), is_response).1, Ok(()));
        }
    }

    #[test]
    fn a_request_needs_data_for_the_lines_of_its_chunks() {
        let outcome = |chunk: &str| parts((chunk.repeat(100_000) + "0\r\n\r\n").as_bytes(), false).1;
        for ordinary in ["2\r\nxx\r\n", "a\r\nhello, you\r\n", "14\r\n{\"number\":123456789}\r\n"] {
            assert_eq!(outcome(ordinary), Ok(()), "{ordinary:?}");
        }
        for thin in ["1\r\nx\r\n", "0002\r\nxx\r\n", "2;a\r\nxx\r\n"] {
            assert_eq!(outcome(thin), Err(BodyFault::Overhead), "{thin:?}");
        }
    }

    #[test]
    fn credit_is_earned_by_data_and_by_time() {
        let mut decoder = ChunkedDecoder::new(false);
        // The line of such a chunk costs one more than its data earns.
        let mut is_accepted = |count: u64| {
            let mut buffer = BytesMut::from("1\r\nx\r\n".repeat(usize::try_from(count).unwrap()).as_bytes());
            while let Ok(Some(_)) = decoder.decode(&mut buffer) {}
            decoder.earn(100);
            buffer.is_empty()
        };
        assert!(is_accepted(MAX_CREDIT - 2));
        assert!((0..100).all(|_| is_accepted(100)));
        assert!(!is_accepted(101));
    }

    #[test]
    fn a_connection_closes_after_trailers() {
        for (text, is_last) in
            [(&b"0\r\n\r\n"[..], false), (b"0\r\nX: y\r\n\r\n", true), (b"0\r\n\nX\r\n\r\n", true)]
        {
            let (mut decoder, mut buffer) = (ChunkedDecoder::new(false), BytesMut::from(text));
            decoder.decode(&mut buffer).unwrap().unwrap();
            assert_eq!(decoder.must_close(), is_last, "{text:?}");
            assert_eq!(
                decoder.decode(&mut buffer),
                Ok(Some(Decoded::End(None))),
                "the end is returned again"
            );
        }
    }

    #[test]
    fn chunk_sizes_have_at_most_fifteen_digits() {
        for (digits, is_accepted) in [(1, true), (15, true), (16, false), (17, false)] {
            let zeros = "0".repeat(digits - 1);
            assert_eq!(is_valid(format!("{zeros}1\r\nx\r\n0\r\n\r\n").as_bytes()), is_accepted, "{digits}");
            assert_eq!(is_valid(format!("{zeros}0\r\n\r\n").as_bytes()), is_accepted, "{digits}");
        }
        assert_eq!(decode_in_pieces(b"fffffffffffffff\r\nx"), Ok(None));
        for malformed in [
            "", "x", "-1", "+1", " 1", "0x1", "1_", "1\n", "1\n\n", "1;a\n\n", "1\r\r", "1 1", ";a", "1\0",
            "1,",
        ] {
            assert_eq!(
                decode_in_pieces(format!("{malformed}\r\nx\r\n0\r\n\r\n").as_bytes()),
                Err(BodyFault::Chunk),
                "{malformed:?}"
            );
        }
        for malformed in ["1\r\nxx\r\n", "1\r\nx\n", "1\r\nx\rx", "1\r\nx0\r\n\r\n", "2\r\nx\r\n0\r\n\r\n"] {
            assert_eq!(decode_in_pieces(malformed.as_bytes()), Err(BodyFault::Chunk), "{malformed:?}");
        }
    }

    #[test]
    fn whitespace_after_a_size_is_allowed_only_in_responses() {
        for text in [&b"1 \r\nx\r\n0\r\n\r\n"[..], b"1\r\nx\r\n0\t \r\n\r\n"] {
            assert_eq!(decode_in_pieces(text), Err(BodyFault::Chunk));
            assert_eq!(decode(text, true, 1), Ok(Some((b"x".to_vec(), Vec::new()))));
        }
        assert_eq!(decode(b"1 1\r\nx\r\n0\r\n\r\n", true, 1), Err(BodyFault::Chunk));
    }

    #[test]
    fn extensions_are_bounded_and_have_no_control_characters() {
        let most = usize::try_from(MAX_CREDIT).unwrap() - "1;\r\n".len();
        for (count, is_accepted) in [(most, true), (most + 1, false)] {
            for line in [format!("5;{}", "a".repeat(count)), format!("5{};", " ".repeat(count))] {
                let text = format!("{line}\r\nhello\r\n0\r\n\r\n");
                assert_eq!(is_valid(text.as_bytes()), is_accepted, "{count}");
            }
        }
        assert!(is_valid("1;a=\"é;\t\"\r\nx\r\n0;b\r\n\r\n".as_bytes()));
        for malformed in [b'\n', b'\r', 0, 0x1b, 0x7f] {
            assert!(!is_valid(&[&b"1;a"[..], &[malformed], b"b\r\nx\r\n0\r\n\r\n"].concat()), "{malformed}");
        }
    }
}
