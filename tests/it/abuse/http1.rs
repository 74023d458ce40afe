//! HTTP/1.1, in the clear.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::swarm::Swarm;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

const CASES: &[Case] = &[
    Case {
        name: "heads that come a byte at a time",
        listener: "header_timeout = \"500ms\"",
        grows: 20 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(300, || ground.connect());
            swarm.drip(
                b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
                5 * SECOND,
            );
        },
    },
    Case {
        name: "bodies that stop half-way",
        listener: "body_timeout = \"500ms\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(200, || ground.connect());
            swarm.send(b"POST /free HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf");
            swarm.wait(5 * SECOND);
            answered(&swarm, b"HTTP/1.1 408 ");
        },
    },
    Case {
        name: "bodies that are waited for with 100 Continue",
        listener: "body_timeout = \"500ms\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(200, || ground.connect());
            swarm
                .send(b"POST /free HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
            swarm.wait(5 * SECOND);
        },
    },
    Case {
        name: "large answers that nobody reads",
        listener: "idle_timeout = \"1s\"",
        grows: 32 * 1024,
        welcomes: true,
        abuse: |ground| {
            let swarm = Swarm::new(100, || ground.connect());
            for mut stream in swarm.streams() {
                stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            }
            eventually("all are under way", || ground.endless.open() == 100);
            eventually("they are given up", || ground.endless.open() == 0);
        },
    },
    Case {
        name: "large answers that are read slowly",
        listener: "",
        grows: 32 * 1024,
        welcomes: true,
        abuse: |ground| {
            let swarm = Swarm::new(100, || ground.connect());
            for mut stream in swarm.streams() {
                stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            }
            let until = Instant::now() + 2 * SECOND;
            while Instant::now() < until {
                for mut stream in swarm.streams() {
                    let _ = stream.read(&mut [0; 1000]);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        },
    },
    Case {
        name: "as many silent connections as there may be",
        listener: "max_connections = 100\nidle_timeout = \"2s\"",
        grows: 8 * 1024,
        welcomes: false,
        abuse: |ground| {
            let mut swarm = Swarm::new(150, || ground.connect());
            eventually("some are turned away", || swarm.open() <= 100);
            let listener = format!("tidegate_connections{{listener=\"{}\"}} ", ground.plain);
            let open: usize = ground.metric(&listener).parse().unwrap();
            assert!((50..=100).contains(&open), "{open}");
            swarm.wait(5 * SECOND);
            // There is room again.
            let mut other = ground.connect();
            other.write_all(b"GET /own HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut said = String::new();
            other.read_to_string(&mut said).unwrap();
            assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        },
    },
    Case {
        name: "connections that are reset at once",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            for number in 0..2000 {
                let mut stream = ground.connect();
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                if number % 2 == 0 {
                    let _ = stream.write_all(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
                }
            }
            eventually("servers are left alone", || ground.silent.open() == 0);
        },
    },
    Case {
        name: "heads of a mebibyte",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let head = [&b"GET / HTTP/1.1\r\nHost: a\r\nX-Giant: "[..], &vec![b'y'; 1 << 20]].concat();
            refused(ground, 50, &head, b"HTTP/1.1 431 ");
        },
    },
    Case {
        name: "heads with thousands of headers",
        listener: "max_header_bytes = \"512KiB\"",
        grows: 12 * 1024,
        welcomes: true,
        abuse: |ground| {
            let head = [&b"GET / HTTP/1.1\r\nHost: a\r\n"[..], &b"a:\r\n".repeat(100_000), b"\r\n"].concat();
            refused(ground, 50, &head, b"HTTP/1.1 431 ");
        },
    },
    Case {
        name: "chunk extensions without end",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let head = b"POST /free HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;";
            refused(ground, 20, &[&head[..], &vec![b'e'; 1 << 20]].concat(), b"HTTP/1.1 400 ");
        },
    },
    Case {
        name: "trailers without end",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let head = b"POST /free HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
            refused(ground, 20, &[&head[..], &b"T: t\r\n".repeat(200_000)].concat(), b"HTTP/1.1 400 ");
        },
    },
    Case {
        name: "chunks of a byte",
        listener: "",
        grows: 12 * 1024,
        welcomes: true,
        abuse: |ground| {
            let head = b"POST /silent HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            flood(ground, 8, head, &b"1\r\nx\r\n".repeat(1000), 2 * SECOND);
        },
    },
    Case {
        name: "requests one after the other, whose answers nobody reads",
        listener: "idle_timeout = \"1s\"",
        grows: 16 * 1024,
        welcomes: true,
        abuse: |ground| {
            flood(ground, 20, b"", &b"GET /own HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100), 3 * SECOND);
        },
    },
    Case {
        name: "tunnels in which nobody says a word",
        listener: "tunnel_timeout = \"700ms\"",
        grows: 16 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(150, || ground.connect());
            swarm.send(
                b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            );
            swarm.wait(5 * SECOND);
            answered(&swarm, b"HTTP/1.1 101 ");
        },
    },
    Case {
        name: "requests to a server that does not answer, half closed",
        listener: "",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(200, || ground.connect());
            swarm.send(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
            for stream in swarm.streams() {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            swarm.wait(5 * SECOND);
            eventually("the server is left alone", || ground.silent.open() == 0);
        },
    },
];

/// Asserts that each has been answered so.
#[track_caller]
fn answered(swarm: &Swarm, answer: &[u8]) {
    let others = swarm.said().filter(|said| !said.starts_with(answer));
    let others: Vec<_> = others.map(String::from_utf8_lossy).collect();
    assert!(others.is_empty(), "{} were answered otherwise: {:?}", others.len(), others[0]);
}

/// Sends this over so many connections, one after the other, all of which are answered so and closed.
#[track_caller]
fn refused(ground: &Ground, count: usize, bytes: &[u8], answer: &[u8]) {
    for _ in 0..count {
        let mut stream = ground.connect();
        stream.set_read_timeout(Some(3 * SECOND)).unwrap();
        stream.set_write_timeout(Some(3 * SECOND)).unwrap();
        // The proxy may close before it has read all.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.starts_with(answer), "{}", String::from_utf8_lossy(&said));
    }
}

/// Sends over so many connections at once as much as is taken, for so long, and reads nothing.
fn flood(ground: &Ground, count: usize, first: &[u8], then: &[u8], time: Duration) {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let mut stream = ground.connect();
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
fn http_1_wears_nobody_out() {
    stage(CASES);
}
