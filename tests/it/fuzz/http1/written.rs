//! Heads that were read, as they are written and read again.

use http::{Method, Uri, Version};
use tidegate::http1::{
    Fields, Framing, ResponseFraming, names, parse_request, parse_response, write_request, write_response,
};

use super::ours::LIMITS;

/// A request leaves with the same method, path, fields and framing.
pub fn check_request(bytes: &[u8]) {
    let Ok(Some(parsed)) = parse_request(bytes, 0, LIMITS, None) else { return };
    let mut out = Vec::new();
    write_request(&mut out, &parsed.head, parsed.framing);
    let Ok(Some(again)) = parse_request(&out, 0, LIMITS_OF_OUTPUT, None) else {
        panic!("what was written is no request: {}", out.escape_ascii());
    };
    assert_eq!((again.length, &again.head.method), (out.len(), &parsed.head.method));
    assert_eq!(
        (again.head.uri.path(), again.head.uri.query()),
        (path(&parsed.head.uri), parsed.head.uri.query())
    );
    assert_eq!(again.framing, parsed.framing);
    assert_eq!(rest(&again.head.fields), rest(&parsed.head.fields));
    check_framing(&again.head.fields, again.framing);
}

/// A response leaves with the same status, reason, fields and framing.
pub fn check_response(method: &Method, bytes: &[u8]) {
    let Ok(Some(parsed)) = parse_response(bytes, 0, LIMITS, method) else { return };
    // A Date and a Transfer-Encoding may come on top of the lines, which are 100 at most.
    if parsed.head.status.is_informational() || parsed.head.fields.len() > 98 {
        return;
    }
    let framing = if parsed.framing == Framing::UntilClose { Framing::Chunked } else { parsed.framing };
    let mut out = Vec::new();
    let written = ResponseFraming { version: Version::HTTP_11, body: framing, is_last: false };
    write_response(&mut out, &parsed.head, written, b"now");
    let Ok(Some(mut again)) = parse_response(&out, 0, LIMITS_OF_OUTPUT, method) else {
        panic!("what was written is no response: {}", out.escape_ascii());
    };
    assert_eq!((again.length, again.head.status), (out.len(), parsed.head.status));
    assert_eq!((again.framing, again.head.reason), (framing, parsed.head.reason));
    if !parsed.head.fields.contains(names::DATE) {
        assert!(again.head.fields.remove(names::DATE), "each response has a date");
    }
    assert_eq!(rest(&again.head.fields), rest(&parsed.head.fields));
    if framing != Framing::Empty {
        check_framing(&again.head.fields, framing);
    }
}

/// A head that is written may be longer than it was, by a Date and by the blanks behind colons.
const LIMITS_OF_OUTPUT: tidegate::http1::HeadLimits =
    tidegate::http1::HeadLimits { max_bytes: 2 * LIMITS.max_bytes, max_headers: LIMITS.max_headers + 2 };

/// The path that is asked for, which a CONNECT has not.
fn path(uri: &Uri) -> &str {
    if uri.path().is_empty() { "/" } else { uri.path() }
}

/// The lines that do not say how a body is framed.
fn rest(fields: &Fields) -> Vec<(&str, &[u8])> {
    let is_framing = |name| matches!(name, "content-length" | "transfer-encoding");
    let lines = fields.iter().map(|field| (field.name.as_str(), field.value));
    lines.filter(|(name, _)| !is_framing(*name)).collect()
}

/// One line says how the body is framed, and it is right.
fn check_framing(fields: &Fields, framing: Framing) {
    let lengths: Vec<&[u8]> = fields.get_all(names::CONTENT_LENGTH).collect();
    let codings: Vec<&[u8]> = fields.get_all(names::TRANSFER_ENCODING).collect();
    match framing {
        Framing::Length(length) => {
            assert_eq!((lengths, codings.len()), (vec![length.to_string().as_bytes()], 0));
        }
        Framing::Chunked => assert_eq!((lengths.len(), codings), (0, vec![&b"chunked"[..]])),
        Framing::Empty | Framing::UntilClose => {
            assert!(codings.is_empty() && lengths.iter().all(|length| **length == *b"0"));
        }
    }
}
