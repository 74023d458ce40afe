//! Requests and decisions that several files use.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tidegate::limits::{Allowed, Decision, Denied, Limiter};

use crate::support::{Message, patience};

/// The peer of all requests.
pub const PEER: &str = "127.0.0.1";

pub fn limiter(text: &str) -> Limiter {
    Limiter::from_toml(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A GET request with these headers.
pub fn request(target: &str, headers: &[(&str, &str)]) -> Request<()> {
    let request =
        headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
    let named = headers.iter().any(|(name, _)| *name == "host");
    if named { request } else { request.header("host", "a") }.body(()).unwrap()
}

/// Checks a GET request, and panics rather than wait for ever.
pub async fn check(limiter: &Limiter, target: &str, headers: &[(&str, &str)]) -> Decision {
    check_from(limiter, PEER, target, headers).await
}

pub async fn check_from(limiter: &Limiter, peer: &str, target: &str, headers: &[(&str, &str)]) -> Decision {
    let check = limiter.check(&request(target, headers), peer.parse::<IpAddr>().unwrap());
    tokio::time::timeout(patience(), check).await.expect("a check does not hang")
}

#[track_caller]
pub fn allowed(decision: Decision) -> Allowed {
    match decision {
        Decision::Allowed(allowed) => allowed,
        Decision::Denied(denied) => panic!("{denied:?}"),
    }
}

#[track_caller]
pub fn denied(decision: Decision) -> Denied {
    match decision {
        Decision::Allowed(allowed) => panic!("{allowed:?}"),
        Decision::Denied(denied) => denied,
    }
}

/// The status that a service sees or a client gets: 200, or that of the denial.
pub fn status(decision: &Decision) -> u16 {
    match decision {
        Decision::Allowed(_) => 200,
        Decision::Denied(denied) => denied.status().as_u16(),
    }
}

/// The response with which a service would respond that has no headers of its own.
pub fn response(decision: Decision) -> Response<Bytes> {
    match decision {
        Decision::Allowed(allowed) => {
            let mut response = Response::new(Bytes::new());
            allowed.write_headers(response.headers_mut());
            response
        }
        Decision::Denied(denied) => denied.into_response(),
    }
}

/// The headers that are to be those of the proxy, in order: not a random id, nor what is about a connection.
pub fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut shown: Vec<(String, String)> = headers
        .iter()
        .filter(|(name, _)| *name != "x-request-id" && *name != "connection")
        .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned()))
        .collect();
    shown.sort();
    shown
}

/// The same of a response of the proxy, without those of its connection and of the body that its route has.
pub fn shown_by_proxy(message: &Message) -> Vec<(String, String)> {
    let is_shown = |name: &str| match name {
        "date" | "content-length" | "connection" | "x-request-id" => false,
        "content-type" => message.status() != 200,
        _ => true,
    };
    let mut shown: Vec<(String, String)> = message
        .names()
        .into_iter()
        .filter(|name| is_shown(name))
        .map(|name| (name.clone(), message.header(&name).unwrap().to_owned()))
        .collect();
    shown.sort();
    shown
}

/// Waits for something in a task, and panics rather than wait for ever.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(patience(), future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// A file with this limit for all requests.
pub fn limited(limit: &str) -> String {
    format!("[limits.one]\n{limit}\n[[routes]]\npath = \"/*\"\nlimits = [\"one\"]\n")
}
