//! Authorization requests.

use std::net::SocketAddr;

use crate::support::{Client, Message};

/// The only trusted proxy of these tests.
pub const PROXY: &str = "127.0.0.9";

/// The head of a file with a listener for authorization requests.
pub const ASKING: &str = "\
    [[listeners]]\naddress = \"127.0.0.1:0\"\nrespond = \"decide\"\n\
    [client_ip]\ntrusted_proxies = [\"127.0.0.9\"]\n";

/// Asks whether a request such as `GET api.test /orders` from this client is allowed, as Traefik and Caddy do.
#[track_caller]
pub fn ask(address: SocketAddr, request: &str, client: &str, more: &[&str]) -> Message {
    let [method, host, target] = request.split(' ').collect::<Vec<_>>()[..] else { panic!("{request}") };
    let lines = [
        format!("X-Forwarded-Method: {method}"),
        format!("X-Forwarded-Host: {host}"),
        format!("X-Forwarded-Uri: {target}"),
        format!("X-Forwarded-For: {client}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(more.iter().copied()).collect();
    asking(address, "/any?path", &lines)
}

/// Sends a request with these headers from the trusted proxy.
#[track_caller]
pub fn asking(address: SocketAddr, target: &str, headers: &[&str]) -> Message {
    Client::connect_from(PROXY, address).get(target, headers)
}
