//! Every response of `responses.txt`, and the response that the client receives.

use std::io::Read as _;
use std::sync::{Arc, Mutex};

use super::cases::{self, Case};
use super::strict_parser::{self, Fault, Strict};
use crate::support::{Caller, Client, Tidegate, Upstream, get};

const TABLE: &str = include_str!("responses.txt");
const CANARY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ncanary";

/// Responds to a case with its bytes, and to other requests with the canary.
fn serve(caller: &mut Caller, case: &Mutex<Vec<u8>>) {
    while let Ok(Some(request)) = caller.request() {
        if !request.start.contains(" /case ") {
            if caller.try_send(CANARY).is_err() {
                return;
            }
            continue;
        }
        let bytes = case.lock().unwrap().clone();
        let (said, closes) = match bytes.strip_suffix(b"\\c") {
            Some(said) => (said, true),
            None => (&*bytes, false),
        };
        if caller.try_send(said).is_err() || closes {
            return;
        }
    }
}

/// The response that a client receives; nothing if it is incomplete.
pub(super) fn send(proxy: &Tidegate, method: &str) -> Result<Option<Strict>, String> {
    let mut client = Client::connect(proxy.addr());
    client.send(format!("{method} /case HTTP/1.1\r\nHost: a\r\n\r\n"));
    let (mut bytes, mut piece) = (Vec::new(), [0; 16384]);
    loop {
        discard_interim(&mut bytes);
        match strict_parser::response(method, &bytes, false) {
            Ok((_, taken)) if taken < bytes.len() => {
                return Err(format!("more than a response: {:?}", String::from_utf8_lossy(&bytes)));
            }
            Ok((response, _)) => return Ok(Some(response)),
            Err(Fault::Wrong(what)) => return Err(what),
            Err(Fault::Incomplete) => match client.stream().read(&mut piece) {
                Ok(count @ 1..) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err(format!("it hangs after {:?}", String::from_utf8_lossy(&bytes)));
                }
                Ok(_) | Err(_) => return Ok(None),
            },
        }
    }
}

/// Removes the interim responses at the beginning.
fn discard_interim(bytes: &mut Vec<u8>) {
    while bytes.starts_with(b"HTTP/1.1 1")
        && !bytes.starts_with(b"HTTP/1.1 101")
        && let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
    {
        bytes.drain(..end + 4);
    }
}

fn verdict(case: &Case, proxy: &Tidegate) -> Result<(), String> {
    let (method, wanted) = case.expected[0].split_once(' ').unwrap();
    let got = send(proxy, method)?;
    match (wanted, &got) {
        ("abort", None) => {}
        ("pass", Some(response)) => {
            if let Some(wanted) = case.expected[1..].iter().find(|wanted| !response.is_so(wanted)) {
                return Err(format!("not so: {wanted}; the client got {response:?}"));
            }
        }
        (status, Some(response)) if status == response.status() => {
            // The response to a HEAD has no body to check.
            if method != "HEAD" && !String::from_utf8_lossy(&response.body).contains("about:blank") {
                return Err(format!("not the proxy's own words: {response:?}"));
            }
        }
        _ => return Err(format!("the client got {got:?}")),
    }
    let next = get(proxy.addr(), "/canary", &[]);
    if (next.status(), &*next.body) == (200, b"canary") {
        Ok(())
    } else {
        Err(format!("the next client got {next:?}"))
    }
}

#[test]
fn every_response_is_unambiguous_or_visibly_incomplete() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&sent);
    let server = Upstream::scripted(move |caller| serve(caller, &shared));
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    cases::check(TABLE, |case| {
        sent.lock().unwrap().clone_from(&case.bytes);
        verdict(case, &proxy)
    });
}
