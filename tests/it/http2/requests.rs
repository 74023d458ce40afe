//! Requests over HTTP/2.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::*;
use crate::support::patience;

#[test]
fn one_port_serves_http_1_and_http_2() {
    let (proxy, _server) = listening("");
    let prior = "--http2-prior-knowledge";
    let (status, head, body) = curl(&[prior, &proxy.url("/own")]);
    assert_eq!((status, &*head.start, &*body), (200, "HTTP/2 200 ", "own\n"));
    let (_, head, body) = curl(&["--http1.1", &proxy.url("/own")]);
    assert_eq!((&*head.start, &*body), ("HTTP/1.1 200 OK", "own\n"));
    let (_, head, body) = curl(&[prior, "--head", &proxy.url("/own")]);
    assert_eq!((head.header("content-length"), &*body), (Some("4"), ""));
    let (_, _, body) = curl(&[prior, "--data", "a=1", &proxy.url("/up")]);
    assert!(body.starts_with("POST /up HTTP/1.1\r\n") && body.ends_with("\r\n\r\na=1"), "{body}");
    for status in [200, 200, 429] {
        let (found, head, _) = curl(&[prior, &proxy.url("/few")]);
        assert_eq!(found, status);
        assert_eq!(head.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(head.header("retry-after").is_some(), status == 429);
        assert_eq!(head.header("connection"), None);
    }
}

#[test]
fn protocols_restricts_a_listener() {
    let (proxy, _server) = listening("protocols = [\"h2\"]");
    assert_eq!(Http2::connect(proxy.addr()).ask(request("GET", "/own").body(()).unwrap(), b"").status(), 200);
    let mut client = Client::connect(proxy.addr());
    client.send("GET /own HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.read_to_close();
    assert!(!response.starts_with(b"HTTP/1"), "{response:?}");
    let (proxy, _server) = listening("protocols = [\"h1\"]");
    assert_eq!(get(proxy.addr(), "/own", &[]).status(), 200);
    let mut client = Client::connect(proxy.addr());
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let response = client.read_to_close();
    assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 4"), "{response:?}");
}

/// RFC 9113 §3.4.
#[test]
fn the_protocol_is_detected_from_fragments() {
    let (proxy, _server) = listening("");
    let mut client = Client::connect(proxy.addr());
    for piece in ["P", "RI", "NT /own HTTP/1.1\r\nHost: a\r\n", "\r\n"] {
        client.send(piece);
        proxy.wait_read();
    }
    assert_eq!(client.read().status(), 200);
    let mut frames = Frames::silent(proxy.addr());
    for piece in ["PRI * HTTP", "/2.0\r\n\r\nSM", "\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        frames.raw(piece.as_bytes()).unwrap();
        proxy.wait_read();
    }
    frames.get(1, "/own");
    assert_eq!(frames.status(1), Some(Ok(200)));
}

/// RFC 9113 §8.2.3.
#[test]
fn a_request_is_translated_to_http_1() {
    let (proxy, server) = listening("");
    let client = Http2::connect(proxy.addr());
    let asked = request("POST", "/a/../b?q=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("accept", "*/*");
    let response = client.ask(asked.body(()).unwrap(), b"body");
    assert_eq!(response.status(), 200);
    let seen = server.requests().pop().unwrap();
    assert_eq!(seen.start, "POST /b?q=1 HTTP/1.1");
    assert_eq!(seen.header("host"), Some("localhost"));
    assert_eq!(seen.header("cookie"), Some("a=1; b=2"));
    assert_eq!((seen.header("te"), seen.header("connection")), (Some("trailers"), Some("te")));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.text(), "body");
    assert!(seen.headers.iter().all(|(name, _)| !name.starts_with(':')));
}

#[test]
fn announced_trailers_are_forwarded_both_ways() {
    let (proxy, server) = listening("");
    let client = Http2::connect(proxy.addr());
    let asked = request("POST", "/").header("trailer", "x-sum, x-not, host").header("te", "trailers");
    let answer = client.block_on(async |sender| {
        let (response, mut body) = sender.send_request(asked.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(b"body"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        trailers.insert("x-other", "8".parse().unwrap());
        trailers.insert("host", "evil".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        crate::support::http2::read(response.await.unwrap()).await.unwrap()
    });
    assert_eq!(server.requests()[0].trailers, [("x-sum".to_owned(), "7".to_owned())]);
    let trailers = answer.trailers.unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"7".parse().unwrap()));
}

#[test]
fn ambiguous_requests_are_rejected() {
    let (proxy, server) = listening("max_headers = 20");
    let usual = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/")];
    let with = |more: &[(&'static str, &'static str)]| [&usual[..], more].concat();
    let without = |name: &str| usual.iter().copied().filter(|(key, _)| *key != name).collect::<Vec<_>>();
    let instead = |name: &str, value| [without(name), vec![(name_of(name), value)]].concat();
    let reset = Some(Err(1)); // PROTOCOL_ERROR
    for (head, expected) in [
        (with(&[]), Some(Ok(200))),
        (with(&[("host", "localhost")]), Some(Ok(200))),
        ([without(":authority"), vec![("host", "localhost")]].concat(), Some(Ok(200))),
        (with(&[("host", "other")]), Some(Ok(400))),
        (with(&[("host", "localhost"), ("host", "localhost")]), Some(Ok(200))),
        (without(":authority"), Some(Ok(400))),
        (instead(":authority", "user@localhost"), Some(Ok(400))),
        (instead(":path", "/%00"), Some(Ok(400))),
        (instead(":path", "foo"), reset),
        (instead(":path", ""), reset),
        (instead(":method", "G\r\nT"), reset),
        (instead(":scheme", "ftp"), Some(Ok(400))),
        (without(":path"), reset),
        (without(":method"), reset),
        (with(&[(":path", "/two")]), reset),
        (with(&[(":status", "200")]), reset),
        (with(&[("x-late", "1"), (":late", "/")]), reset),
        (with(&[("connection", "close")]), reset),
        (with(&[("transfer-encoding", "chunked")]), reset),
        (with(&[("upgrade", "websocket")]), reset),
        (with(&[("keep-alive", "1")]), reset),
        (with(&[("te", "gzip")]), reset),
        (with(&[("X-Upper", "1")]), reset),
        (with(&[("x y", "1")]), reset),
        (with(&[("x", "a\r\nb: c")]), reset),
        (with(&[("x", "a\0b")]), reset),
        (with(&[("content-length", "5")]), reset),
        (with(&[("content-length", "+0")]), reset),
        (with(&[("content-length", "0"), ("content-length", "1")]), reset),
        (with(&[("x", "1"); 21]), Some(Ok(431))),
        (vec![(":method", "CONNECT"), (":authority", "localhost:80")], Some(Ok(405))),
    ] {
        let before = server.requests().len();
        let mut frames = Frames::connect(proxy.addr(), &[]);
        frames.send(frames::HEADERS, frames::END_STREAM | frames::END_HEADERS, 1, &block(&head));
        let found = frames.status(1);
        // The proxy may close the connection instead of resetting the stream.
        assert!(found == expected || (expected == reset && found.is_none()), "{head:?}: {found:?}");
        assert_eq!(server.requests().len() - before, usize::from(expected == Some(Ok(200))), "{head:?}");
    }
    assert!(server.requests().iter().all(|seen| seen.header("host") == Some("localhost")));
}

/// The same name with a static lifetime.
fn name_of(name: &str) -> &'static str {
    [":method", ":scheme", ":authority", ":path"].into_iter().find(|known| *known == name).unwrap()
}

#[test]
fn a_body_that_contradicts_its_content_length_is_rejected() {
    let (proxy, server) = listening("");
    for (length, body) in [("5", "four"), ("3", "four")] {
        let mut frames = Frames::connect(proxy.addr(), &[]);
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", "/"),
            ("content-length", length),
        ];
        frames.send(frames::HEADERS, frames::END_HEADERS, 1, &block(&head));
        let _ = frames.try_send(frames::DATA, frames::END_STREAM, 1, body.as_bytes());
        assert!(!matches!(frames.status(1), Some(Ok(200))), "{length}");
    }
    // The upstream sees a truncated body.
    eventually("the upstream connections are closed", || server.open() == 0);
    assert!(server.requests().is_empty());
}

#[test]
fn options_asterisk_is_answered_locally() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/\"\nrespond = { status = 200 }\n");
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let head = [(":method", "OPTIONS"), (":scheme", "http"), (":authority", "localhost"), (":path", "*")];
    frames.send(frames::HEADERS, frames::END_STREAM | frames::END_HEADERS, 1, &block(&head));
    assert_eq!(frames.status(1), Some(Ok(204)));
}

#[test]
fn concurrent_requests_are_answered_out_of_order() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/slow") {
                let _ = released.lock().unwrap().recv_timeout(patience());
            }
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/slow");
    let quick: Vec<u32> = (1..=20).map(|number| 2 * number + 1).collect();
    for stream in &quick {
        frames.get(*stream, "/quick");
    }
    let mut responded = || frames.find(frames::HEADERS).unwrap().stream;
    let mut first: Vec<u32> = quick.iter().map(|_| responded()).collect();
    first.sort_unstable();
    assert_eq!(first, quick);
    release.send(()).unwrap();
    assert_eq!(responded(), 1);
}

#[test]
fn an_unread_stream_does_not_block_other_streams() {
    const SIZE: usize = 20 << 20;
    let server = Upstream::answering(
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").into_bytes(), vec![b'x'; SIZE]]
            .concat(),
    );
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/own\"\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let client = Http2::connect(proxy.addr());
    let before = proxy.memory();
    let (mut large, first) = client.block_on(async |sender| {
        let (large, _) = sender.send_request(request("GET", "/large").body(()).unwrap(), true).unwrap();
        let mut large = large.await.unwrap().into_body();
        let first = large.data().await.unwrap().unwrap();
        for _ in 0..10 {
            let (own, _) = sender.send_request(request("GET", "/own").body(()).unwrap(), true).unwrap();
            assert_eq!(own.await.unwrap().status(), 200);
        }
        (large, first)
    });
    let grown = proxy.memory().saturating_sub(before);
    assert!(grown < 12 * 1024, "{grown} KiB for an unread body");
    let mut length = first.len();
    large.flow_control().release_capacity(first.len()).unwrap();
    // The client waits for each piece of the body on its own, since the whole may take long.
    while let Some(data) = client.block_on(async |_| large.data().await) {
        let data = data.unwrap();
        length += data.len();
        large.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(length, SIZE);
}

#[test]
fn a_reset_stream_closes_the_upstream_connection() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/");
    eventually("the server has the request", || server.received() == 1);
    frames.cancel(1);
    eventually("the upstream connection is closed", || server.open() == 0);
    frames.send(frames::PING, 0, 0, b"are you?");
    assert_eq!(frames.find(frames::PING).unwrap().payload, b"are you?");
}

#[test]
fn sigterm_sends_goaway_and_finishes_open_requests() {
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
    let mut proxy = Tidegate::forwarding_to(&server.url());
    let mut idle = Frames::connect(proxy.addr(), &[]);
    idle.find(frames::SETTINGS).unwrap();
    let client = Http2::connect(proxy.addr());
    let answer = client.block_on(async |sender| {
        let (response, _) = sender.send_request(request("GET", "/").body(()).unwrap(), true).unwrap();
        eventually("the server has the request", || server.received() == 1);
        proxy.signal("TERM");
        proxy.wait_log("draining");
        // This client does not acknowledge the ping that the proxy sends with GOAWAY.
        assert_eq!(idle.end(), Some(0));
        release.send(()).unwrap();
        crate::support::http2::read(response.await.unwrap()).await.unwrap()
    });
    assert_eq!((answer.status(), answer.text()), (200, "late"));
    client.end().unwrap();
    assert_eq!(proxy.wait().code(), Some(0));
}

/// A reset could make the client lose a response that it has not read yet.
#[test]
fn late_frames_of_a_drained_connection_cause_no_reset() {
    let (mut proxy, _server) = listening("");
    let mut client = Frames::connect(proxy.addr(), &[]);
    client.get(1, "/own");
    assert_eq!(client.status(1), Some(Ok(200)));
    proxy.signal("TERM");
    let ping =
        std::iter::from_fn(|| client.read()).find(|frame| frame.kind == frames::PING && frame.flags == 0);
    client.send(frames::PING, 1, 0, &ping.unwrap().payload);
    assert_eq!(client.end(), Some(0));
    for _ in 0..10 {
        client.send(frames::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
        // Real time is tested: a reset would arrive after a moment.
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(client);
    assert_eq!(proxy.wait().code(), Some(0));
}
