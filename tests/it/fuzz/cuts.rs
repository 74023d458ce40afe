//! Messages of HTTP/1.1 in two pieces, cut at each byte, and byte by byte.

use bytes::Bytes;
use http::Method;
use tidegate::http1::ParseError;

use super::http1::{self, End, Reading, pieces, read_requests, read_response};
use crate::malformed::cases;

const HOSTILE_REQUESTS: &str = include_str!("../malformed/requests.txt");
const HOSTILE_RESPONSES: &str = include_str!("../malformed/responses.txt");

/// Ordinary requests; `|` is a CRLF.
const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1|Host: a.test|User-Agent: curl/8.5.0|Accept: */*||",
    "POST /a?b=c HTTP/1.1|Host: a|Content-Type: text/plain|Content-Length: 11||hello world",
    "POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 2||hi",
    "PUT / HTTP/1.1|Host: a|Transfer-Encoding: chunked||5|hello|6;name=value| world|0||",
    "PUT / HTTP/1.1|Host: a|Transfer-Encoding: chunked||{60:1|x|2;a|yz|}c|hello, world|0||",
    "PUT / HTTP/1.1|Host: a|Transfer-Encoding: chunked||1|x|4000|{16384:y}|{9:1|z|}4000|{16384:y}|0||",
    "PUT / HTTP/1.1|Host: a|Transfer-Encoding: chunked||{60:1|x|}-1||",
    "PUT / HTTP/1.1|Host: a|Transfer-Encoding: chunked||{20000:1|x|}0||",
    "POST / HTTP/1.1|Host: a|Trailer: X-Sum|Transfer-Encoding: chunked||a|0123456789|0|X-Sum: 1|X-Other: 2||",
    "GET /1 HTTP/1.1|Host: a||GET /2 HTTP/1.1|Host: a||HEAD /2 HTTP/1.1|Host: a||",
    "POST /1 HTTP/1.1|Host: a|Content-Length: 3||abcPOST /2 HTTP/1.1|Host: a|Transfer-Encoding: chunked||1|x|0||",
    "||GET /1 HTTP/1.1|Host: a||||GET /2 HTTP/1.1|Host: a||",
    "GET / HTTP/1.0||",
    "GET / HTTP/1.0|Host: a|Connection: keep-alive||GET / HTTP/1.0||",
    "GET / HTTP/1.1|Host: a|Connection: close||GET /hidden HTTP/1.1|Host: a||",
    "GET /chat HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: websocket||",
];

/// The method of an ordinary request, and the response to it.
const RESPONSES: &[(&str, &str)] = &[
    ("GET", "HTTP/1.1 200 OK|Date: Sun, 06 Nov 1994 08:49:37 GMT|Server: x|Content-Length: 5||hello"),
    ("HEAD", "HTTP/1.1 200 OK|Content-Length: 5||"),
    ("GET", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||5|hello|6;name=value| world|0||"),
    ("GET", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||{60:1 |x|2;a|yz|}c|hello, world|0||"),
    ("GET", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||{4000:7   |chunked|}0||"),
    ("GET", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||{4000:7;name|chunked|}0||"),
    ("GET", "HTTP/1.1 200 OK|Trailer: Grpc-Status|Transfer-Encoding: chunked||5 |hello|0|Grpc-Status: 0||"),
    (
        "GET",
        "HTTP/1.1 100 Continue||HTTP/1.1 103 Early Hints|Link: </a>||HTTP/1.1 200 OK|Content-Length: 2||hi",
    ),
    ("GET", "HTTP/1.0 200 OK|Content-Type: text/plain||until the end"),
    ("GET", "HTTP/1.0 200 OK|Connection: keep-alive|Content-Length: 2||hi"),
    ("GET", "HTTP/1.1 204 No Content||"),
    ("GET", "HTTP/1.1 304 Not Modified|ETag: x||"),
    ("GET", "HTTP/1.1 404 Nothing here|Content-Length: 0||"),
    ("GET", "HTTP/1.1 101 Switching Protocols|Connection: Upgrade|Upgrade: websocket||bytes of it"),
    ("GET", "HTTP/1.1 200 OK|Content-Length: 2||hi and more"),
];

fn all_requests() -> Vec<Vec<u8>> {
    let hostile = cases::read(HOSTILE_REQUESTS).into_iter().map(|case| case.bytes);
    hostile.chain(REQUESTS.iter().map(|text| cases::unescaped(text))).collect()
}

fn all_responses() -> Vec<(Method, Vec<u8>)> {
    let hostile = cases::read(HOSTILE_RESPONSES).into_iter().map(|case| {
        let method = case.expected[0].split(' ').next().unwrap();
        (method.parse().unwrap(), case.bytes.strip_suffix(b"\\c").unwrap_or(&case.bytes).to_vec())
    });
    // No more of a message is checked.
    let hostile = hostile.map(|(method, mut bytes): (Method, Vec<u8>)| {
        bytes.truncate(100_000);
        (method, bytes)
    });
    let ordinary = RESPONSES.iter().map(|(method, text)| (method.parse().unwrap(), cases::unescaped(text)));
    hostile.chain(ordinary).collect()
}

/// Where a message is cut: everywhere, or in a long one at its ends and around the bounds of heads and trailers.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    let is_near_bound = |at: usize| (at + 3) % (16 * 1024) < 6 && at < 70_000;
    (1..length).filter(move |&at| length < 2048 || at < 96 || at + 64 > length || is_near_bound(at))
}

/// Checks that the bytes are read in the same way wherever the first `length` of them are cut.
fn check(bytes: &[u8], length: usize, read: impl Fn(&mut dyn Iterator<Item = Bytes>) -> Reading) {
    let whole = read(&mut pieces(255, bytes));
    assert_same(&whole, &read(&mut pieces(0, bytes)), bytes, "byte by byte");
    let shared = Bytes::copy_from_slice(bytes);
    for at in cuts(length) {
        let two = read(&mut [shared.slice(..at), shared.slice(at..)].into_iter());
        assert_same(&whole, &two, bytes, &format!("cut at {at}"));
    }
}

fn assert_same(whole: &Reading, other: &Reading, bytes: &[u8], how: &str) {
    let is_same = match (whole.end, other.end) {
        (one, other) if one == other => true,
        // A fault far inside a head that is too large need not be found.
        (End::Head(one), End::Head(two)) => [one, two].contains(&ParseError::TooLarge),
        // A head without an end is checked in its first piece only.
        (End::Head(_), End::Incomplete) => !has_end_of_head(bytes),
        _ => false,
    };
    let messages = (&whole.messages, whole.continues);
    let is_same = is_same && messages == (&other.messages, other.continues);
    assert!(is_same, "{how}: {}\n{whole:?}\n{other:?}", bytes.escape_ascii());
}

fn has_end_of_head(bytes: &[u8]) -> bool {
    [&b"\n\n"[..], b"\n\r\n"].iter().any(|end| bytes.windows(end.len()).any(|window| window == *end))
}

#[test]
fn requests_are_read_the_same_wherever_they_are_cut() {
    for bytes in all_requests() {
        let followed = [&*bytes, http1::CANARY].concat();
        check(&followed, bytes.len() + 1, |pieces| read_requests(pieces));
    }
}

#[test]
fn responses_are_read_the_same_wherever_they_are_cut() {
    for (method, bytes) in all_responses() {
        check(&bytes, bytes.len(), |pieces| read_response(&method, pieces));
    }
}

#[test]
fn hostile_and_ordinary_messages_are_read_as_hyper_reads_them() {
    // A piece of a long message has more than a few bytes.
    let seeds = |bytes: &[u8]| if bytes.len() < 4096 { [0, 5, 255] } else { [100, 150, 200] };
    for bytes in all_requests() {
        for seed in seeds(&bytes) {
            http1::requests(&[&[seed], &*bytes].concat());
        }
    }
    for (method, bytes) in all_responses() {
        for seed in seeds(&bytes) {
            http1::responses(&[&[seed, u8::from(method != Method::HEAD)], &*bytes].concat());
        }
    }
}
