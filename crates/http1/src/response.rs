//! Parser of response heads.

use std::mem::MaybeUninit;

use http::{Method, StatusCode, Version};

use super::fields::Fields;
use super::head::ResponseHead;
use super::name::names::TRANSFER_ENCODING;
use super::parse::{
    Framing, HeadLimits, ParseError, check_empty_lines, content_length, is_chunked, keeps_alive,
    may_be_complete,
};

/// The most header lines of a response.
const MAX_HEADERS: usize = 100;

/// A response whose head is complete.
#[derive(Debug)]
pub struct ParsedResponse {
    /// The head. Framing fields of an interim response other than 101 are not checked, and have no meaning.
    pub head: ResponseHead,
    /// How the end of the body is determined.
    pub framing: Framing,
    /// Whether the server keeps the connection alive for another request.
    pub keeps_alive: bool,
    /// The length of the head in bytes.
    pub length: usize,
}

/// Parses the head of a response, which may be an interim one, to a request with this method; none if it is not complete. An
/// earlier call has seen the first `seen` bytes. The number of lines has a fixed limit, not that of `limits`. Fails when the head
/// is malformed, ambiguous or too large. The connection can't be used for another request then.
pub fn parse_response(
    bytes: &[u8],
    seen: usize,
    limits: HeadLimits,
    method: &Method,
) -> Result<Option<ParsedResponse>, ParseError> {
    check_empty_lines(bytes)?;
    if !may_be_complete(bytes, seen) {
        return if bytes.len() < limits.max_bytes { Ok(None) } else { Err(ParseError::TooLarge) };
    }
    let mut lines = [MaybeUninit::uninit(); MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut lines)? {
        httparse::Status::Complete(length) if length <= limits.max_bytes => length,
        httparse::Status::Partial if bytes.len() < limits.max_bytes => return Ok(None),
        _ => return Err(ParseError::TooLarge),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(ParseError::Status)?;
    let mut head =
        ResponseHead { status, reason: None, version: Version::HTTP_11, fields: Fields::default() };
    let is_http_10 = response.version == Some(0);
    if is_http_10 {
        head.version = Version::HTTP_10;
    }
    let reason = response.reason.unwrap_or_default();
    if status.canonical_reason() != Some(reason) {
        head.reason = Some(reason.as_bytes().into());
    }
    head.fields = Fields::over(&bytes[..length]);
    let position = |part: &[u8]| (part.as_ptr().addr() - bytes.as_ptr().addr(), part.len());
    for line in response.headers.iter() {
        head.fields.add_line(position(line.name.as_bytes()), position(line.value));
    }
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Some(ParsedResponse { head, framing: Framing::Empty, keeps_alive: true, length }));
    }
    let framing = framing(&mut head, is_http_10, method)?;
    let keeps_alive = framing != Framing::UntilClose && keeps_alive(&head.fields, is_http_10);
    Ok(Some(ParsedResponse { head, framing, keeps_alive, length }))
}

fn framing(head: &mut ResponseHead, is_http_10: bool, method: &Method) -> Result<Framing, ParseError> {
    let length = content_length(&mut head.fields, true)?;
    let is_chunked = is_chunked(&head.fields)?;
    if is_chunked && is_http_10 {
        return Err(ParseError::TransferCoding);
    }
    if is_chunked && length.is_some() {
        return Err(ParseError::Ambiguous);
    }
    if *method == Method::HEAD || head.is_bodiless() {
        head.fields.remove(TRANSFER_ENCODING);
        return Ok(Framing::Empty);
    }
    Ok(match length {
        _ if is_chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    })
}

#[cfg(test)]
mod tests {
    use super::super::name::names::{CONTENT_LENGTH, LOCATION, UPGRADE};
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { max_bytes: 4096, max_headers: 100 };

    fn parse(method: &Method, text: &str) -> Result<Option<ParsedResponse>, ParseError> {
        parse_response(text.as_bytes(), 0, LIMITS, method)
    }

    /// The framing of a response with this status line and these lines, and whether the connection is kept alive.
    fn framed(method: &Method, status: &str, lines: &str) -> Result<(Framing, bool), ParseError> {
        let parsed = parse(method, &format!("{status}\r\n{lines}\r\n"))?.unwrap();
        Ok((parsed.framing, parsed.keeps_alive))
    }

    /// The rules of RFC 9112 §6.3, in their order.
    /// RFC 9112 §6.3.
    #[test]
    fn the_head_determines_the_framing_of_the_body() {
        let (get, head) = (&Method::GET, &Method::HEAD);
        let (length, chunked, both) = (
            "Content-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        );
        let ok = "HTTP/1.1 200 OK";
        for (method, status, lines, expected) in [
            (head, ok, length, Ok((Framing::Empty, true))),
            (head, ok, chunked, Ok((Framing::Empty, true))),
            (head, ok, "", Ok((Framing::Empty, true))),
            (get, "HTTP/1.1 204 No Content", length, Ok((Framing::Empty, true))),
            (get, "HTTP/1.1 304 Not Modified", chunked, Ok((Framing::Empty, true))),
            (get, "HTTP/1.1 101 Switching Protocols", "", Ok((Framing::Empty, true))),
            (get, ok, both, Err(ParseError::Ambiguous)),
            (head, ok, both, Err(ParseError::Ambiguous)),
            (get, ok, chunked, Ok((Framing::Chunked, true))),
            (get, ok, "Transfer-Encoding: gzip\r\n", Err(ParseError::TransferCoding)),
            (get, ok, "Transfer-Encoding: gzip, chunked\r\n", Err(ParseError::TransferCoding)),
            (get, "HTTP/1.0 200 OK", chunked, Err(ParseError::TransferCoding)),
            (get, ok, "Content-Length: 5\r\nContent-Length: 6\r\n", Err(ParseError::ContentLength)),
            (head, ok, "Content-Length: x\r\n", Err(ParseError::ContentLength)),
            (get, ok, length, Ok((Framing::Length(5), true))),
            (get, ok, "Content-Length: 0\r\n", Ok((Framing::Length(0), true))),
            (get, ok, "Content-Length: 5, 05\r\nContent-Length: 5\r\n", Ok((Framing::Length(5), true))),
            (get, ok, "Connection: close\r\nContent-Length: 5\r\n", Ok((Framing::Length(5), false))),
            (get, "HTTP/1.0 200 OK", length, Ok((Framing::Length(5), false))),
            (
                get,
                "HTTP/1.0 200 OK",
                "Connection: keep-alive\r\nContent-Length: 5\r\n",
                Ok((Framing::Length(5), true)),
            ),
            (get, ok, "", Ok((Framing::UntilClose, false))),
            (get, "HTTP/1.0 200 OK", "Connection: keep-alive\r\n", Ok((Framing::UntilClose, false))),
        ] {
            assert_eq!(framed(method, status, lines), expected, "{method} {status} {lines:?}");
        }
    }

    #[test]
    fn a_length_gets_its_canonical_form_and_the_coding_of_an_absent_body_is_removed() {
        let parsed =
            parse(&Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 5, 05\r\n\r\n").unwrap().unwrap();
        assert_eq!(parsed.head.fields.get_all(CONTENT_LENGTH).collect::<Vec<_>>(), [b"5"]);
        let parsed =
            parse(&Method::HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap().unwrap();
        assert!(parsed.head.fields.is_empty());
    }

    #[test]
    fn framing_fields_of_interim_responses_have_no_meaning() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLocation: x\r\nContent-Length: x\r\n\r\n";
        let parsed = parse(&Method::GET, &format!("{interim}HTTP/1.1 200 OK\r\n\r\n")).unwrap().unwrap();
        assert_eq!(
            (parsed.length, parsed.framing, parsed.keeps_alive),
            (interim.len(), Framing::Empty, true)
        );
        assert_eq!(parsed.head.fields.get(LOCATION), Some(&b"x"[..]));
        let mut written = Vec::new();
        crate::write_interim(&mut written, &parsed.head);
        assert_eq!(written, b"HTTP/1.1 103 Early Hints\r\nlocation: x\r\n\r\n");
        let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
        assert!(parse(&Method::GET, switching).unwrap().unwrap().head.fields.contains(UPGRADE));
    }

    #[test]
    fn only_an_unusual_reason_phrase_is_kept() {
        for (status, reason) in [
            ("200 OK", None),
            ("200 Fine", Some("Fine")),
            ("200 ", Some("")),
            ("200", Some("")),
            ("299 ", Some("")),
            ("299 x y", Some("x y")),
            // httparse drops a reason phrase that is not ASCII.
            ("200 \u{e9}", Some("")),
        ] {
            let parsed = parse(&Method::GET, &format!("HTTP/1.1 {status}\r\n\r\n")).unwrap().unwrap();
            assert_eq!(parsed.head.reason.as_deref(), reason.map(str::as_bytes), "{status:?}");
        }
        for status in ["000 x", "099 x", "20 x", "2000 x", "+20 x", "x"] {
            assert!(parse(&Method::GET, &format!("HTTP/1.1 {status}\r\n\r\n")).is_err(), "{status:?}");
        }
    }

    #[test]
    fn a_head_larger_than_the_limits_is_rejected() {
        let with_lines = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert_eq!(parse(&Method::GET, &with_lines(100)).unwrap().unwrap().head.fields.len(), 100);
        assert_eq!(parse(&Method::GET, &with_lines(101)).unwrap_err(), ParseError::TooLarge);
        let of = |bytes: usize| format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(bytes - 24));
        assert_eq!(parse(&Method::GET, &of(4096)).unwrap().unwrap().length, 4096);
        assert_eq!(parse(&Method::GET, &of(4097)).unwrap_err(), ParseError::TooLarge);
        let (long, method) = (of(5000), Method::GET);
        for end in 1..5000 {
            let seen = if end == 1 { 0 } else { end - 1 };
            let parsed = parse_response(&long.as_bytes()[..end], seen, LIMITS, &method);
            let is_over = end >= 4096;
            assert!(if is_over { parsed.is_err() } else { matches!(parsed, Ok(None)) }, "{end}");
        }
    }
}
