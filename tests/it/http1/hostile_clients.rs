//! Invalid and malicious HTTP/1.1 requests, and clients that stall.

use std::time::Duration;

use crate::support::{Client, Tidegate, Upstream, eventually, get, is_between, patience, timed};

/// A proxy in front of an echo server, with these lines in its listener.
fn listening(lines: &str) -> (Tidegate, Upstream) {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{lines}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    (proxy, server)
}

/// A request with `count` headers, including Host.
fn with_headers(count: usize) -> String {
    let lines: Vec<String> = (1..count).map(|number| format!("X-{number}: y\r\n")).collect();
    format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.concat())
}

#[test]
fn request_heads_are_bounded() {
    let (proxy, server) = listening("");
    let (small, _echo) = listening("max_header_bytes = \"2KiB\"\nmax_headers = 10");
    let long = |length: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "y".repeat(length));
    for (address, request, status) in [
        (proxy.addr(), long(30 * 1024), 200),
        (proxy.addr(), long(64 * 1024), 431),
        (
            proxy.addr(),
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Many: yyyyyyyyyyyy\r\n".repeat(3000)),
            431,
        ),
        (proxy.addr(), with_headers(100), 200),
        (proxy.addr(), with_headers(101), 431),
        (small.addr(), long(1900), 200),
        (small.addr(), long(2048), 431),
        (small.addr(), with_headers(10), 200),
        (small.addr(), with_headers(11), 431),
    ] {
        let mut client = Client::connect(address);
        client.send(&request);
        let response = client.read();
        assert_eq!(response.status(), status, "{} bytes: {}", request.len(), response.start);
        if status == 431 {
            assert_eq!(response.start, "HTTP/1.1 431 Request Header Fields Too Large");
            assert_eq!(response.text(), "");
            client.expect_close();
        }
    }
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn request_targets_are_bounded() {
    let (proxy, server) = listening("");
    let mut client = Client::connect(proxy.addr());
    client.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(64 * 1024)));
    let response = client.read();
    assert!(matches!(response.status(), 414 | 431), "{}", response.start);
    client.expect_close();
    assert!(server.requests().is_empty());
}

#[test]
fn a_request_must_have_exactly_one_valid_host() {
    let (proxy, server) = listening("");
    let detail = "the request must have exactly one valid Host header";
    let body = format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"{detail}"}}"#);
    for lines in [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: a?b\r\n",
        "Host: user@a\r\n",
        "Host: a:x\r\n",
        "Host: a:80:80\r\n",
        "Host: a:999999\r\n",
        "Host: a\\b\r\n",
        "Host: \"a\"\r\n",
        "Host: <a>\r\n",
        "Host: [::1\r\n",
        "Host: [::g]\r\n",
        "Host: ::1\r\n",
        "Host: :80\r\n",
        "Host: .\r\n",
        "Host: \u{e9}\r\n",
    ] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET / HTTP/1.1\r\n{lines}\r\n"));
        let response = client.read();
        assert_eq!(response.start, "HTTP/1.1 400 Bad Request", "{lines:?}");
        assert_eq!(response.text(), format!("{body}\n"), "{lines:?}");
        assert_eq!(response.header("connection"), Some("close"), "{lines:?}");
        client.expect_close();
    }
    let mut client = Client::connect(proxy.addr());
    client.send("GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read().status(), 400);
    assert!(server.requests().is_empty());
}

#[test]
fn connect_is_405() {
    let (proxy, server) = listening("");
    for target in ["a:443", "127.0.0.1:1"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        let response = client.read();
        assert_eq!(response.start, "HTTP/1.1 405 Method Not Allowed", "{target}");
        let detail = "CONNECT is supported for WebSocket over HTTP/2 only";
        let body = format!(
            r#"{{"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"{detail}"}}"#
        );
        assert_eq!(response.text(), body + "\n", "{target}");
        client.expect_close();
    }
    assert!(server.requests().is_empty());
}

#[test]
fn smuggled_requests_are_not_forwarded() {
    const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    let (proxy, server) = listening("");
    for head in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 38\r\n\r\n",
        "Content-Length: 0, 38\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Content-Length: 0x0\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 99999999999999999999\r\n\r\n",
        "Transfer-Encoding: gzip\r\n\r\n",
        "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        "X: a\r\n b\r\n\r\n",
        "X\0: a\r\n\r\n",
        "X: a\0b\r\n\r\n",
        "X: a\rb\r\n\r\n",
        "X Y: a\r\n\r\n",
        ": a\r\n\r\n",
    ] {
        let seen = server.requests().len();
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST /outer HTTP/1.1\r\nHost: a\r\n{head}{HIDDEN}"));
        let responses = client.read_to_close();
        let responses = String::from_utf8_lossy(&responses);
        assert!(!responses.contains("/hidden"), "{head:?}: {responses}");
        let got: Vec<String> =
            server.requests()[seen..].iter().map(|request| request.start.clone()).collect();
        assert!(!got.iter().any(|start| start.contains("hidden")), "{head:?}: {got:?}");
        // The text of the echo does not match, since no blank follows its version.
        assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{head:?}: {responses}");
        let is_te_alone = head.contains("Content-Length: 6");
        if !is_te_alone {
            let status = responses.split(' ').nth(1).unwrap();
            // An unknown transfer coding may be 501 (RFC 9112 §6.1).
            assert!(matches!(status, "400" | "501"), "{head:?}: {responses}");
        }
    }
}

#[test]
fn an_endless_head_is_closed_after_header_timeout() {
    let (proxy, server) = listening("header_timeout = \"1s\"");
    let mut client = Client::connect(proxy.addr());
    let drip = || {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n");
        loop {
            // Real time is tested: the client is never silent for as long as the timeout.
            std::thread::sleep(Duration::from_millis(100));
            if client.try_send("X: y\r\n").is_err() {
                return;
            }
        }
    };
    let ((), time) = timed(drip);
    assert!(is_between(time, 900, 5000), "{time:?}");
    // The timeout applies to later heads of a connection, too.
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    client.send("GET / HTT");
    let ((), time) = timed(|| client.expect_close());
    assert!(is_between(time, 900, 5000), "{time:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_idle_connection_is_closed_after_idle_timeout() {
    let (proxy, _server) = listening("idle_timeout = \"1s\"\nheader_timeout = \"60s\"");
    let mut fresh = Client::connect(proxy.addr());
    let mut client = Client::connect(proxy.addr());
    let ((), time) = timed(|| {
        for _ in 0..8 {
            assert_eq!(client.get("/", &[]).status(), 200);
            // Real time is tested: each pause is shorter than the timeout, and all together are longer.
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    assert!(time > Duration::from_secs(1), "{time:?}");
    // The connection without a request was closed meanwhile.
    fresh.expect_close();
    let ((), time) = timed(|| client.expect_close());
    assert!(is_between(time, 500, 5000), "{time:?}");
    // The time of a response does not count.
    let slow = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            // Real time is tested: longer than both timeouts of the listener.
            std::thread::sleep(Duration::from_millis(700));
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nidle_timeout = \"500ms\"\nheader_timeout = \"400ms\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        slow.url()
    ));
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    let ((), time) = timed(|| client.expect_close());
    assert!(is_between(time, 400, 4000), "{time:?}");
}

#[test]
fn a_stalled_body_is_cut_off_after_body_timeout() {
    let (proxy, server) = listening("body_timeout = \"1s\"\nidle_timeout = \"60s\"");
    for body in ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
        let (response, time) = timed(|| client.read_to_close());
        assert!(is_between(time, 900, 6000), "{body:?}: {time:?}");
        let response = String::from_utf8_lossy(&response);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{body:?}: {response}");
    }
    eventually("the upstream connection is closed", || server.open() == 0);
    assert!(server.requests().is_empty());
    // A slow body is not a stalled one.
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n");
    for byte in b"slowly" {
        // Real time is tested: each pause is shorter than the timeout, and all together are longer.
        std::thread::sleep(Duration::from_millis(250));
        client.send([*byte]);
    }
    assert_eq!(client.read().echoed().text(), "slowly");
}

#[test]
fn chunks_with_too_little_data_are_rejected() {
    let (proxy, server) = listening("");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (chunk, data, is_accepted) in [
        ("1\r\nx\r\n", "x", false),
        ("5;extension\r\nhello\r\n", "hello", false),
        ("2\r\nxy\r\n", "xy", true),
        ("14\r\n{\"number\":123456789}\r\n", "{\"number\":123456789}", true),
    ] {
        let mut client = Client::connect(proxy.addr());
        // The proxy may close the connection before it has read all.
        let _ = client.try_send(head.to_owned() + &chunk.repeat(100_000) + "0\r\n\r\n");
        let response = client.read();
        if is_accepted {
            assert!(response.echoed().text() == data.repeat(100_000), "{chunk:?}");
            continue;
        }
        assert_eq!((response.status(), response.header("connection")), (400, Some("close")), "{chunk:?}");
        client.expect_close();
    }
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn chunks_of_one_byte_may_be_sent_for_any_time() {
    let (proxy, _server) = listening("");
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("1\r\nx\r\n".repeat(16_000));
    // Real time is tested: a second earns credit for the lines of 800 chunks, without which these are too many.
    std::thread::sleep(Duration::from_millis(1100));
    client.send("1\r\nx\r\n".repeat(700) + "0\r\n\r\n");
    assert!(client.read().echoed().text() == "x".repeat(16_700));
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
        while caller.try_send(vec![b'x'; 1 << 16]).is_ok() {}
    });
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nidle_timeout = \"500ms\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.open() == 1);
    let ((), time) = timed(|| eventually("the upstream connection is closed", || server.open() == 0));
    assert!(time < patience(), "{time:?}");
}

#[test]
fn max_connections_applies_over_all_workers() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "workers = 3\n[[listeners]]\naddress = \"127.0.0.1:0\"\nmax_connections = 4\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut open: Vec<Client> = (0..4).map(|_| Client::connect(proxy.addr())).collect();
    for client in &mut open {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    for _ in 0..6 {
        Client::connect(proxy.addr()).expect_close();
    }
    for client in &mut open {
        assert_eq!(client.get("/", &[]).status(), 200, "the open connections are still served");
    }
    open.pop();
    eventually("a new connection is accepted", || {
        let mut client = Client::connect(proxy.addr());
        let sent = client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        sent.is_ok() && client.read_response("GET").is_ok_and(|response| response.status() == 200)
    });
}

#[test]
fn garbage_is_rejected_and_other_clients_are_served() {
    let (proxy, server) = listening("");
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        b"GET / HTTP/3.7\r\nHost: a\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut client = Client::connect(proxy.addr());
        client.send(garbage);
        client.finish();
        let response = client.read_to_close();
        let response = String::from_utf8_lossy(&response);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{garbage:?}: {response}");
    }
    assert!(server.requests().is_empty());
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
}
