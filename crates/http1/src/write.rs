//! Writers of heads and bodies (RFC 9112).

use http::{HeaderMap, StatusCode, Version};

use super::fields::Fields;
use super::head::{RequestHead, ResponseHead};
use super::name::names::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING};
use super::name::{FieldName, NameSet};
use super::number::LOWER_HEX;
use super::number::push_decimal;
use super::parse::Framing;

/// Fields that state the framing of a body: they are not copied from the head but written for the actual framing.
const FRAMING: NameSet = NameSet::of(&[CONTENT_LENGTH, TRANSFER_ENCODING]);

/// Writes the head of a request whose body has this framing, with its target in origin-form.
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead, framing: Framing) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    if target.starts_with('?') {
        // In absolute-form the path may be empty.
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(out, &head.fields);
    match framing {
        Framing::Empty if head.fields.contains(CONTENT_LENGTH) => write_content_length(out, 0),
        // The body of a request can't end with its connection.
        Framing::Empty | Framing::UntilClose => {}
        Framing::Length(length) => write_content_length(out, length),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

/// How a response is framed on its connection.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFraming {
    /// The version of the request, in which the response is written.
    pub version: Version,
    /// The framing of the body.
    pub body: Framing,
    /// Whether the connection closes after the response.
    pub is_last: bool,
}

/// Writes the head of a response. A response without a Date field gets `date`.
pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead, framing: ResponseFraming, date: &[u8]) {
    let ResponseFraming { version, body, is_last } = framing;
    let is_http_10 = version == Version::HTTP_10;
    write_status_line(out, head, version);
    let has_no_length = head.status.is_informational() || head.status == StatusCode::NO_CONTENT;
    if body == Framing::Empty && !has_no_length {
        // To HEAD and with 304: the length of the body that is not sent (RFC 9110 §8.6).
        head.fields.write(out);
    } else {
        write_fields(out, &head.fields);
    }
    if !head.fields.contains(DATE) {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
    }
    match body {
        Framing::Empty | Framing::UntilClose => {}
        Framing::Length(length) => write_content_length(out, length),
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

#[inline]
fn write_status_line(out: &mut Vec<u8>, head: &ResponseHead, version: Version) {
    out.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.push(b' ');
    let usual = || head.status.canonical_reason().unwrap_or_default().as_bytes();
    out.extend_from_slice(head.reason.as_deref().unwrap_or_else(usual));
    out.extend_from_slice(b"\r\n");
}

/// Writes an interim response other than `100 Continue`, without framing fields.
pub fn write_interim(out: &mut Vec<u8>, head: &ResponseHead) {
    write_status_line(out, head, Version::HTTP_11);
    write_fields(out, &head.fields);
    out.extend_from_slice(b"\r\n");
}

/// Writes the interim response `100 Continue`, after which a client sends its body.
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

fn write_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Encodes a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEncoder {
    /// Without a transfer coding: with a Content-Length, or until the connection closes.
    Plain {
        /// Bytes that remain to be written; none if that is not known.
        remaining: Option<u64>,
    },
    /// In the chunked coding, with those trailers that the `Trailer` field has announced.
    Chunked {
        /// The names of these trailers, separated by commas.
        announced: Vec<u8>,
    },
}

impl BodyEncoder {
    /// An encoder for the body after a head with these fields. `takes_trailers` says whether the receiver accepts trailers
    /// (`TE: trailers`).
    #[must_use]
    pub fn new(framing: Framing, fields: &Fields, takes_trailers: bool) -> Self {
        match framing {
            Framing::Empty => Self::Plain { remaining: Some(0) },
            Framing::Length(length) => Self::Plain { remaining: Some(length) },
            Framing::UntilClose => Self::Plain { remaining: None },
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

    /// Writes the bytes before a part of `length` bytes, such as a chunk size; returns how many of the part the caller must write,
    /// followed by [`BodyEncoder::data_suffix`]: fewer than `length` if the body exceeds its Content-Length.
    pub fn start_data(&mut self, length: usize, out: &mut Vec<u8>) -> usize {
        match self {
            Self::Plain { remaining: None } => length,
            Self::Plain { remaining: Some(remaining) } => {
                let taken = usize::try_from(*remaining).unwrap_or(usize::MAX).min(length);
                *remaining -= taken as u64;
                taken
            }
            Self::Chunked { .. } => {
                // An empty chunk would end the body.
                if length > 0 {
                    push_hex(out, length);
                    out.extend_from_slice(b"\r\n");
                }
                length
            }
        }
    }

    /// The bytes that the caller must write after a part.
    #[must_use]
    pub fn data_suffix(&self, length: usize) -> &'static [u8] {
        match self {
            Self::Chunked { .. } if length > 0 => b"\r\n",
            _ => b"",
        }
    }

    /// Writes the end of the body, with these trailers; returns whether the body was complete.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Plain { remaining } => remaining.is_none_or(|remaining| remaining == 0),
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

    /// Whether the whole Content-Length was written, so that nothing has to mark the end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self == Self::Plain { remaining: Some(0) }
    }
}

fn push_hex(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| LOWER_HEX[number >> (4 * digit) & 15]));
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn request(target: &str, lines: &[(&'static str, &'static str)], framing: Framing) -> String {
        let fields = lines.iter().copied().collect();
        let head = RequestHead { fields, ..RequestHead::new(Method::POST, target.parse().unwrap()) };
        let mut out = Vec::new();
        write_request(&mut out, &head, framing);
        String::from_utf8(out).unwrap()
    }

    /// A response with these lines, without the end of its head.
    fn response(status: u16, lines: &str, version: Version, framing: Framing, is_last: bool) -> String {
        let mut head = ResponseHead::new(StatusCode::from_u16(status).unwrap());
        head.fields = lines.split_terminator('|').map(|line| line.split_once(": ").unwrap()).collect();
        let mut out = Vec::new();
        let framing = ResponseFraming { version, body: framing, is_last };
        write_response(&mut out, &head, framing, b"now");
        let text = String::from_utf8(out).unwrap();
        text.strip_suffix("\r\n\r\n").unwrap().replace("\r\n", "|")
    }

    #[test]
    fn a_request_target_is_path_and_query() {
        for (target, sent) in
            [("/a?b", "/a?b"), ("http://b/c?d", "/c?d"), ("http://b", "/"), ("http://b?c", "/?c"), ("*", "*")]
        {
            assert_eq!(request(target, &[], Framing::Empty), format!("POST {sent} HTTP/1.1\r\n\r\n"));
        }
    }

    #[test]
    fn a_request_states_the_framing_of_its_body() {
        let lines = &[("Content-Length", "7"), ("Host", "a"), ("Transfer-Encoding", "x")];
        for (lines, framing, written) in [
            (&lines[1..2], Framing::Empty, ""),
            (lines, Framing::Empty, "content-length: 0\r\n"),
            (lines, Framing::Length(5), "content-length: 5\r\n"),
            (lines, Framing::Length(0), "content-length: 0\r\n"),
            (lines, Framing::Chunked, "transfer-encoding: chunked\r\n"),
            (lines, Framing::UntilClose, ""),
        ] {
            let expected = format!("POST / HTTP/1.1\r\nhost: a\r\n{written}\r\n");
            assert_eq!(request("/", lines, framing), expected, "{framing:?}");
        }
    }

    #[test]
    fn a_response_states_the_framing_of_its_body() {
        let lines = "x: y|content-length: 7|transfer-encoding: z";
        for (framing, written) in [
            (Framing::Length(5), "|content-length: 5"),
            (Framing::Length(0), "|content-length: 0"),
            (Framing::Chunked, "|transfer-encoding: chunked"),
            (Framing::UntilClose, ""),
        ] {
            let expected = format!("HTTP/1.1 200 OK|x: y|date: now{written}");
            assert_eq!(response(200, lines, Version::HTTP_11, framing, false), expected);
        }
    }

    #[test]
    fn a_response_without_a_body_keeps_its_length_except_with_1xx_and_204() {
        for (status, start, length) in [
            (200, "200 OK", "|content-length: 5"),
            (304, "304 Not Modified", "|content-length: 5"),
            (204, "204 No Content", ""),
            (101, "101 Switching Protocols", ""),
        ] {
            let expected = format!("HTTP/1.1 {start}{length}|date: now");
            assert_eq!(
                response(status, "content-length: 5", Version::HTTP_11, Framing::Empty, false),
                expected
            );
        }
    }

    #[test]
    fn a_response_states_whether_the_connection_is_kept_alive() {
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        for (version, is_last, lines, written) in [
            (new, false, "", ""),
            (new, true, "", "|connection: close"),
            (old, false, "", "|connection: keep-alive"),
            (old, true, "", "|connection: close"),
            (new, false, "connection: upgrade", ""),
            (new, true, "connection: upgrade", ""),
        ] {
            let before = if lines.is_empty() { String::new() } else { format!("|{lines}") };
            let expected = format!("{version:?} 200 OK{before}|date: now|content-length: 0{written}");
            assert_eq!(response(200, lines, version, Framing::Length(0), is_last), expected);
        }
    }

    /// RFC 9110 §6.6.1.
    #[test]
    fn a_response_has_one_date_and_keeps_its_reason_phrase() {
        let dated = response(200, "date: then", Version::HTTP_11, Framing::Length(0), false);
        assert_eq!(dated, "HTTP/1.1 200 OK|date: then|content-length: 0");
        for (status, reason, start) in [
            (404, None, "404 Not Found"),
            (404, Some("Nothing"), "404 Nothing"),
            (404, Some(""), "404 "),
            (299, None, "299 "),
        ] {
            let reason = reason.map(|reason: &str| reason.as_bytes().into());
            let head = ResponseHead { reason, ..ResponseHead::new(StatusCode::from_u16(status).unwrap()) };
            let mut out = Vec::new();
            let framing =
                ResponseFraming { version: Version::HTTP_11, body: Framing::UntilClose, is_last: false };
            write_response(&mut out, &head, framing, b"now");
            assert_eq!(out, format!("HTTP/1.1 {start}\r\ndate: now\r\n\r\n").as_bytes());
        }
    }

    fn encode(
        encoder: &mut BodyEncoder,
        parts: &[&str],
        trailers: &[(&'static str, &str)],
    ) -> (String, bool) {
        let mut out = Vec::new();
        for part in parts {
            let taken = encoder.start_data(part.len(), &mut out);
            out.extend_from_slice(&part.as_bytes()[..taken]);
            out.extend_from_slice(encoder.data_suffix(taken));
        }
        let trailers: HeaderMap = trailers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let is_complete = encoder.finish((!trailers.is_empty()).then_some(&trailers), &mut out);
        (String::from_utf8(out).unwrap(), is_complete)
    }

    #[test]
    fn empty_parts_write_no_chunk() {
        let mut encoder = BodyEncoder::new(Framing::Chunked, &Fields::new(), true);
        let long = "x".repeat(0x10f);
        let (text, is_complete) = encode(&mut encoder, &["hello", "", &long], &[("x-sum", "1")]);
        assert_eq!(text, format!("5\r\nhello\r\n10f\r\n{long}\r\n0\r\n\r\n"));
        assert!(is_complete && !encoder.is_complete());
    }

    #[test]
    fn only_announced_trailers_are_written_and_only_to_receivers_that_accept_them() {
        let fields: Fields = [("trailer", "X-Sum , x-y"), ("trailer", "z")].into_iter().collect();
        let trailers = &[("x-sum", "1"), ("x", "2"), ("z", "3")];
        for (takes_trailers, written) in [(true, "x-sum: 1\r\nz: 3\r\n"), (false, "")] {
            let mut encoder = BodyEncoder::new(Framing::Chunked, &fields, takes_trailers);
            assert_eq!(encode(&mut encoder, &[], trailers), (format!("0\r\n{written}\r\n"), true));
        }
    }

    #[test]
    fn a_body_longer_than_its_length_is_cut_and_a_shorter_one_is_noticed() {
        for (parts, written, is_complete) in [
            (&["hel", "lo"][..], "hello", true),
            (&["hello", "", "!"], "hello", true),
            (&["hel", "lo!"], "hello", true),
            (&["hell"], "hell", false),
            (&[], "", false),
        ] {
            let mut encoder = BodyEncoder::new(Framing::Length(5), &Fields::new(), true);
            assert!(!encoder.is_complete());
            assert_eq!(
                encode(&mut encoder, parts, &[("x", "y")]),
                (written.to_owned(), is_complete),
                "{parts:?}"
            );
            assert_eq!(encoder.is_complete(), is_complete);
        }
    }

    #[test]
    fn a_body_until_close_is_written_as_it_is() {
        let mut encoder = BodyEncoder::new(Framing::UntilClose, &Fields::new(), false);
        assert_eq!(encode(&mut encoder, &["a", "", "b"], &[]), ("ab".to_owned(), true));
        assert!(!encoder.is_complete(), "its end is that of the connection");
        let mut empty = BodyEncoder::new(Framing::Empty, &Fields::new(), false);
        assert!(empty.is_complete());
        assert_eq!(encode(&mut empty, &["a"], &[]), (String::new(), true));
    }
}
