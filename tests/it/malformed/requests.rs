//! Every request of `requests.txt`, and the requests that the server receives.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use super::cases::{self, Case};
use super::strict_parser::{self, Fault, Strict};
use crate::support::{Caller, Client, Tidegate, Upstream};

const TABLE: &str = include_str!("requests.txt");
const CANARY: &str = "GET /canary HTTP/1.1\r\nHost: canary\r\n\r\n";

/// The requests that the server has received since the last case.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub whole: Vec<Strict>,
    /// Bytes that the grammar does not allow.
    pub wrong: Vec<String>,
}

/// The responses that the client received.
#[derive(Debug)]
struct Got {
    responses: Vec<Strict>,
    is_closed: bool,
}

/// Reads requests with the strict parser, and responds to each with its target.
pub(super) fn serve(caller: &Caller, seen: &Mutex<Seen>) {
    let mut stream = caller.stream();
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        loop {
            match strict_parser::request(&bytes) {
                Ok((request, taken)) => {
                    bytes.drain(..taken);
                    let target = request.start.split(' ').nth(1).unwrap_or("").to_owned();
                    seen.lock().unwrap().whole.push(request);
                    let length = target.len();
                    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{target}");
                    if stream.write_all(response.as_bytes()).is_err() {
                        return;
                    }
                }
                Err(Fault::Incomplete) => break,
                Err(Fault::Wrong(what)) => {
                    seen.lock().unwrap().wrong.push(what);
                    return;
                }
            }
        }
    }
}

/// Sends a case and another request, and reads until the response to that or the end of the connection.
fn send(address: SocketAddr, case: &[u8]) -> Result<Got, String> {
    let client = Client::connect(address);
    let mut stream: &TcpStream = client.stream();
    // The proxy may close the connection before it has read all.
    let _ = stream.write_all(&[case, CANARY.as_bytes()].concat());
    let (mut bytes, mut piece, mut is_closed) = (Vec::new(), [0; 16384], false);
    let mut responses: Vec<Strict> = Vec::new();
    loop {
        match strict_parser::response("GET", &bytes, is_closed) {
            Ok((response, taken)) => {
                bytes.drain(..taken);
                // The proxy has waited for the announced body.
                if response.status() != "100" {
                    responses.push(response);
                }
                if responses.last().is_some_and(|response| response.body == b"/canary") {
                    return Ok(Got { responses, is_closed });
                }
            }
            Err(Fault::Incomplete) if is_closed && bytes.is_empty() => {
                return Ok(Got { responses, is_closed });
            }
            Err(Fault::Incomplete) if !is_closed => match stream.read(&mut piece) {
                Ok(count @ 1..) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err(format!("no response and no end in time, but {responses:?}"));
                }
                // The connection has ended, also if it was reset because of unread bytes.
                Ok(_) | Err(_) => is_closed = true,
            },
            Err(fault) => return Err(format!("{fault:?} after {responses:?}")),
        }
    }
}

/// The fault of a case, if there is one.
fn verdict(case: &Case, got: &Got, seen: &Seen) -> Result<(), String> {
    let statuses: Vec<&str> = got.responses.iter().map(Strict::status).collect();
    let targets: Vec<&str> = seen.whole.iter().map(|request| &*request.start).collect();
    let outcome = format!("{statuses:?}, closed: {}, seen: {targets:?}", got.is_closed);
    if !seen.wrong.is_empty() {
        return Err(format!("the server saw {:?}", seen.wrong));
    }
    let (outcome_wanted, wants) = (case.expected[0], &case.expected[1..]);
    let canary = "GET /canary HTTP/1.1";
    let is_right = match outcome_wanted.split_once(' ') {
        None if outcome_wanted == "pass" => {
            statuses == ["200", "200"] && targets.len() == 2 && targets[1] == canary
        }
        Some(("pass", "close")) => {
            statuses == ["200"] && got.is_closed && targets.len() == 1 && targets[0] != canary
        }
        Some((status, "keep")) => statuses == [status, "200"] && targets == [canary],
        codes => {
            let codes = codes.map_or(outcome_wanted, |(codes, _)| codes);
            let is_one = |wanted: &str| match wanted {
                "close" => statuses.is_empty(),
                status => statuses == [status],
            };
            codes.split('/').any(is_one) && got.is_closed && targets.is_empty()
        }
    };
    if !is_right {
        return Err(outcome);
    }
    match wants.iter().find(|wanted| !seen.whole[0].is_so(wanted)) {
        Some(wanted) => Err(format!("not so: {wanted}; the server saw {:?}", seen.whole[0])),
        None => Ok(()),
    }
}

/// RFC 9112 §3.2, §3.2.4; RFC 9110 §4.2.1, §5.6.2.
#[test]
fn every_request_is_rejected_or_forwarded_unambiguously() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    let server = Upstream::scripted(move |caller| serve(caller, &shared));
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    cases::check(TABLE, |case| {
        let got = send(proxy.addr(), &case.bytes);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        got.and_then(|got| verdict(case, &got, &seen))
    });
}
