//! TLS: handshakes, and records without data.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

use super::connections::Connections;
use super::*;
use crate::support::{command, output_with_input, scaled};

const SECOND: Duration = Duration::from_secs(1);

const CASES: &[Case] = &[
    Case {
        name: "handshakes that come a byte at a time",
        listener: "handshake_timeout = \"500ms\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| Connections::new(300, || setup.connect_tls()).drip(&hello(setup), 5 * SECOND),
    },
    Case {
        name: "handshakes that stop half-way",
        listener: "handshake_timeout = \"500ms\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut connections = Connections::new(200, || setup.connect_tls());
            // The server sends its part of the handshake, and waits for the client's.
            connections.send(&hello(setup));
            connections.wait(5 * SECOND);
            assert!(connections.received().all(|received| !received.is_empty()));
        },
    },
    Case {
        name: "handshakes that are aborted",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let hello = hello(setup);
            for _ in 0..500 {
                let mut stream = setup.connect_tls();
                stream.write_all(&hello).unwrap();
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        },
    },
    Case {
        name: "handshakes one after the other",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let (hello, until) = (hello(setup), Instant::now() + SECOND);
            let work = || {
                while Instant::now() < until {
                    let mut stream = setup.connect_tls();
                    stream.set_read_timeout(Some(SECOND)).unwrap();
                    stream.write_all(&hello).unwrap();
                    // The server has made its signature.
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
        name: "unfinished ClientHello messages of the largest size",
        listener: "handshake_timeout = \"1s\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            // A handshake message of 16 MiB, in records of 16 KiB.
            let record = |content: &[u8]| {
                [&[22, 3, 1][..], &u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
            };
            let first = record(&[&[1, 255, 255, 255][..], &[0; 16_000]].concat());
            let mut connections = Connections::new(100, || setup.connect_tls());
            for _ in 0..20 {
                connections.send(&first);
                connections.send(&record(&[0; 16_000]));
            }
            connections.wait(5 * SECOND);
        },
    },
    Case {
        name: "repeated key updates",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            for _ in 0..20 {
                let mut stream = session(setup);
                // The proxy reads on for a while after its close_notify.
                for _ in 0..200 {
                    let _ = stream.conn.refresh_traffic_keys();
                    let _ = stream.flush();
                }
                let end = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
                assert!(!matches!(end, Err(WouldBlock | TimedOut)), "the connection does not end: {end:?}");
            }
        },
    },
    Case {
        name: "renegotiation",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut openssl = command("openssl");
            openssl.args(["s_client", "-tls1_2", "-connect", &setup.tls.to_string()]);
            let start = Instant::now();
            // openssl renegotiates at a line with this letter alone.
            let errors =
                String::from_utf8(output_with_input(&mut openssl, &b"R\n".repeat(100)).stderr).unwrap();
            // An alert is sent, so that the client does not wait for `idle_timeout`.
            assert!(start.elapsed() < scaled(30 * SECOND), "{:?}", start.elapsed());
            assert!(errors.contains("no renegotiation"), "{errors}");
        },
    },
    Case {
        name: "large responses over TLS that the client does not read",
        listener: "idle_timeout = \"1s\"",
        max_growth: 40 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let sessions: Vec<_> = std::iter::repeat_with(|| {
                let mut stream = session(setup);
                stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                stream
            })
            .take(100)
            .collect();
            eventually("all are under way", || setup.endless.connections() >= 100);
            eventually("all are aborted", || setup.endless.open() == 0);
            drop(sessions);
        },
    },
];

/// The first message of a handshake.
fn hello(setup: &Setup) -> Vec<u8> {
    let name = ServerName::try_from("a.test").unwrap();
    let mut session = ClientConnection::new(Arc::clone(&setup.config), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

/// A connection after its handshake.
fn session(setup: &Setup) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("a.test").unwrap();
    let mut session = ClientConnection::new(Arc::clone(&setup.config), name).unwrap();
    let mut stream = setup.connect_tls();
    stream.set_read_timeout(Some(scaled(3 * SECOND))).unwrap();
    stream.set_write_timeout(Some(scaled(3 * SECOND))).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).unwrap();
    }
    StreamOwned::new(session, stream)
}

#[test]
fn tls_attacks_do_not_harm_other_clients() {
    run(CASES);
}
