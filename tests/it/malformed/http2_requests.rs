//! Every request of `http2_requests.txt`, and the request that the server receives.

use std::io::Read as _;
use std::sync::{Arc, Mutex};

use super::cases::{self, Case, unescaped};
use super::requests::{Seen, serve};
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::{Frames, Tidegate, Upstream, block, eventually};

const TABLE: &str = include_str!("http2_requests.txt");

pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads `name=value|name=value`.
pub(super) fn fields(text: &str) -> Fields {
    let pairs = text.split('|').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (unescaped(name), unescaped(value))
        })
        .collect()
}

/// Reads a head.
fn head(text: &str) -> Fields {
    let (start, more) = text.split_once('|').unwrap_or((text, ""));
    let names = [":method", ":scheme", ":authority", ":path"];
    let words = start.split(' ').filter(|word| !word.is_empty());
    let pseudo = names.iter().zip(words).map(|(name, word)| (name.as_bytes().to_vec(), unescaped(word)));
    pseudo.chain(fields(more)).collect()
}

/// Sends a case on a stream of its own.
fn send(connection: &mut Frames, text: &str) {
    let last = text.split(" > ").count() - 1;
    for (place, part) in text.split(" > ").enumerate() {
        let flag = if place == last { END_STREAM } else { 0 };
        // The proxy may have closed the connection by now.
        let _ = match part.strip_prefix('!') {
            _ if place == 0 => {
                connection.try_send(frames::HEADERS, flag | END_HEADERS, 1, &block(&head(part)))
            }
            Some(trailers) => {
                connection.try_send(frames::HEADERS, flag | END_HEADERS, 1, &block(&fields(trailers)))
            }
            None => connection.try_send(frames::DATA, flag, 1, &unescaped(part.trim())),
        };
    }
}

/// The fault of a case, if there is one.
fn verdict(case: &Case, response: Option<Result<u16, u32>>, seen: &Seen) -> Result<(), String> {
    let whole: Vec<_> = seen.whole.iter().filter(|request| request.start != "GET /canary HTTP/1.1").collect();
    if !seen.wrong.is_empty() {
        return Err(format!("the server saw {:?}", seen.wrong));
    }
    let is_right = match case.expected[0] {
        "pass" => response == Some(Ok(200)) && whole.len() == 1,
        "refused" => !matches!(response, Some(Ok(..400 | 500..))) && whole.is_empty(),
        status => response == Some(Ok(status.parse().unwrap())) && whole.is_empty(),
    };
    if !is_right {
        return Err(format!("{response:?}, seen: {whole:?}"));
    }
    match case.expected[1..].iter().find(|wanted| !whole[0].is_so(wanted)) {
        Some(wanted) => Err(format!("not so: {wanted}; the server saw {:?}", whole[0])),
        None => Ok(()),
    }
}

#[test]
fn every_stream_is_rejected_or_forwarded_unambiguously() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    let server = Upstream::scripted(move |caller| serve(caller, &shared));
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    cases::check(TABLE, |case| {
        let mut connection = Frames::connect(proxy.addr(), &[]);
        send(&mut connection, case.line.split_once("  ").unwrap().1);
        let response = connection.status(1);
        // A rejected request is not forwarded later either.
        let canary = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/canary")];
        if connection.try_send(frames::HEADERS, END_STREAM | END_HEADERS, 3, &block(&canary)).is_ok() {
            connection.status(3);
        }
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        verdict(case, response, &seen)
    });
}

#[test]
fn an_aborted_body_is_never_complete() {
    // Neither with an error nor without one, which the library takes for the end of the body.
    for code in [0_u32, 8] {
        let got = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&got);
        let server = Upstream::scripted(move |caller| {
            let (mut stream, mut piece) = (caller.stream(), [0; 4096]);
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                shared.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
        let mut connection = Frames::connect(proxy.addr(), &[]);
        connection.send(frames::HEADERS, END_HEADERS, 1, &block(&head("POST http a /x")));
        connection.send(frames::DATA, 0, 1, b"half of");
        eventually("the server has a part", || got.lock().unwrap().ends_with(b"half of\r\n"));
        connection.send(frames::RST_STREAM, 0, 1, &code.to_be_bytes());
        eventually("the server's connection is gone", || server.open() == 0);
        let got = got.lock().unwrap();
        assert!(got.ends_with(b"half of\r\n"), "{code}: {}", String::from_utf8_lossy(&got));
    }
}
