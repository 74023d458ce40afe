//! One client holds many exchanges that stay silent: tunnels, event streams, and requests to a slow endpoint. Other clients are
//! served all the same, with and without `overload`.

use std::io::Write as _;
use std::net::TcpStream;

use super::setup::OK;
use crate::support::{Client, Tidegate, Upstream, connect_from, eventually};

const ATTACKER: &str = "127.0.0.2";
/// The exchanges that the attacker opens.
const EXCHANGES: usize = 200;
/// The connections to the server, which are fewer.
const CONNECTIONS: usize = 100;
const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A server that sends nothing after the head of an event stream or a handshake, and nothing at all on `/slow`.
fn server() -> Upstream {
    Upstream::scripted(|caller| {
        caller.stream().set_read_timeout(None).unwrap();
        while let Ok(Some(request)) = caller.request() {
            let head = match request.start.split(' ').nth(1) {
                Some("/events") => EVENTS,
                Some("/ws") => SWITCH,
                Some("/slow") => "",
                _ => {
                    if caller.try_send(OK).is_err() {
                        return;
                    }
                    continue;
                }
            };
            let _ = caller.try_send(head);
            let _ = caller.read_to_close();
            return;
        }
    })
}

/// Sends many requests with this head, and lets all of them be silent.
fn attack(proxy: &Tidegate, head: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = connect_from(ATTACKER, proxy.addr()).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    (0..EXCHANGES).map(open).collect()
}

/// Other clients are served while one has as many exchanges with this head as it can open, of which the server has `least`.
fn others_are_served(head: &str, settings: &str, least: usize) {
    let server = server();
    let proxy = Tidegate::start(&format!(
        "workers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams.u]\nservers = [\"{}\"]\nmax_connections = {CONNECTIONS}\n{settings}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    ));
    let silent = attack(&proxy, head);
    eventually("the server has the requests", || server.received() >= least);
    // Each from another address.
    let statuses = (0..15).map(|number| {
        let from = format!("127.0.1.{}", number + 1);
        Client::connect_from(&from, proxy.addr()).get("/", &[]).status()
    });
    assert_eq!(statuses.collect::<Vec<_>>(), [200; 15], "{head} {settings}");
    drop(silent);
}

fn request(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn silent_websockets_keep_out_nobody() {
    let handshake = request(
        "/ws",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    );
    others_are_served(&handshake, "", CONNECTIONS);
    others_are_served(&handshake, "max_tunnels_per_client = 8", 8);
    others_are_served(&handshake, "overload = true", 8);
}

#[test]
fn silent_event_streams_keep_out_nobody() {
    others_are_served(&request("/events", ""), "", CONNECTIONS);
    others_are_served(&request("/events", ""), "overload = true", 8);
}

#[test]
fn requests_that_the_server_does_not_answer_keep_out_nobody() {
    others_are_served(&request("/slow", ""), "", CONNECTIONS);
    // The reserved share is 1 of 8.
    others_are_served(&request("/slow", ""), "overload = true", 7);
}
