//! Every response of `http2_responses.txt`, and the response that the client receives.

use std::io::Read as _;
use std::sync::{Arc, Mutex};

use super::cases::{self, Case, unescaped};
use super::http2_requests::fields;
use super::responses;
use crate::support::frames::{self, END_HEADERS, END_STREAM, frame};
use crate::support::{Caller, Frames, Tidegate, Upstream, block, get};

const TABLE: &str = include_str!("http2_responses.txt");
const CANARY: &str = ":status=200 > \"canary$";

/// The frames of a response on this stream.
fn reply(text: &str, stream: u32) -> Vec<u8> {
    let part = |part: &str| {
        if let Some(code) = part.strip_prefix('~') {
            return frame(frames::RST_STREAM, 0, stream, &code.parse::<u32>().unwrap().to_be_bytes());
        }
        let (part, end) = part.strip_suffix('$').map_or((part, 0), |part| (part, END_STREAM));
        match part.strip_prefix('"') {
            Some(data) => frame(frames::DATA, end, stream, &unescaped(data)),
            None => frame(frames::HEADERS, end | END_HEADERS, stream, &block(&fields(part))),
        }
    };
    text.split(" > ").flat_map(part).collect()
}

/// Responds to each request with the case, while there is one, or else with the canary.
fn serve(caller: &Caller, case: &Mutex<Option<&'static str>>) {
    let mut preface = [0; 24];
    if caller.stream().read_exact(&mut preface).is_err() {
        return;
    }
    let mut connection = Frames::over(caller.stream().try_clone().unwrap());
    let _ = connection.try_send(frames::SETTINGS, 0, 0, &[]);
    while let Some(frame) = connection.read() {
        let said = match frame.kind {
            frames::SETTINGS if frame.flags == 0 => connection.try_send(frames::SETTINGS, END_STREAM, 0, &[]),
            frames::HEADERS => connection.raw(&reply(case.lock().unwrap().unwrap_or(CANARY), frame.stream)),
            _ => Ok(()),
        };
        if said.is_err() {
            return;
        }
    }
}

/// The fault of a case, if there is one.
fn verdict(case: &Case, proxy: &Tidegate) -> Result<(), String> {
    let got = responses::send(proxy, "GET")?;
    let is_refused = got.as_ref().is_some_and(|response| {
        response.status() == "502" && String::from_utf8_lossy(&response.body).contains("about:blank")
    });
    match (case.expected[0], &got) {
        ("502" | "broken", Some(_)) if is_refused => {}
        ("broken", None) => {}
        ("pass", Some(response)) => {
            if let Some(wanted) = case.expected[1..].iter().find(|wanted| !response.is_so(wanted)) {
                return Err(format!("not so: {wanted}; the client got {response:?}"));
            }
        }
        _ => return Err(format!("the client got {got:?}")),
    }
    Ok(())
}

#[test]
fn every_http_2_response_is_unambiguous_or_visibly_incomplete() {
    let sent = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&sent);
    let server = Upstream::scripted(move |caller| serve(caller, &shared));
    let proxy = Tidegate::start(&format!(
        "[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n[[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    ));
    cases::check(TABLE, |case| {
        *sent.lock().unwrap() = Some(case.line.split_once("  ").unwrap().1);
        let verdict = verdict(case, &proxy);
        *sent.lock().unwrap() = None;
        let next = get(proxy.addr(), "/canary", &[]);
        let next = if next.body == b"canary" { Ok(()) } else { Err(format!("the next client got {next:?}")) };
        verdict.and(next)
    });
}
