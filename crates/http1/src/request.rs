//! Parser of request heads.

use std::mem::MaybeUninit;

use http::{Method, Uri, Version};

use super::fields::Fields;
use super::head::RequestHead;
use super::name::names::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use super::parse::{
    Framing, HeadLimits, ParseError, check_empty_lines, content_length, is_chunked, keeps_alive,
    may_be_complete,
};

/// The number of header lines that are parsed without an allocation.
const USUAL_HEADERS: usize = 100;

/// The longest request target, in bytes: the `http` crate accepts no longer one.
const MAX_TARGET: usize = 65_534;

/// A request whose head is complete.
#[derive(Debug)]
pub struct ParsedRequest {
    /// The head; boxed because it is large and moved often.
    pub head: Box<RequestHead>,
    /// How the end of the body is determined.
    pub framing: Framing,
    /// Whether the client keeps the connection alive for another request.
    pub keeps_alive: bool,
    /// Whether the client sends the body only after `100 Continue` (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// The length of the head in bytes.
    pub length: usize,
}

/// Parses the head of a request; none if it is not complete. An earlier call has seen the first `seen` bytes. `last_target` is
/// the target of an earlier request of the same client: if it repeats, it is not parsed again. Fails when the head is malformed,
/// ambiguous or too large. The connection can't be used for another request then.
pub fn parse_request(
    bytes: &[u8],
    seen: usize,
    limits: HeadLimits,
    last_target: Option<&Uri>,
) -> Result<Option<ParsedRequest>, ParseError> {
    check_empty_lines(bytes)?;
    if !may_be_complete(bytes, seen) {
        return if bytes.len() < limits.max_bytes { Ok(None) } else { Err(ParseError::TooLarge) };
    }
    let (mut usual, mut many) = ([MaybeUninit::uninit(); USUAL_HEADERS], Vec::new());
    let lines = if let Some(lines) = usual.get_mut(..limits.max_headers) {
        lines
    } else {
        many.resize(limits.max_headers, MaybeUninit::uninit());
        &mut many
    };
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(bytes, lines) {
        Ok(httparse::Status::Complete(length)) if length <= limits.max_bytes => length,
        Ok(httparse::Status::Partial) if bytes.len() < limits.max_bytes => return Ok(None),
        Ok(_) => return Err(ParseError::TooLarge),
        Err(httparse::Error::Token) if request.method.is_none() => return Err(ParseError::Method),
        Err(httparse::Error::Token) => return Err(ParseError::Target),
        Err(error) => return Err(error.into()),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| ParseError::Method)?;
    let uri = uri(target, last_target)?;
    let is_http_10 = request.version == Some(0);
    let mut fields = Fields::over(&bytes[..length]);
    let position = |part: &[u8]| (part.as_ptr().addr() - bytes.as_ptr().addr(), part.len());
    for line in request.headers.iter() {
        fields.add_line(position(line.name.as_bytes()), position(line.value));
    }
    let (framing, is_ambiguous) = framing(&mut fields, is_http_10)?;
    Ok(Some(ParsedRequest {
        framing,
        keeps_alive: !is_ambiguous && keeps_alive(&fields, is_http_10),
        expects_continue: !is_http_10 && fields.contains(EXPECT) && expects_continue(&fields),
        length,
        head: Box::new(RequestHead {
            method,
            uri,
            version: if is_http_10 { Version::HTTP_10 } else { Version::HTTP_11 },
            fields,
        }),
    }))
}

fn expects_continue(fields: &Fields) -> bool {
    fields.get_all(EXPECT).next_back().is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

fn uri(target: &str, last_target: Option<&Uri>) -> Result<Uri, ParseError> {
    if let Some(uri) = last_target.filter(|uri| uri.scheme().is_none())
        && uri.path_and_query().is_some_and(|path| path.as_str() == target)
    {
        return Ok(uri.clone());
    }
    if target.len() > MAX_TARGET {
        return Err(ParseError::TargetTooLong);
    }
    target.parse().map_err(|_| ParseError::Target)
}

/// The framing of the body, and whether there was a Content-Length beside chunked: then it is removed, and the connection
/// has to close after the request, since the client may have framed the body by the length (RFC 9112 §6.3).
fn framing(fields: &mut Fields, is_http_10: bool) -> Result<(Framing, bool), ParseError> {
    let length = content_length(fields, false)?;
    if fields.contains(TRANSFER_ENCODING) {
        if is_http_10 {
            // HTTP/1.0 has no transfer codings, so the framing is faulty (RFC 9112 §6.1).
            return Err(ParseError::Malformed(httparse::Error::HeaderValue));
        }
        is_chunked(fields)?;
        fields.remove(CONTENT_LENGTH);
        return Ok((Framing::Chunked, length.is_some()));
    }
    Ok((length.filter(|length| *length > 0).map_or(Framing::Empty, Framing::Length), false))
}

#[cfg(test)]
mod tests {
    use super::super::name::FieldName;
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { max_bytes: 1 << 20, max_headers: 100 };

    /// Parses a head in one piece and byte by byte, with equal results.
    fn parse(text: &str, limits: HeadLimits) -> Result<Option<ParsedRequest>, ParseError> {
        let whole = parse_request(text.as_bytes(), 0, limits, None);
        let mut pieces = (1..=text.len()).filter_map(|end| {
            let seen = if end == 1 { 0 } else { end - 1 };
            parse_request(&text.as_bytes()[..end], seen, limits, None).transpose()
        });
        let length = |parsed: Result<ParsedRequest, ParseError>| parsed.map(|parsed| parsed.length);
        let of_whole = whole.as_ref().map(|parsed| parsed.as_ref().map(|parsed| parsed.length));
        assert_eq!(pieces.next().map(length).transpose(), of_whole.map_err(|error| *error));
        whole
    }

    fn with_lines(lines: &str) -> Result<ParsedRequest, ParseError> {
        parse(&format!("POST / HTTP/1.1\r\n{lines}\r\n"), LIMITS).map(Option::unwrap)
    }

    #[test]
    fn a_head_is_parsed_with_its_lines() {
        let parsed = parse("\r\nPOST /a?b HTTP/1.1\r\nHost: a\nX:\ty \r\nEmpty:\r\n\r\nbody", LIMITS);
        let ParsedRequest { head, framing, keeps_alive, expects_continue, length } = parsed.unwrap().unwrap();
        assert_eq!(
            (head.method, head.uri.to_string(), head.version),
            (Method::POST, "/a?b".to_owned(), Version::HTTP_11)
        );
        let lines: Vec<_> = head.fields.iter().map(|field| (field.name.as_str(), field.value)).collect();
        assert_eq!(lines, [("host", &b"a"[..]), ("x", b"y"), ("empty", b"")]);
        assert_eq!((framing, keeps_alive, expects_continue, length), (Framing::Empty, true, false, 47));
        let mut out = Vec::new();
        head.fields.write(&mut out);
        assert_eq!(out, b"host: a\r\nx: y\r\nempty: \r\n");
    }

    #[test]
    fn a_repeated_target_is_used_again() {
        for (last, target) in
            [("/a?b", "/a?b"), ("/a?b", "/a"), ("http://b/a", "/a"), ("/a", "http://b/a"), ("a:443", "a:443")]
        {
            let head = format!("GET {target} HTTP/1.1\r\n\r\n");
            let parsed = parse_request(head.as_bytes(), 0, LIMITS, Some(&last.parse().unwrap()));
            assert_eq!(parsed.unwrap().unwrap().head.uri, *target, "behind {last}");
        }
    }

    /// RFC 9112 §6.3.
    #[test]
    fn a_body_has_a_length_or_is_chunked() {
        for (lines, framing, keeps) in [
            ("", Framing::Empty, true),
            ("Content-Length: 0\r\n", Framing::Empty, true),
            ("Content-Length: 05\r\ncontent-length: 5\r\n", Framing::Length(5), true),
            ("Content-Length: 9223372036854775807\r\n", Framing::Length(i64::MAX.unsigned_abs()), true),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked, true),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Framing::Chunked, false),
            ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", Framing::Chunked, false),
        ] {
            let parsed = with_lines(lines).unwrap();
            assert_eq!((parsed.framing, parsed.keeps_alive), (framing, keeps), "{lines:?}");
            assert!(framing != Framing::Chunked || !parsed.head.fields.contains(CONTENT_LENGTH), "{lines:?}");
        }
        for lines in [
            "Content-Length: 5, 5\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: x\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 9223372036854775808\r\n",
        ] {
            assert_eq!(with_lines(lines).unwrap_err(), ParseError::ContentLength, "{lines:?}");
        }
        assert_eq!(with_lines("Transfer-Encoding: gzip\r\n").unwrap_err(), ParseError::TransferCoding);
        let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(old, LIMITS).unwrap_err(), ParseError::Malformed(httparse::Error::HeaderValue));
    }

    /// RFC 9110 §10.1.1.
    #[test]
    fn expect_is_ignored_in_http_10() {
        assert!(with_lines("Expect: 100-Continue\r\n").unwrap().expects_continue);
        assert!(!with_lines("Expect: 100-continue\r\nExpect: x\r\n").unwrap().expects_continue);
        let old = parse("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", LIMITS).unwrap().unwrap();
        assert_eq!(
            (old.expects_continue, old.keeps_alive, old.head.version),
            (false, false, Version::HTTP_10)
        );
    }

    #[test]
    fn a_head_larger_than_the_limit_is_rejected() {
        let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(500));
        let limited = |max_bytes, text: &str| {
            parse(text, HeadLimits { max_bytes, ..LIMITS }).map(|parsed| parsed.is_some())
        };
        assert_eq!(limited(head.len(), &head), Ok(true));
        assert_eq!(limited(head.len(), &format!("{head}body")), Ok(true));
        assert_eq!(limited(head.len() - 1, &head), Err(ParseError::TooLarge));
        assert_eq!(limited(100, &head[..99]), Ok(false));
        assert_eq!(limited(100, &head[..100]), Err(ParseError::TooLarge));
    }

    #[test]
    fn a_head_with_more_lines_than_the_limit_is_rejected() {
        for max_headers in [0, 1, 10, 99, 100, 101, 250] {
            let limited = |count: usize| {
                let head = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(count));
                parse(&head, HeadLimits { max_headers, ..LIMITS })
                    .map(|parsed| parsed.unwrap().head.fields.len())
            };
            assert_eq!(limited(max_headers), Ok(max_headers));
            assert_eq!(limited(max_headers + 1), Err(ParseError::TooLarge));
        }
    }

    #[test]
    fn a_target_that_is_too_long_is_rejected() {
        let of = |length: usize| {
            let head = format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(length - 1));
            parse_request(head.as_bytes(), 0, LIMITS, None)
                .map(|parsed| parsed.unwrap().head.uri.path().len())
        };
        assert_eq!(of(MAX_TARGET), Ok(65_534));
        assert_eq!(of(MAX_TARGET + 1), Err(ParseError::TargetTooLong));
    }

    #[test]
    fn only_a_few_empty_lines_may_precede_a_head() {
        for (lines, is_right) in [(1, true), (31, true), (32, false), (5000, false)] {
            let head = format!("{}GET / HTTP/1.1\r\n\r\n", "\r\n".repeat(lines));
            assert_eq!(parse(&head, LIMITS).is_ok(), is_right, "{lines}");
        }
        let (empty, mut parsed) = ("\n".repeat(100), 0);
        while parse_request(&empty.as_bytes()[..parsed], 0, LIMITS, None).is_ok() {
            parsed += 1;
        }
        assert_eq!(parsed, 64);
    }

    #[test]
    fn errors_name_the_malformed_part() {
        for (head, error) in [
            ("G(T / HTTP/1.1\r\n\r\n", ParseError::Method),
            ("GET /\u{1} HTTP/1.1\r\n\r\n", ParseError::Target),
            ("GET ?a HTTP/1.1\r\n\r\n", ParseError::Target),
            ("GET / HTTP/1.2\r\n\r\n", ParseError::Malformed(httparse::Error::Version)),
            ("GET / HTTP/1.1\r\nX : y\r\n\r\n", ParseError::Malformed(httparse::Error::HeaderName)),
            ("GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", ParseError::Malformed(httparse::Error::HeaderName)),
            ("GET / HTTP/1.1\r\nX: \0\r\n\r\n", ParseError::Malformed(httparse::Error::HeaderValue)),
        ] {
            assert_eq!(parse(head, LIMITS).unwrap_err(), error, "{head:?}");
        }
        assert!(parse("GET / HTTP/1.1\r\nHost: a\r\n", LIMITS).unwrap().is_none());
        let parsed = with_lines("X-Y: 1\r\n").unwrap();
        assert_eq!(parsed.head.fields.get(FieldName::new(b"x-y")), Some(&b"1"[..]));
    }
}
