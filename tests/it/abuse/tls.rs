//! What comes before HTTP: the handshake, and records that bring nothing.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

use super::swarm::Swarm;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

const CASES: &[Case] = &[
    Case {
        name: "handshakes that come a byte at a time",
        listener: "handshake_timeout = \"500ms\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| Swarm::new(300, || ground.connect_tls()).drip(&hello(ground), 5 * SECOND),
    },
    Case {
        name: "handshakes that stop half-way",
        listener: "handshake_timeout = \"500ms\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(200, || ground.connect_tls());
            // The server's part is there, and what is left is the client's.
            swarm.send(&hello(ground));
            swarm.wait(5 * SECOND);
            assert!(swarm.said().all(|said| !said.is_empty()));
        },
    },
    Case {
        name: "handshakes that are broken off",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let hello = hello(ground);
            for _ in 0..500 {
                let mut stream = ground.connect_tls();
                stream.write_all(&hello).unwrap();
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        },
    },
    Case {
        name: "handshakes one after the other",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let (hello, until) = (hello(ground), Instant::now() + SECOND);
            let work = || {
                while Instant::now() < until {
                    let mut stream = ground.connect_tls();
                    stream.set_read_timeout(Some(SECOND)).unwrap();
                    stream.write_all(&hello).unwrap();
                    // The server has signed.
                    let _ = stream.read(&mut [0; 1024]);
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(work);
                }
            });
        },
    },
    Case {
        name: "greetings of the largest size that never end",
        listener: "handshake_timeout = \"1s\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            // A handshake's message of 16 MiB, in records of 16 KiB.
            let record = |content: &[u8]| {
                [&[22, 3, 1][..], &u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
            };
            let first = record(&[&[1, 255, 255, 255][..], &[0; 16_000]].concat());
            let mut swarm = Swarm::new(100, || ground.connect_tls());
            for _ in 0..20 {
                swarm.send(&first);
                swarm.send(&record(&[0; 16_000]));
            }
            swarm.wait(5 * SECOND);
        },
    },
    Case {
        name: "new keys again and again",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            for _ in 0..20 {
                let mut stream = session(ground);
                // Behind a goodbye the proxy reads on for a while.
                for _ in 0..200 {
                    let _ = stream.conn.refresh_traffic_keys();
                    let _ = stream.flush();
                }
                let end = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
                assert!(!matches!(end, Err(WouldBlock | TimedOut)), "it ends, however it does: {end:?}");
            }
        },
    },
    Case {
        name: "handshakes within a connection",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut openssl = Command::new("openssl")
                .args(["s_client", "-tls1_2", "-connect", &ground.tls.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // A line with this letter alone asks for it.
            let _ = openssl.stdin.take().unwrap().write_all(&b"R\n".repeat(100));
            let asked = Instant::now();
            let said = String::from_utf8(openssl.wait_with_output().unwrap().stderr).unwrap();
            // The refusal is sent, so that nobody waits for `idle_timeout`.
            assert!(asked.elapsed() < 30 * SECOND, "{:?}", asked.elapsed());
            assert!(said.contains("no renegotiation"), "{said}");
        },
    },
    Case {
        name: "large answers over TLS that nobody reads",
        listener: "idle_timeout = \"1s\"",
        grows: 40 * 1024,
        welcomes: true,
        abuse: |ground| {
            let sessions: Vec<_> = std::iter::repeat_with(|| {
                let mut stream = session(ground);
                stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                stream
            })
            .take(100)
            .collect();
            eventually("all are under way", || ground.endless.connections() == 100);
            eventually("they are given up", || ground.endless.open() == 0);
            drop(sessions);
        },
    },
];

/// A client's first message.
fn hello(ground: &Ground) -> Vec<u8> {
    let name = ServerName::try_from("a.test").unwrap();
    let mut session = ClientConnection::new(Arc::clone(&ground.config), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

/// A connection on which the handshake is done.
fn session(ground: &Ground) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("a.test").unwrap();
    let mut session = ClientConnection::new(Arc::clone(&ground.config), name).unwrap();
    let mut stream = ground.connect_tls();
    stream.set_read_timeout(Some(3 * SECOND)).unwrap();
    stream.set_write_timeout(Some(3 * SECOND)).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).unwrap();
    }
    StreamOwned::new(session, stream)
}

#[test]
fn tls_wears_nobody_out() {
    stage(CASES);
}
