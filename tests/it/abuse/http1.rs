//! HTTP/1.1 in cleartext.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::connections::Connections;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

const CASES: &[Case] = &[
    Case {
        name: "heads that come a byte at a time",
        listener: "header_timeout = \"500ms\"",
        max_growth: 20 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(300, || setup.connect());
            connections.drip(
                b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
                5 * SECOND,
            );
        },
    },
    Case {
        name: "bodies that stop half-way",
        listener: "body_timeout = \"500ms\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(200, || setup.connect());
            connections.send(b"POST /free HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf");
            connections.wait(5 * SECOND);
            assert_responses(&connections, b"HTTP/1.1 408 ");
        },
    },
    Case {
        name: "bodies that do not follow a 100 (Continue)",
        listener: "body_timeout = \"500ms\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(200, || setup.connect());
            connections
                .send(b"POST /free HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
            connections.wait(5 * SECOND);
        },
    },
    Case {
        name: "large responses that the client does not read",
        listener: "idle_timeout = \"1s\"",
        max_growth: 32 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let connections = Connections::new(100, || setup.connect());
            for mut stream in connections.streams() {
                stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            }
            eventually("all are under way", || setup.endless.connections() >= 100);
            eventually("all are aborted", || setup.endless.open() == 0);
        },
    },
    Case {
        name: "large responses that the client reads slowly",
        listener: "",
        max_growth: 32 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let connections = Connections::new(100, || setup.connect());
            for mut stream in connections.streams() {
                stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            }
            let until = Instant::now() + 2 * SECOND;
            while Instant::now() < until {
                for mut stream in connections.streams() {
                    let _ = stream.read(&mut [0; 1000]);
                }
                // The slow reading is what is tested.
                std::thread::sleep(Duration::from_millis(20));
            }
        },
    },
    Case {
        name: "the maximum of silent connections",
        listener: "max_connections = 100\nidle_timeout = \"3s\"",
        max_growth: 8 * 1024,
        accepts_clients: false,
        attack: |setup| {
            let mut connections = Connections::new(150, || setup.connect());
            eventually("the connections over the limit are closed", || connections.open() <= 100);
            let series = format!("tidegate_connections{{listener=\"{}\"}}", setup.plain);
            let open = setup.proxy.metric(&series);
            assert!((50..=100).contains(&open), "{open}");
            connections.wait(5 * SECOND);
            // New connections are accepted again.
            let mut other = setup.connect();
            other.write_all(b"GET /own HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut response = String::new();
            other.read_to_string(&mut response).unwrap();
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        },
    },
    Case {
        name: "connections that are reset at once",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            for number in 0..2000 {
                let mut stream = setup.connect();
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                if number % 2 == 0 {
                    let _ = stream.write_all(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
                }
            }
            eventually("the connections to the server are closed", || setup.silent.open() == 0);
        },
    },
    Case {
        name: "heads of a mebibyte",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let head = [&b"GET / HTTP/1.1\r\nHost: a\r\nX-Giant: "[..], &vec![b'y'; 1 << 20]].concat();
            assert_rejected(setup, 50, &head, b"HTTP/1.1 431 ");
        },
    },
    Case {
        name: "heads with thousands of headers",
        listener: "max_header_bytes = \"512KiB\"",
        max_growth: 12 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let head = [&b"GET / HTTP/1.1\r\nHost: a\r\n"[..], &b"a:\r\n".repeat(100_000), b"\r\n"].concat();
            assert_rejected(setup, 50, &head, b"HTTP/1.1 431 ");
        },
    },
    Case {
        name: "endless chunk extensions",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let head = b"POST /free HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;";
            assert_rejected(setup, 20, &[&head[..], &vec![b'e'; 1 << 20]].concat(), b"HTTP/1.1 400 ");
        },
    },
    Case {
        name: "endless trailers",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let head = b"POST /free HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
            assert_rejected(setup, 20, &[&head[..], &b"T: t\r\n".repeat(200_000)].concat(), b"HTTP/1.1 400 ");
        },
    },
    Case {
        name: "chunks of one byte",
        listener: "",
        max_growth: 12 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let head = b"POST /silent HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            flood(setup, 8, head, &b"1\r\nx\r\n".repeat(1000), 2 * SECOND);
            assert_rejected(
                setup,
                20,
                &[&head[..], &b"1\r\nx\r\n".repeat(100_000)].concat(),
                b"HTTP/1.1 400 ",
            );
        },
    },
    Case {
        name: "pipelined requests whose responses the client does not read",
        listener: "idle_timeout = \"1s\"",
        max_growth: 16 * 1024,
        accepts_clients: true,
        attack: |setup| {
            flood(setup, 20, b"", &b"GET /own HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100), 3 * SECOND);
        },
    },
    Case {
        name: "idle tunnels",
        listener: "tunnel_timeout = \"700ms\"",
        max_growth: 16 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(150, || setup.connect());
            connections.send(
                b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            );
            connections.wait(5 * SECOND);
            assert_responses(&connections, b"HTTP/1.1 101 ");
        },
    },
    Case {
        name: "half-closed connections with a request to a server that never responds",
        listener: "",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(200, || setup.connect());
            connections.send(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
            for stream in connections.streams() {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            connections.wait(5 * SECOND);
            eventually("the connections to the server are closed", || setup.silent.open() == 0);
        },
    },
];

/// Asserts that each connection has received a response that begins with `start`.
#[track_caller]
fn assert_responses(connections: &Connections, start: &[u8]) {
    let others = connections.received().filter(|received| !received.starts_with(start));
    let others: Vec<_> = others.map(String::from_utf8_lossy).collect();
    assert!(others.is_empty(), "{} have another response: {:?}", others.len(), others[0]);
}

/// Sends these bytes over `count` connections, one after the other; each is closed after a response that begins with `start`.
#[track_caller]
fn assert_rejected(setup: &Setup, count: usize, bytes: &[u8], start: &[u8]) {
    for _ in 0..count {
        let mut stream = setup.connect();
        stream.set_read_timeout(Some(3 * SECOND)).unwrap();
        stream.set_write_timeout(Some(3 * SECOND)).unwrap();
        // The proxy may close the connection before it has read all.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert!(received.starts_with(start), "{}", String::from_utf8_lossy(&received));
    }
}

/// Sends over `count` connections at once as much as the proxy reads, for this time, and reads nothing.
fn flood(setup: &Setup, count: usize, first: &[u8], then: &[u8], time: Duration) {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let mut stream = setup.connect();
                stream.set_write_timeout(Some(time)).unwrap();
                let mut sent = stream.write_all(first);
                while sent.is_ok() && Instant::now() < until {
                    sent = stream.write_all(then);
                }
            });
        }
    });
}

#[test]
fn http_1_attacks_do_not_harm_other_clients() {
    run(CASES);
}
