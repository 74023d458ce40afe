//! Generated messages of HTTP/1.1: mostly valid, with a few bytes changed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const REQUEST_LINE: &str =
    "(GET|HEAD|POST|PUT|OPTIONS|CONNECT|X-Y) (/|/c|/a\\?b|/é|/b#c|\\*|http://b/c|a:443) HTTP/1\\.(1|1|1|0)";
const STATUS_LINE: &str = "HTTP/1\\.(1|1|1|0) (200 OK|200|200 é|204 No Content|304 Not Modified|404 Nothing here|299 |101 Switching Protocols)";
const INTERIM: &str = "HTTP/1.1 (100 Continue|103 Early Hints|199)\r\n(Link: x\r\n)?\r\n";
const FIELD: &str = "(X|x-a|X_A|Cookie|Via|Accept):[ \t]{0,2}[!-~é][ -~é]{0,6}[ \t]?";
const CONNECTION: &str =
    "Connection: ?(close|Close|keep-alive|x, close|Keep-Alive ,te|é, keep-alive|é, close|,|\"close\")";
const OTHER: &str =
    "(Expect: (100-continue|100-Continue|x)|Upgrade: websocket|TE: trailers|Trailer: X-Sum|Date: x)";
const ODD_FRAMING: &str = "(Content-Length|Transfer-Encoding|content-length): ?([0-9]{1,2}|0[0-9]|[+]5|5, ?5|5,|chunked|CHUNKED|\
    gzip, chunked|identity|chunked, chunked|)";
/// A change of a byte.
const CHANGES: &[&str] = &[
    "", "\r", "\n", "\r\n", "\n\n", " ", "\t", ":", ";", ",", "0", "a", "x", "\0", "\u{b}", "\u{7f}", "é",
    "\r\n ",
];

/// The fields that frame a body, and the body.
type Body = (String, Vec<u8>);

fn field() -> impl Strategy<Value = String> {
    prop_oneof![12 => FIELD, 3 => CONNECTION, 2 => OTHER, 1 => ODD_FRAMING].prop_map(|line| line + "\r\n")
}

fn fields() -> impl Strategy<Value = String> {
    vec(field(), 0..5).prop_map(|lines| lines.concat())
}

fn chunk() -> impl Strategy<Value = Vec<u8>> {
    let digits = select(&["", "0", "00", "000000000000"][..]);
    (digits, vec(any::<u8>(), 1..40), any::<bool>(), "(|;a|; a=\"b\"|[ \t];x| )").prop_map(
        |(zeros, data, is_upper, extension)| {
            let size = if is_upper { format!("{:X}", data.len()) } else { format!("{:x}", data.len()) };
            [format!("{zeros}{size}{extension}\r\n").as_bytes(), &data, b"\r\n"].concat()
        },
    )
}

fn chunked() -> impl Strategy<Value = Body> {
    let trailer = "(X-Sum|Content-Length|x): ?[a-z0-9]{0,3}\r\n";
    // Trailers end the connection.
    let trailers = prop_oneof![2 => Just(Vec::new()), 1 => vec(trailer, 1..3)];
    let last = (select(&["0", "00", "0;x"][..]), trailers);
    (vec(chunk(), 0..4), last).prop_map(|(chunks, (last, trailers))| {
        let end = format!("{last}\r\n{}\r\n", trailers.concat());
        ("Transfer-Encoding: chunked\r\n".to_owned(), [chunks.concat(), end.into_bytes()].concat())
    })
}

fn with_length() -> impl Strategy<Value = Body> {
    let differences = select(&[0, 0, 0, 1][..]);
    (vec(any::<u8>(), 0..40), select(&["", "0"][..]), 1..3_usize, differences).prop_map(
        |(data, zeros, times, difference)| {
            // Sometimes one less than there is: the rest is read as a head.
            let length = data.len().saturating_sub(difference);
            (format!("Content-Length: {zeros}{length}\r\n").repeat(times), data)
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![2 => Just((String::new(), Vec::new())), 3 => with_length(), 4 => chunked()]
}

fn message(start: &'static str) -> impl Strategy<Value = Vec<u8>> {
    (start, fields(), body(), fields()).prop_map(|(start, before, (framing, body), behind)| {
        [format!("{start}\r\nHost: a\r\n{before}{framing}{behind}\r\n").as_bytes(), &body].concat()
    })
}

/// Changes bytes here and there, often at the end of a line.
fn changed(messages: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<bool>(), any::<Index>(), 0..3_usize, select(CHANGES));
    let changes = prop_oneof![2 => Just(Vec::new()), 3 => vec(change, 1..4)];
    (messages, changes).prop_map(|(mut bytes, changes)| {
        for (is_at_line_end, place, length, new) in changes {
            let ends: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b'\r').collect();
            let begin = match &ends[..] {
                ends @ [_, ..] if is_at_line_end => ends[place.index(ends.len())],
                _ => place.index(bytes.len()),
            };
            let end = (begin + length).min(bytes.len());
            bytes.splice(begin..end, new.bytes());
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    })
}

/// Requests of one connection.
pub fn requests() -> impl Strategy<Value = Vec<u8>> {
    let request = (select(&["", "", "", "\r\n", "\n"][..]), message(REQUEST_LINE));
    let requests = vec(request.prop_map(|(before, request)| [before.as_bytes(), &request].concat()), 1..4);
    changed(requests.prop_map(|requests| requests.concat()))
}

/// A response, perhaps with interim responses before it and bytes after it.
pub fn response() -> impl Strategy<Value = Vec<u8>> {
    let behind = prop_oneof![4 => Just(Vec::new()), 1 => vec(any::<u8>(), 1..4)];
    let parts = (vec(INTERIM, 0..3), message(STATUS_LINE), behind);
    changed(
        parts.prop_map(|(interim, response, behind)| {
            [interim.concat().as_bytes(), &response, &behind].concat()
        }),
    )
}
