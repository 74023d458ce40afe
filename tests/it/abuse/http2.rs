//! HTTP/2, in the clear and over TLS, frame by frame.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::*;
use crate::support::{block, frames};
use frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS};
use frames::{GOAWAY, WINDOW_UPDATE, frame};

const SECOND: Duration = Duration::from_secs(1);

/// For cases in which clients read nothing.
const IMPATIENT: &str = "idle_timeout = \"1s\"";

const CASES: &[Case] = &[
    Case {
        name: "requests that are taken back at once (CVE-2023-44487)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let reset =
                |stream| [get(stream, "/free"), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat();
            ends(ground, |number| reset(2 * number + 1));
        },
    },
    Case {
        name: "windows of a stream that do not open (CVE-2025-8671)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let wrong = |stream| [get(stream, "/silent"), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat();
            ends(ground, |number| wrong(2 * number + 1));
        },
    },
    Case {
        name: "windows of a stream that open too far (CVE-2025-8671)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let most = 0x7fff_ffff_u32.to_be_bytes();
            let wrong = |stream| [get(stream, "/silent"), frame(WINDOW_UPDATE, 0, stream, &most)].concat();
            ends(ground, |number| wrong(2 * number + 1));
        },
    },
    Case {
        name: "data and heads after the end of a request (CVE-2025-8671)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let data = |stream| [get(stream, "/silent"), frame(DATA, 0, stream, b"more")].concat();
            ends(ground, |number| data(2 * number + 1));
            let head = |stream| [get(stream, "/silent"), get(stream, "/silent")].concat();
            ends(ground, |number| head(2 * number + 1));
        },
    },
    Case {
        name: "bodies beyond their length (CVE-2025-8671)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let longer = |stream| {
                [post(stream, "/silent", &[("content-length", "1")]), frame(DATA, 0, stream, b"more")]
                    .concat()
            };
            ends(ground, |number| longer(2 * number + 1));
        },
    },
    Case {
        name: "heads that are no heads (CVE-2025-8671)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let nothing = block(&[("x", "y")]);
            let wrong = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &nothing);
            ends(ground, |number| wrong(2 * number + 1));
        },
    },
    Case {
        name: "streams that depend on themselves (CVE-2025-8671)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            // Priorities mean nothing any more (RFC 9113 §5.3.2), but this is still an error.
            let itself = |stream: u32| {
                let depends = [&stream.to_be_bytes()[..], &[0]].concat();
                [get(stream, "/silent"), frame(PRIORITY, 0, stream, &depends)].concat()
            };
            let mut frames = ground.frames(&[]);
            let flood: Vec<u8> = (0..2000).flat_map(|number| itself(2 * number + 1)).collect();
            let _ = frames.raw(&flood);
            assert!(frames.ends());
        },
    },
    Case {
        name: "heads that go on and on (CVE-2024-27316)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            for part in [&block(&[("x", "y")]).repeat(100)[..], b""] {
                let mut frames = ground.frames(&[]);
                frames.send(HEADERS, END_STREAM, 1, &block(&[(":method", "GET"), (":scheme", "http")]));
                flood(&mut frames, &frame(CONTINUATION, 0, 1, part));
                assert!(frames.end().is_none_or(|code| code != 0));
            }
        },
    },
    Case {
        name: "heads that unfold to more than they are",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            // A header that the table keeps (RFC 7541 §6.2.1), and then that one again and again, a byte each (§6.1).
            let mut kept = block(&[("bomb", &"v".repeat(3000))]);
            kept[0] = 0x40;
            let bomb = [&request("GET", "/free", &[])[..], &kept, &[0xbe].repeat(10_000)].concat();
            for _ in 0..50 {
                let mut frames = ground.frames(&[]);
                frames.send(HEADERS, END_STREAM | END_HEADERS, 1, &bomb);
                assert!(matches!(frames.status(1), Some(Ok(431)) | None));
            }
        },
    },
    Case {
        name: "heads as large as they may be, on every stream",
        listener: "",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            let head = request("GET", "/silent", &[("x-large", &"v".repeat(16_000))]);
            let mut frames = ground.frames(&[]);
            for number in 0..100 {
                frames.send(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &head);
            }
            eventually("all are under way", || ground.silent.requests().len() == 100);
        },
    },
    Case {
        name: "a table of headers that changes all the time",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let size = |size: u32| frame(SETTINGS, 0, 0, &[&[0, 1][..], &size.to_be_bytes()].concat());
            floods(ground, &[], &[size(0), size(u32::MAX), size(4096)].concat());
        },
    },
    Case {
        name: "settings that are never acknowledged",
        listener: IMPATIENT,
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &[], &frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
    },
    Case {
        name: "settings that move the windows of all streams",
        listener: IMPATIENT,
        grows: 40 * 1024,
        welcomes: true,
        abuse: |ground| {
            let first: Vec<u8> = (0..128).flat_map(|number| get(2 * number + 1, "/silent")).collect();
            let size = |size: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &size.to_be_bytes()].concat());
            floods(ground, &first, &[size(0), size(65_535)].concat());
        },
    },
    Case {
        name: "pings whose answers nobody reads",
        listener: IMPATIENT,
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &[], &frame(PING, 0, 0, b"nonsense")),
    },
    Case {
        name: "answers to pings that nobody has sent",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &[], &frame(PING, END_STREAM, 0, b"nonsense")),
    },
    Case {
        name: "data without a byte (RUSTSEC-2026-0258)",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            floods(ground, &post(1, "/free", &[]), &frame(DATA, 0, 1, b""));
            let padding = frame(DATA, 8, 1, &[&[255][..], &[0; 255]].concat());
            floods(ground, &post(1, "/free", &[]), &padding);
        },
    },
    Case {
        name: "data a byte at a time",
        listener: "",
        grows: 16 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &post(1, "/silent", &[]), &frame(DATA, 0, 1, b"x")),
    },
    Case {
        name: "priorities",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &[], &frame(PRIORITY, 0, 9, &[0, 0, 0, 1, 7])),
    },
    Case {
        name: "windows that open a byte at a time",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &[], &frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
    },
    Case {
        name: "frames of kinds that do not exist",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &[], &frame(0xbe, 0, 0, b"")),
    },
    Case {
        name: "goodbyes without a parting",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| floods(ground, &get(1, "/silent"), &frame(GOAWAY, 0, 0, &[0; 8])),
    },
    Case {
        name: "frames over their size",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            for _ in 0..50 {
                let mut frames = ground.frames(&[]);
                let _ = frames.raw(&frame(DATA, 0, 1, &vec![0; 1 << 20]));
                assert!(matches!(frames.end(), Some(6) | None), "FRAME_SIZE_ERROR");
            }
        },
    },
    Case {
        name: "large answers for which there is no window",
        listener: IMPATIENT,
        grows: 48 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut frames = ground.frames(&[(4, 0)]);
            for number in 0..100 {
                frames.get(2 * number + 1, "/endless");
            }
            eventually("all are under way", || ground.endless.open() == 100);
            eventually("they are given up", || ground.endless.open() == 0);
        },
    },
    Case {
        name: "large answers that are read a byte at a time",
        listener: "",
        grows: 48 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut frames = ground.frames(&[(4, 1)]);
            for number in 0..100 {
                frames.get(2 * number + 1, "/endless");
            }
            eventually("all are under way", || ground.endless.open() == 100);
            let until = Instant::now() + SECOND;
            while Instant::now() < until {
                for number in 0..100 {
                    let opened = frames.try_send(WINDOW_UPDATE, 0, 2 * number + 1, &1_u32.to_be_bytes());
                    assert!(opened.is_ok());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        },
    },
    Case {
        name: "requests on all streams that never end",
        listener: "body_timeout = \"700ms\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut frames = ground.frames(&[]);
            for number in 0..128 {
                let _ = frames.raw(&post(2 * number + 1, "/free", &[]));
                frames.send(DATA, 0, 2 * number + 1, b"half");
            }
            for _ in 0..128 {
                // Each is answered; the connection goes on.
                frames.find(HEADERS).unwrap();
            }
        },
    },
    Case {
        name: "tunnels on all streams, and pings whose answers nobody reads",
        listener: "idle_timeout = \"1s\"\ntunnel_timeout = \"1s\"",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
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
            let mut frames = ground.frames(&[]);
            for number in 0..100 {
                frames.raw(&connect(2 * number + 1)).unwrap();
            }
            eventually("all have been opened", || ground.tunnel.connections() == 100);
            flood(&mut frames, &frame(PING, 0, 0, b"nonsense"));
            eventually("all are closed", || ground.tunnel.open() == 0);
        },
    },
    Case {
        name: "pings over TLS, whose answers nobody reads",
        listener: IMPATIENT,
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut frames = ground.frames_over_tls(&[]);
            flood(&mut frames, &frame(PING, 0, 0, b"nonsense"));
        },
    },
    Case {
        name: "large answers over TLS for which there is no window",
        listener: IMPATIENT,
        grows: 48 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut frames = ground.frames_over_tls(&[(4, 0)]);
            for number in 0..100 {
                frames.get(2 * number + 1, "/endless");
            }
            eventually("all are under way", || ground.endless.open() == 100);
            eventually("they are given up", || ground.endless.open() == 0);
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

/// One whose body is still to come.
fn post(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &request("POST", path, more))
}

/// Two thousand such parts, one after the other, end the connection, of which servers hear little.
#[track_caller]
fn ends(ground: &Ground, part: impl Fn(u32) -> Vec<u8>) {
    let mut frames = ground.frames(&[]);
    let flood: Vec<u8> = (0..2000).flat_map(part).collect();
    // The proxy may close before it has read all, and its goodbye be lost by that.
    let _ = frames.raw(&flood);
    assert!(frames.ends());
    let reached = ground.silent.requests().len();
    assert!(reached < 200, "{reached}");
}

/// Sends this again and again, until the proxy closes or says goodbye, which it does before a connection has cost much;
/// what comes behind a goodbye it reads for a while, and throws it away.
#[track_caller]
fn flood(frames: &mut Frames, part: &[u8]) {
    let flood = part.repeat(32 * 1024 / part.len());
    for _ in 0..200 {
        if let Err(error) = frames.raw(&flood) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "the proxy reads no more, but does not close");
            return;
        }
    }
    assert!(frames.find(GOAWAY).is_some(), "the proxy has taken {} KiB of it", 200 * 32);
}

/// Floods over four connections at once, and over others when these are closed, for a second.
#[track_caller]
fn floods(ground: &Ground, first: &[u8], part: &[u8]) {
    let until = Instant::now() + SECOND;
    let work = || {
        while Instant::now() < until {
            let mut frames = ground.frames(&[]);
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
fn http_2_wears_nobody_out() {
    stage(CASES);
}
