//! Heads and bodies as they are written.

use http::{HeaderMap, StatusCode, Version};

use super::fields::Fields;
use super::head::{RequestHead, ResponseHead};
use super::name::names::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING};
use super::name::{FieldName, NameSet};
use super::number::push_decimal;
use super::parse::Framing;

/// Fields that say how a body is framed. They are written anew.
const FRAMING: NameSet = NameSet::of(&[CONTENT_LENGTH, TRANSFER_ENCODING]);

/// Writes the head of a request whose body is framed in this way. Its target is path and query alone.
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead, framing: Framing) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(out, &head.fields);
    match framing {
        Framing::Empty if head.fields.contains(CONTENT_LENGTH) => write_length(out, 0),
        // A request has no body that ends with its connection.
        Framing::Empty | Framing::UntilClose => {}
        Framing::Length(length) => write_length(out, length),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a response to a client that speaks `version`, whose body is framed in this way. `is_last` says that
/// the connection ends after it. Without a Date it gets this one.
pub fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    (version, framing): (Version, Framing),
    is_last: bool,
    date: &[u8],
) {
    let is_http_10 = version == Version::HTTP_10;
    out.extend_from_slice(if is_http_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.push(b' ');
    match &head.reason {
        Some(reason) => out.extend_from_slice(reason),
        None => out.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
    if framing == Framing::Empty && head.status != StatusCode::NO_CONTENT {
        // The length is that of a body which is not sent.
        head.fields.write(out);
    } else {
        write_fields(out, &head.fields);
    }
    if !head.fields.contains(DATE) {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
    }
    match framing {
        Framing::Empty | Framing::UntilClose => {}
        Framing::Length(length) => write_length(out, length),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    if !head.fields.contains(CONNECTION) {
        if is_last {
            out.extend_from_slice(b"connection: close\r\n");
        } else if is_http_10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the interim response by which a client sends its body.
pub fn write_continue(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

fn write_fields(out: &mut Vec<u8>, fields: &Fields) {
    if fields.contains_any(FRAMING) {
        fields.write_without(FRAMING, out);
    } else {
        fields.write(out);
    }
}

fn write_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// How a body is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEncoder {
    /// As it is: its length was announced, or the connection ends behind it.
    Plain {
        /// Bytes that are still to come; none if that is not known.
        left: Option<u64>,
    },
    /// In chunks, with those trailers that were announced.
    Chunked {
        /// The names of these trailers, separated by commas.
        announced: Vec<u8>,
    },
}

impl BodyEncoder {
    /// An encoder for the body behind a head with these fields. `takes_trailers` says whether the receiver does.
    #[must_use]
    pub fn new(framing: Framing, fields: &Fields, takes_trailers: bool) -> Self {
        match framing {
            Framing::Empty => Self::Plain { left: Some(0) },
            Framing::Length(length) => Self::Plain { left: Some(length) },
            Framing::UntilClose => Self::Plain { left: None },
            Framing::Chunked => {
                let announced = if takes_trailers && fields.contains(TRAILER) {
                    fields.get_all(TRAILER).collect::<Vec<_>>().join(&b","[..])
                } else {
                    Vec::new()
                };
                Self::Chunked { announced }
            }
        }
    }

    /// Begins a part of so many bytes; says how many of these are to follow, and then [`BodyEncoder::end_data`]. There
    /// are less than asked for where the body is longer than announced.
    pub fn begin_data(&mut self, length: usize, out: &mut Vec<u8>) -> usize {
        match self {
            Self::Plain { left: None } => length,
            Self::Plain { left: Some(left) } => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
                *left -= taken as u64;
                taken
            }
            Self::Chunked { .. } => {
                // An empty chunk would be the end.
                if length > 0 {
                    push_hex(out, length);
                    out.extend_from_slice(b"\r\n");
                }
                length
            }
        }
    }

    /// What follows the bytes of a part.
    #[must_use]
    pub fn end_data(&self, length: usize) -> &'static [u8] {
        match self {
            Self::Chunked { .. } if length > 0 => b"\r\n",
            _ => b"",
        }
    }

    /// Writes the end of the body, with these trailers; says whether the body was complete.
    pub fn end(&mut self, trailers: Option<&HeaderMap>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Plain { left } => left.is_none_or(|left| left == 0),
            Self::Chunked { announced } => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    let is_announced =
                        |it: &[u8]| it.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes());
                    if announced.split(|byte| *byte == b',').any(is_announced) {
                        for part in [FieldName::from(name).as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                            out.extend_from_slice(part);
                        }
                    }
                }
                out.extend_from_slice(b"\r\n");
                true
            }
        }
    }

    /// Whether all that was announced has been written, so that nothing has to mark the end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self == Self::Plain { left: Some(0) }
    }
}

fn push_hex(out: &mut Vec<u8>, number: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| DIGITS[number >> (4 * place) & 15]));
}
