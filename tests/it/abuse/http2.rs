//! HTTP/2 in cleartext and over TLS, frame by frame.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::*;
use crate::support::{block, frames};
use frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS};
use frames::{GOAWAY, WINDOW_UPDATE, frame};

const SECOND: Duration = Duration::from_secs(1);

/// For cases in which the client reads nothing.
const IMPATIENT: &str = "idle_timeout = \"1s\"";

const CASES: &[Case] = &[
    Case {
        name: "requests that are reset at once: rapid reset (CVE-2023-44487)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let reset =
                |stream| [get(stream, "/free"), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat();
            assert_ends(setup, |number| reset(2 * number + 1));
        },
    },
    Case {
        name: "window updates of zero on a stream (CVE-2025-8671)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let wrong = |stream| [get(stream, "/silent"), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat();
            assert_ends(setup, |number| wrong(2 * number + 1));
        },
    },
    Case {
        name: "window updates beyond the maximum on a stream (CVE-2025-8671)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let most = 0x7fff_ffff_u32.to_be_bytes();
            let wrong = |stream| [get(stream, "/silent"), frame(WINDOW_UPDATE, 0, stream, &most)].concat();
            assert_ends(setup, |number| wrong(2 * number + 1));
        },
    },
    Case {
        name: "data and heads after the end of a request (CVE-2025-8671)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let data = |stream| [get(stream, "/silent"), frame(DATA, 0, stream, b"more")].concat();
            assert_ends(setup, |number| data(2 * number + 1));
            let head = |stream| [get(stream, "/silent"), get(stream, "/silent")].concat();
            assert_ends(setup, |number| head(2 * number + 1));
        },
    },
    Case {
        name: "bodies longer than Content-Length (CVE-2025-8671)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let longer = |stream| {
                [post(stream, "/silent", &[("content-length", "1")]), frame(DATA, 0, stream, b"more")]
                    .concat()
            };
            assert_ends(setup, |number| longer(2 * number + 1));
        },
    },
    Case {
        name: "heads without pseudo-headers (CVE-2025-8671)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let nothing = block(&[("x", "y")]);
            let wrong = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &nothing);
            assert_ends(setup, |number| wrong(2 * number + 1));
        },
    },
    Case {
        name: "streams that depend on themselves (CVE-2025-8671)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            // Priorities are deprecated (RFC 9113 §5.3.2), but this is still an error.
            let itself = |stream: u32| {
                let depends = [&stream.to_be_bytes()[..], &[0]].concat();
                [get(stream, "/silent"), frame(PRIORITY, 0, stream, &depends)].concat()
            };
            let mut frames = setup.frames(&[]);
            let flood: Vec<u8> = (0..2000).flat_map(|number| itself(2 * number + 1)).collect();
            let _ = frames.raw(&flood);
            assert!(frames.ends());
        },
    },
    Case {
        name: "endless CONTINUATION frames (CVE-2024-27316)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            for part in [&block(&[("x", "y")]).repeat(100)[..], b""] {
                let mut frames = setup.frames(&[]);
                frames.send(HEADERS, END_STREAM, 1, &block(&[(":method", "GET"), (":scheme", "http")]));
                flood(&mut frames, &frame(CONTINUATION, 0, 1, part));
                assert!(frames.end().is_none_or(|code| code != 0));
            }
        },
    },
    Case {
        name: "heads that decompress to many times their size",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            // A field that is added to the table (RFC 7541 §6.2.1), and then its index many times, one byte each (§6.1).
            let mut indexed = block(&[("bomb", &"v".repeat(3000))]);
            indexed[0] = 0x40;
            let bomb = [&request("GET", "/free", &[])[..], &indexed, &[0xbe].repeat(10_000)].concat();
            for _ in 0..50 {
                let mut frames = setup.frames(&[]);
                frames.send(HEADERS, END_STREAM | END_HEADERS, 1, &bomb);
                assert!(matches!(frames.status(1), Some(Ok(431)) | None));
            }
        },
    },
    Case {
        name: "heads of the maximum size on every stream",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let head = request("GET", "/silent", &[("x-large", &"v".repeat(16_000))]);
            let mut frames = setup.frames(&[]);
            for number in 0..100 {
                frames.send(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &head);
            }
            // The memory of a head may be twice its size.
            let fit = 1024 * 1024 / 16_000;
            eventually("as many as fit are under way", || setup.silent.requests().len() >= fit / 2 - 1);
            let refused = frames.find(RST_STREAM).unwrap();
            assert_eq!(refused.payload, 7_u32.to_be_bytes(), "REFUSED_STREAM");
            assert!(setup.silent.requests().len() <= fit);
        },
    },
    Case {
        name: "settings that resize the header table all the time",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let size = |size: u32| frame(SETTINGS, 0, 0, &[&[0, 1][..], &size.to_be_bytes()].concat());
            floods(setup, &[], &[size(0), size(u32::MAX), size(4096)].concat());
        },
    },
    Case {
        name: "settings that are never acknowledged",
        listener: IMPATIENT,
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &[], &frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
    },
    Case {
        name: "settings that change the windows of all streams",
        listener: IMPATIENT,
        max_growth: 40 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let first: Vec<u8> = (0..128).flat_map(|number| get(2 * number + 1, "/silent")).collect();
            let size = |size: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &size.to_be_bytes()].concat());
            floods(setup, &first, &[size(0), size(65_535)].concat());
        },
    },
    Case {
        name: "pings whose acknowledgements the client does not read",
        listener: IMPATIENT,
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &[], &frame(PING, 0, 0, b"nonsense")),
    },
    Case {
        name: "acknowledgements of pings that were not sent",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &[], &frame(PING, END_STREAM, 0, b"nonsense")),
    },
    Case {
        name: "empty DATA frames (RUSTSEC-2026-0258)",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            floods(setup, &post(1, "/free", &[]), &frame(DATA, 0, 1, b""));
            let padding = frame(DATA, 8, 1, &[&[255][..], &[0; 255]].concat());
            floods(setup, &post(1, "/free", &[]), &padding);
        },
    },
    Case {
        name: "DATA frames of one byte",
        listener: "",
        max_growth: 16 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &post(1, "/silent", &[]), &frame(DATA, 0, 1, b"x")),
    },
    Case {
        name: "PRIORITY frames",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &[], &frame(PRIORITY, 0, 9, &[0, 0, 0, 1, 7])),
    },
    Case {
        name: "window updates of one byte",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &[], &frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
    },
    Case {
        name: "frames of unknown types",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &[], &frame(0xbe, 0, 0, b"")),
    },
    Case {
        name: "GOAWAY frames without an end of the connection",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| floods(setup, &get(1, "/silent"), &frame(GOAWAY, 0, 0, &[0; 8])),
    },
    Case {
        name: "frames over the maximum size",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            for _ in 0..50 {
                let mut frames = setup.frames(&[]);
                let _ = frames.raw(&frame(DATA, 0, 1, &vec![0; 1 << 20]));
                assert!(matches!(frames.end(), Some(6) | None), "FRAME_SIZE_ERROR");
            }
        },
    },
    Case {
        name: "large responses without a window",
        listener: IMPATIENT,
        max_growth: 48 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut frames = setup.frames(&[(4, 0)]);
            for number in 0..100 {
                frames.get(2 * number + 1, "/endless");
            }
            eventually("all are under way", || setup.endless.connections() >= 100);
            eventually("all are aborted", || setup.endless.open() == 0);
        },
    },
    Case {
        name: "large responses with a window of one byte at a time",
        listener: "",
        max_growth: 48 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut frames = setup.frames(&[(4, 1)]);
            for number in 0..100 {
                frames.get(2 * number + 1, "/endless");
            }
            eventually("all are under way", || setup.endless.connections() >= 100);
            let until = Instant::now() + SECOND;
            while Instant::now() < until {
                for number in 0..100 {
                    let opened = frames.try_send(WINDOW_UPDATE, 0, 2 * number + 1, &1_u32.to_be_bytes());
                    assert!(opened.is_ok());
                }
                // The slow reading is what is tested.
                std::thread::sleep(Duration::from_millis(10));
            }
        },
    },
    Case {
        name: "endless requests on all streams",
        listener: "body_timeout = \"700ms\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut frames = setup.frames(&[]);
            for number in 0..128 {
                let _ = frames.raw(&post(2 * number + 1, "/free", &[]));
                frames.send(DATA, 0, 2 * number + 1, b"half");
            }
            for _ in 0..128 {
                // Each gets a response; the connection stays open.
                frames.find(HEADERS).unwrap();
            }
        },
    },
    Case {
        name: "tunnels on all streams, and pings whose acknowledgements the client does not read",
        listener: "idle_timeout = \"1s\"\ntunnel_timeout = \"1s\"",
        max_growth: 24 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let connect = |stream| {
                let head = [
                    (":method", "CONNECT"),
                    (":protocol", "websocket"),
                    (":scheme", "http"),
                    (":authority", "a"),
                    (":path", "/tunnel"),
                    ("sec-websocket-version", "13"),
                ];
                frame(HEADERS, END_HEADERS, stream, &block(&head))
            };
            let mut frames = setup.frames(&[]);
            for number in 0..100 {
                frames.raw(&connect(2 * number + 1)).unwrap();
            }
            eventually("all are open", || setup.tunnel.connections() >= 100);
            flood(&mut frames, &frame(PING, 0, 0, b"nonsense"));
            eventually("all are closed", || setup.tunnel.open() == 0);
        },
    },
    Case {
        name: "pings over TLS whose acknowledgements the client does not read",
        listener: IMPATIENT,
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut frames = setup.frames_over_tls(&[]);
            flood(&mut frames, &frame(PING, 0, 0, b"nonsense"));
        },
    },
    Case {
        name: "large responses over TLS without a window",
        listener: IMPATIENT,
        max_growth: 48 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let mut frames = setup.frames_over_tls(&[(4, 0)]);
            for number in 0..100 {
                frames.get(2 * number + 1, "/endless");
            }
            eventually("all are under way", || setup.endless.connections() >= 100);
            eventually("all are aborted", || setup.endless.open() == 0);
        },
    },
];

/// The head of a request.
fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let head = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    block(&[&head[..], more].concat())
}

/// A request without a body.
fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &request("GET", path, &[]))
}

/// The head of a request with a body.
fn post(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &request("POST", path, more))
}

/// Asserts that 2,000 of these parts end the connection before the server gets 200 requests.
#[track_caller]
fn assert_ends(setup: &Setup, part: impl Fn(u32) -> Vec<u8>) {
    let mut frames = setup.frames(&[]);
    let flood: Vec<u8> = (0..2000).flat_map(part).collect();
    // The proxy may close the connection before it has read all; then its GOAWAY may be lost.
    let _ = frames.raw(&flood);
    assert!(frames.ends());
    let reached = setup.silent.requests().len();
    assert!(reached < 200, "{reached}");
}

/// Repeats this part until the proxy closes the connection or sends GOAWAY, which it must do before the connection has cost
/// much. After a GOAWAY it reads on for a while and discards the bytes.
#[track_caller]
fn flood(frames: &mut Frames, part: &[u8]) {
    let flood = part.repeat(32 * 1024 / part.len());
    for _ in 0..200 {
        if let Err(error) = frames.raw(&flood) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "the proxy has stopped reading without closing");
            return;
        }
    }
    assert!(frames.find(GOAWAY).is_some(), "the proxy has read {} KiB", 200 * 32);
}

/// Floods over four connections at once for a second, each of which is replaced when it is closed.
#[track_caller]
fn floods(setup: &Setup, first: &[u8], part: &[u8]) {
    let until = Instant::now() + SECOND;
    let work = || {
        while Instant::now() < until {
            let mut frames = setup.frames(&[]);
            frames.raw(first).unwrap();
            flood(&mut frames, part);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn http_2_attacks_do_not_harm_other_clients() {
    run(CASES);
}
