//! How requests over HTTP/1.1 are framed, where their parser is more forgiving than we may be.
//!
//! It takes blanks behind a chunk's size and any byte in a chunk's extensions, and it looks at no Content-Length that
//! stands behind a Transfer-Encoding. Nothing of that goes on, but whoever stands before us may have read it in
//! another way. So the bytes are looked at on their way to it, and one that is odd becomes one that it refuses:
//! the answer, and the end of the connection, are the same as for any other fault.

use memchr::{memchr, memchr_iter};

const CODING: &[u8] = b"transfer-encoding";
const LENGTH: &[u8] = b"content-length";

/// What no value of a header may have, in the place of a byte of a Content-Length.
const SPOILS_VALUE: u8 = b'\0';
/// What ends no line of a chunk's size without a CR before it, in the place of a byte there.
const SPOILS_CHUNK: u8 = b'\n';

/// The largest chunk: what is larger, somebody reads as less than nothing.
const MAX_SIZE: u64 = u64::MAX >> 1;
/// Digits of a chunk's size; zeros before it could go on for ever.
const MAX_DIGITS: u8 = 16;

/// Follows the requests on a connection from one to the next, up to the first that is refused.
#[derive(Clone, Debug, Default)]
pub struct Framing {
    place: Place,
    /// Whether the present head has a Transfer-Encoding.
    is_chunked: bool,
    /// Its Content-Length.
    length: Option<u64>,
}

/// Where the next byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before a head, where empty lines are skipped.
    #[default]
    Before,
    /// At the beginning of a line of a head.
    Line,
    /// In the name of a header, which so far is this one.
    Name(&'static [u8], usize),
    /// In the rest of a line that says nothing of framing.
    Rest,
    /// In a Content-Length: what it is so far, and whether a blank has come behind it.
    Length { number: Option<u64>, is_over: bool },
    /// In a body, or in a chunk with the end of its line: so many bytes.
    Body { left: u64, is_chunk: bool },
    /// In a chunk's size, which so far is this, of so many digits.
    Size(u64, u8),
    /// Behind blanks that have followed it, where only an extension may be.
    Blank(u64),
    /// In a chunk's extensions.
    Extension(u64),
    /// Before the LF behind a chunk's size.
    SizeEnd(u64),
    /// At the beginning of a line of trailers, or behind the CR there.
    Trailer { has_cr: bool },
    /// In a trailer.
    InTrailer,
    /// Behind what is refused.
    Lost,
}

impl Framing {
    /// Looks at the next bytes of a connection, and spoils those that are odd.
    pub fn check(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            at += match self.place {
                Place::Rest => self.skip_lines(rest),
                Place::InTrailer => self.skip_trailer(rest),
                Place::Body { left, is_chunk } => self.skip(rest.len(), left, is_chunk),
                Place::Lost => return,
                _ => {
                    let (place, taken) = self.step(&mut rest[0]);
                    self.place = place;
                    usize::from(taken)
                }
            };
        }
    }

    /// Goes to the next line of a head that may say something, or may end it. Most of a head says nothing, and is
    /// looked at in one go.
    fn skip_lines(&mut self, rest: &[u8]) -> usize {
        for end in memchr_iter(b'\n', rest) {
            if rest
                .get(end + 1)
                .is_none_or(|first| matches!(first, b'T' | b't' | b'C' | b'c' | b'\r' | b'\n'))
            {
                self.place = Place::Line;
                return end + 1;
            }
        }
        rest.len()
    }

    /// Goes to the end of a trailer.
    fn skip_trailer(&mut self, rest: &[u8]) -> usize {
        let Some(end) = memchr(b'\n', rest) else { return rest.len() };
        self.place = Place::Trailer { has_cr: false };
        end + 1
    }

    /// Goes on in a body.
    fn skip(&mut self, there: usize, left: u64, is_chunk: bool) -> usize {
        let taken = usize::try_from(left).map_or(there, |left| left.min(there));
        let left = left - taken as u64;
        self.place = match (left, is_chunk) {
            (0, true) => Place::Size(0, 0),
            (0, false) => Place::Before,
            _ => Place::Body { left, is_chunk },
        };
        taken
    }

    /// Takes a byte, or leaves it for another place; says where that leads and whether it is taken.
    fn step(&mut self, byte: &mut u8) -> (Place, bool) {
        let place = match self.place {
            Place::Before if matches!(byte, b'\r' | b'\n') => Place::Before,
            Place::Before => {
                (self.is_chunked, self.length) = (false, None);
                Place::Rest
            }
            Place::Line => match *byte {
                b'T' | b't' => Place::Name(CODING, 1),
                b'C' | b'c' => Place::Name(LENGTH, 1),
                b'\r' => Place::Line,
                b'\n' => self.body(),
                _ => return (Place::Rest, false),
            },
            Place::Name(name, at) => match name.get(at) {
                Some(expected) if byte.eq_ignore_ascii_case(expected) => Place::Name(name, at + 1),
                None if *byte == b':' => self.named(name),
                _ => return (Place::Rest, false),
            },
            Place::Length { number, is_over } => return self.step_length(byte, number, is_over),
            Place::Size(..) | Place::Blank(_) | Place::Extension(_) | Place::SizeEnd(_) => {
                step_size(self.place, byte)
            }
            Place::Trailer { has_cr: false } if *byte == b'\r' => Place::Trailer { has_cr: true },
            Place::Trailer { has_cr: true } => Place::Before,
            Place::Trailer { has_cr: false } => return (Place::InTrailer, false),
            // Where not each byte is looked at.
            Place::Rest | Place::InTrailer | Place::Body { .. } | Place::Lost => self.place,
        };
        (place, true)
    }

    /// Behind a name and its colon.
    fn named(&mut self, name: &[u8]) -> Place {
        if name == LENGTH {
            return Place::Length { number: None, is_over: false };
        }
        self.is_chunked = true;
        Place::Rest
    }

    /// A length is digits with blanks around them, and the same in all its lines.
    fn step_length(&mut self, byte: &mut u8, number: Option<u64>, is_over: bool) -> (Place, bool) {
        let value = match (*byte, number) {
            (b' ' | b'\t', _) => return (Place::Length { number, is_over: number.is_some() }, true),
            (digit @ b'0'..=b'9', _) if !is_over => {
                let digit = u64::from(digit - b'0');
                let longer = number.unwrap_or(0).checked_mul(10).and_then(|number| number.checked_add(digit));
                if longer.is_some() {
                    return (Place::Length { number: longer, is_over }, true);
                }
                None
            }
            (b'\r' | b'\n', Some(value)) => self.length.is_none_or(|length| length == value).then_some(value),
            _ => None,
        };
        if value.is_none() {
            *byte = SPOILS_VALUE;
            return (Place::Lost, true);
        }
        self.length = value;
        (Place::Rest, false)
    }

    /// What follows a head.
    fn body(&self) -> Place {
        match self.length {
            _ if self.is_chunked => Place::Size(0, 0),
            Some(left @ 1..) => Place::Body { left, is_chunk: false },
            _ => Place::Before,
        }
    }
}

/// Takes a byte of the line with a chunk's size (RFC 9112 §7.1).
fn step_size(place: Place, byte: &mut u8) -> Place {
    match (place, *byte) {
        (Place::Size(size, _) | Place::Blank(size), b' ' | b'\t') => Place::Blank(size),
        (Place::Size(size, digits), digit)
            if digit.is_ascii_hexdigit() && digits < MAX_DIGITS && size <= MAX_SIZE >> 4 =>
        {
            let digit = char::from(digit).to_digit(16).unwrap_or(0);
            Place::Size(size << 4 | u64::from(digit), digits + 1)
        }
        (Place::Size(size, _) | Place::Blank(size), b';')
        | (Place::Extension(size), b'\t' | b' '..=b'~' | 0x80..) => Place::Extension(size),
        (Place::Size(size, _) | Place::Extension(size), b'\r') => Place::SizeEnd(size),
        (Place::SizeEnd(0), b'\n') => Place::Trailer { has_cr: false },
        (Place::SizeEnd(size), b'\n') => Place::Body { left: size.saturating_add(2), is_chunk: true },
        (Place::SizeEnd(_), _) => Place::Lost,
        _ => {
            *byte = SPOILS_CHUNK;
            Place::Lost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a text that comes in pieces of so many bytes.
    fn checked(text: &str, piece: usize) -> String {
        let (mut framing, mut bytes) = (Framing::default(), text.as_bytes().to_vec());
        bytes.chunks_mut(piece).for_each(|piece| framing.check(piece));
        String::from_utf8(bytes).unwrap()
    }

    fn assert_becomes(text: &str, expected: &str) {
        for piece in [1, 3, 16, 1 << 20] {
            assert_eq!(checked(text, piece), expected, "in pieces of {piece}");
        }
    }

    fn assert_untouched(text: &str) {
        // What follows is found again: its fault is seen.
        let then = |length: &str| format!("{text}POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
        assert_becomes(&then("5x"), &then("5\0"));
    }

    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn good_requests_are_untouched_and_followed_to_their_ends() {
        for good in [
            "",
            "\r\n\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\nCONTENT-LENGTH:\t3 \r\nTe: trailers\r\n\r\nC:x",
            "POST / HTTP/1.1\r\nContent-Length: 33\r\n\r\nx\r\n\r\nPOST / HTTP/1.1\r\ncontent-le",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\nhello",
            "POST / HTTP/1.1\r\nContent-Lengt: x\r\nContent-Lengthy: x\r\nX-Content-Length: x\r\n\r\n",
        ] {
            assert_untouched(good);
        }
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n00\r\n\r\n",
            "2;a=\"b c\" ; d\r\n\r\n\r\nA\t ;x\r\n0123456789\r\n0;\r\nX: \0\r\nY: z\r\n\r\n",
        ] {
            assert_untouched(&format!("{CHUNKED}{body}"));
        }
    }

    #[test]
    fn odd_lines_of_chunks_are_spoilt() {
        for (odd, spoilt) in [
            ("5 \r\nhello", "5 \n\nhello"),
            ("5\t \r\nhello", "5\t \n\nhello"),
            ("5 5\r\n", "5 \n\r\n"),
            ("5\rX", "5\rX"),
            ("5x\r\n", "5\n\r\n"),
            ("8000000000000000\r\n", "800000000000000\n\r\n"),
            ("00000000000000005\r\n", "0000000000000000\n\r\n"),
            ("5;a\0b\r\n", "5;a\nb\r\n"),
            ("5 ;a=\"\x7f\x1b\"\r\n", "5 ;a=\"\n\x1b\"\r\n"),
            ("2\r\nhi\r\n0 \r\n\r\n", "2\r\nhi\r\n0 \n\n\r\n"),
        ] {
            assert_becomes(&format!("{CHUNKED}{odd}"), &format!("{CHUNKED}{spoilt}"));
        }
    }

    #[test]
    fn odd_lengths_are_spoilt_wherever_they_stand() {
        for (odd, spoilt) in [
            ("x", "\0"),
            ("5, 5", "5\0 5"),
            ("+5", "\x005"),
            ("5 5", "5 \0"),
            ("18446744073709551616", "1844674407370955161\0"),
        ] {
            let head =
                |length: &str| format!("{}Content-Length: {length}\r\n\r\n", &CHUNKED[..CHUNKED.len() - 2]);
            assert_becomes(&head(odd), &head(spoilt));
        }
        assert_becomes("A\r\nContent-Length:\r\n\r\n", "A\r\nContent-Length:\0\n\r\n");
        assert_becomes(
            "A\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n",
            "A\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\0\n\r\n",
        );
    }
}
