//! Hostile servers beside a good one. The outcome of single responses is tested in [`crate::malformed`].

use std::time::{Duration, Instant};

use super::connections::Connections;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

const CASES: &[Case] = &[
    Case {
        name: "servers with endless heads",
        listener: "",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            flood_server(
                setup,
                b"X-Endless: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n",
            );
        },
    },
    Case {
        name: "servers with an endless field",
        listener: "",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            flood_server(setup, b"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy");
        },
    },
    Case {
        name: "servers that send only interim responses",
        listener: "",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| flood_server(setup, b"Link: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\n"),
    },
    Case {
        name: "servers that close at once",
        listener: "",
        max_growth: 16 * 1024,
        accepts_clients: true,
        attack: |setup| flood_server(setup, b""),
    },
    Case {
        name: "requests to a server that never responds",
        listener: "",
        max_growth: 32 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(300, || setup.connect());
            connections.send(b"GET /few HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            connections.wait(5 * SECOND);
            // Some had a connection, some waited for one, and all others were rejected at once.
            let count = |status: &[u8]| {
                connections.received().filter(|received| received.get(9..12) == Some(status)).count()
            };
            assert_eq!((count(b"503"), count(b"504")), (290, 10));
            assert!(setup.silent.connections() <= 10);
        },
    },
];

/// A server that responds with an endless body.
pub fn endless() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(Some(_)) = caller.request() else { return };
        let chunk = [&b"10000\r\n"[..], &vec![b'x'; 0x1_0000], b"\r\n"].concat();
        let mut sent = caller.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while sent.is_ok() {
            sent = caller.try_send(&chunk);
        }
    })
}

/// A server that accepts WebSocket handshakes and then sends nothing.
pub fn tunnel() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(Some(_)) = caller.request() else { return };
        let _ = caller.try_send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        caller.read_to_close();
    })
}

/// A server that begins a response and then repeats the body of the request without end.
pub fn repeating() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(Some(request)) = caller.request() else { return };
        let part = request.body.repeat(1000);
        let mut sent = caller.try_send("HTTP/1.1 103 Early Hints\r\n");
        while sent.is_ok() && !part.is_empty() {
            sent = caller.try_send(&part);
        }
    })
}

/// Sends requests to a server that repeats this part in its responses; each request gets a 502.
#[track_caller]
fn flood_server(setup: &Setup, part: &[u8]) {
    let until = Instant::now() + SECOND;
    let head = format!(
        "POST /repeating HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        part.len()
    );
    while Instant::now() < until {
        let mut connections = Connections::new(20, || setup.connect());
        connections.send(&[head.as_bytes(), part].concat());
        connections.wait(5 * SECOND);
        // A few interim responses may come first.
        let is_rejected = |received: &[u8]| has_part(received, b"HTTP/1.1 502 ");
        assert!(connections.received().all(is_rejected));
    }
    eventually("the connections to the server are closed", || setup.repeating.open() == 0);
}

/// Whether these bytes contain a part.
fn has_part(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn hostile_servers_do_not_harm_other_clients() {
    run(CASES);
}
