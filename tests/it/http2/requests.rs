//! HTTP/2 with clients.

use super::*;

#[test]
fn curl_speaks_it_and_http_1_to_one_port() {
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
fn each_protocol_can_be_all_that_is_spoken() {
    let (proxy, _server) = listening("protocols = [\"h2\"]");
    assert_eq!(Http2::connect(proxy.addr()).ask(request("GET", "/own").body(()).unwrap(), b"").status(), 200);
    let mut client = Client::connect(proxy.addr());
    client.send("GET /own HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.read_to_close();
    assert!(!answer.starts_with(b"HTTP/1"), "{answer:?}");
    let (proxy, _server) = listening("protocols = [\"h1\"]");
    assert_eq!(get(proxy.addr(), "/own", &[]).status(), 200);
    let mut client = Client::connect(proxy.addr());
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let answer = client.read_to_close();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
}

#[test]
fn a_first_line_may_come_in_pieces() {
    let (proxy, _server) = listening("");
    let mut client = Client::connect(proxy.addr());
    for piece in ["P", "RI", "NT /own HTTP/1.1\r\nHost: a\r\n", "\r\n"] {
        client.send(piece);
        // So that it comes in pieces indeed.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.read().status(), 200);
    let mut frames = Frames::silent(proxy.addr());
    for piece in ["PRI * HTTP", "/2.0\r\n\r\nSM", "\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        frames.raw(piece.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    frames.get(1, "/own");
    assert_eq!(frames.status(1), Some(Ok(200)));
}

#[test]
fn a_request_goes_upstream_as_http_1_would_have_it() {
    let (proxy, server) = listening("");
    let client = Http2::connect(proxy.addr());
    let asked = request("POST", "/a/../b?q=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("accept", "*/*");
    let answer = client.ask(asked.body(()).unwrap(), b"body");
    assert_eq!(answer.status(), 200);
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
fn trailers_pass_both_ways_if_they_are_announced() {
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
fn what_could_be_read_in_two_ways_goes_nowhere() {
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
        // A connection that ends has refused as well.
        assert!(found == expected || (expected == reset && found.is_none()), "{head:?}: {found:?}");
        assert_eq!(server.requests().len() - before, usize::from(expected == Some(Ok(200))), "{head:?}");
    }
    assert!(server.requests().iter().all(|seen| seen.header("host") == Some("localhost")));
}

/// The name as one that lives for ever.
fn name_of(name: &str) -> &'static str {
    [":method", ":scheme", ":authority", ":path"].into_iter().find(|known| *known == name).unwrap()
}

#[test]
fn a_body_of_another_length_than_it_says_does_not_pass() {
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
    // An upstream that got less than it was promised sees a connection that breaks.
    eventually("the upstream's connections are gone", || server.open() == 0);
    assert!(server.requests().is_empty());
}

#[test]
fn options_with_an_asterisk_ask_the_proxy_itself() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/\"\nrespond = { status = 200 }\n");
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let head = [(":method", "OPTIONS"), (":scheme", "http"), (":authority", "localhost"), (":path", "*")];
    frames.send(frames::HEADERS, frames::END_STREAM | frames::END_HEADERS, 1, &block(&head));
    assert_eq!(frames.status(1), Some(Ok(204)));
}

#[test]
fn many_requests_at_once_are_answered_out_of_order() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/slow") {
                // Longer than the others take.
                std::thread::sleep(Duration::from_millis(300));
            }
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/slow");
    let quick: Vec<u32> = (1..=20).map(|number| 2 * number + 1).collect();
    for stream in &quick {
        frames.get(*stream, "/quick");
    }
    let order: Vec<u32> =
        std::iter::from_fn(|| frames.find(frames::HEADERS).map(|frame| frame.stream)).take(21).collect();
    assert_eq!(order.last(), Some(&1), "{order:?}");
}

#[test]
fn a_slow_reader_gets_all_of_it_and_holds_up_nobody() {
    const SIZE: usize = 32 << 20;
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
    let length = client.block_on(async |sender| {
        let (large, _) = sender.send_request(request("GET", "/large").body(()).unwrap(), true).unwrap();
        let mut large = large.await.unwrap().into_body();
        let first = large.data().await.unwrap().unwrap();
        for _ in 0..10 {
            let (own, _) = sender.send_request(request("GET", "/own").body(()).unwrap(), true).unwrap();
            assert_eq!(own.await.unwrap().status(), 200);
        }
        let grown = proxy.memory().saturating_sub(before);
        assert!(grown < 12 * 1024, "{grown} KiB for a body that nobody reads");
        let mut length = first.len();
        large.flow_control().release_capacity(first.len()).unwrap();
        while let Some(data) = large.data().await {
            let data = data.unwrap();
            length += data.len();
            large.flow_control().release_capacity(data.len()).unwrap();
        }
        length
    });
    assert_eq!(length, SIZE);
}

#[test]
fn a_client_that_takes_a_request_back_frees_the_upstream() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    });
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/");
    eventually("it is asked", || server.requests().len() == 1);
    frames.send(frames::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    eventually("it is left alone", || server.open() == 0);
    frames.send(frames::PING, 0, 0, b"are you?");
    assert_eq!(frames.find(frames::PING).unwrap().payload, b"are you?");
}

#[test]
fn sigterm_says_goodbye_and_lets_requests_come_to_their_end() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
        }
    });
    let mut proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let mut idle = Frames::connect(proxy.addr(), &[]);
    idle.find(frames::SETTINGS).unwrap();
    let client = Http2::connect(proxy.addr());
    let answer = client.block_on(async |sender| {
        let (response, _) = sender.send_request(request("GET", "/").body(()).unwrap(), true).unwrap();
        eventually("it is asked", || server.requests().len() == 1);
        proxy.signal("TERM");
        proxy.wait_log("draining");
        // The idle one does not answer the ping by which the proxy asks whether anything is on its way.
        assert_eq!(idle.end(), Some(0));
        release.send(()).unwrap();
        crate::support::http2::read(response.await.unwrap()).await.unwrap()
    });
    assert_eq!((answer.status(), answer.text()), (200, "late"));
    client.end().unwrap();
    assert_eq!(proxy.wait().code(), Some(0));
}

/// What a client says of an answer that it is reading must not have the kernel reset the connection, which on some systems
/// throws the answer away.
#[test]
fn the_end_leaves_a_client_time_to_say_what_it_likes() {
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
        // A reset needs a moment to come.
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(client);
    assert_eq!(proxy.wait().code(), Some(0));
}
