//! Servers that mean harm, beside a good one; what becomes of each of their answers is in [`crate::malformed`].

use std::time::{Duration, Instant};

use super::swarm::Swarm;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

const CASES: &[Case] = &[
    Case {
        name: "servers whose heads have no end",
        listener: "",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            asked(ground, b"X-Endless: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n");
        },
    },
    Case {
        name: "servers whose header has no end",
        listener: "",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| {
            asked(ground, b"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy");
        },
    },
    Case {
        name: "servers that send interim responses and nothing else",
        listener: "",
        grows: 24 * 1024,
        welcomes: true,
        abuse: |ground| asked(ground, b"Link: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\n"),
    },
    Case {
        name: "servers that close at once",
        listener: "",
        grows: 16 * 1024,
        welcomes: true,
        abuse: |ground| asked(ground, b""),
    },
    Case {
        name: "requests for a server that never answers",
        listener: "",
        grows: 32 * 1024,
        welcomes: true,
        abuse: |ground| {
            let mut swarm = Swarm::new(300, || ground.connect());
            swarm.send(b"GET /few HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            swarm.wait(5 * SECOND);
            // Some had a connection, some waited for one, and all others were told at once.
            let said = |status: &[u8]| swarm.said().filter(|said| said.get(9..12) == Some(status)).count();
            assert_eq!((said(b"503"), said(b"504")), (290, 10));
            assert!(ground.silent.connections() <= 10);
        },
    },
];

/// Answers with a body that has no end.
pub fn endless() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(Some(_)) = caller.request() else { return };
        let chunk = [&b"10000\r\n"[..], &vec![b'x'; 0x1_0000], b"\r\n"].concat();
        let mut said = caller.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while said.is_ok() {
            said = caller.try_send(&chunk);
        }
    })
}

/// Agrees to web sockets, and says nothing there.
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

/// Begins an answer, and then says the body of its request again and again.
pub fn babbling() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(Some(request)) = caller.request() else { return };
        let said = request.body.repeat(1000);
        let mut sent = caller.try_send("HTTP/1.1 103 Early Hints\r\n");
        while sent.is_ok() && !said.is_empty() {
            sent = caller.try_send(&said);
        }
    })
}

/// Asks a server that says this again and again, which costs nothing but a 502 each.
#[track_caller]
fn asked(ground: &Ground, said: &[u8]) {
    let until = Instant::now() + SECOND;
    let head = format!(
        "POST /babbling HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        said.len()
    );
    while Instant::now() < until {
        let mut swarm = Swarm::new(20, || ground.connect());
        swarm.send(&[head.as_bytes(), said].concat());
        swarm.wait(5 * SECOND);
        assert!(swarm.said().all(|said| said.starts_with(b"HTTP/1.1 502 ")));
    }
    eventually("the server is left alone", || ground.babbling.open() == 0);
}

#[test]
fn servers_wear_nobody_out() {
    stage(CASES);
}
