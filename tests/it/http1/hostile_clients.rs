//! Requests that mean harm, or look as if they did.

use std::time::Duration;

use crate::support::{Client, PATIENCE, Tidegate, Upstream, eventually, get, timed};

/// A proxy before an echo, with these lines for its listener.
fn listening(lines: &str) -> (Tidegate, Upstream) {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{lines}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    (proxy, server)
}

/// A request with so many headers, its host among them.
fn with_headers(count: usize) -> String {
    let lines: Vec<String> = (1..count).map(|number| format!("X-{number}: y\r\n")).collect();
    format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.concat())
}

#[test]
fn heads_have_a_bound() {
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
        let answer = client.read();
        assert_eq!(answer.status(), status, "{} bytes: {}", request.len(), answer.start);
        if status == 431 {
            assert_eq!(answer.start, "HTTP/1.1 431 Request Header Fields Too Large");
            assert_eq!(answer.text(), "");
            client.expect_close();
        }
    }
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_target_has_a_bound() {
    let (proxy, server) = listening("");
    let mut client = Client::connect(proxy.addr());
    client.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(64 * 1024)));
    let answer = client.read();
    assert!(matches!(answer.status(), 414 | 431), "{}", answer.start);
    client.expect_close();
    assert!(server.requests().is_empty());
}

#[test]
fn a_request_has_exactly_one_valid_host() {
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
        let answer = client.read();
        assert_eq!(answer.start, "HTTP/1.1 400 Bad Request", "{lines:?}");
        assert_eq!(answer.text(), format!("{body}\n"), "{lines:?}");
        assert_eq!(answer.header("connection"), Some("close"));
        client.expect_close();
    }
    let mut client = Client::connect(proxy.addr());
    client.send("GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read().status(), 400);
    assert!(server.requests().is_empty());
}

#[test]
fn connect_is_for_others() {
    let (proxy, server) = listening("");
    for target in ["a:443", "127.0.0.1:1"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        let answer = client.read();
        assert_eq!(answer.start, "HTTP/1.1 405 Method Not Allowed");
        let detail = "CONNECT is supported for WebSocket over HTTP/2 only";
        let body = format!(
            r#"{{"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"{detail}"}}"#
        );
        assert_eq!(answer.text(), body + "\n");
        client.expect_close();
    }
    assert!(server.requests().is_empty());
}

#[test]
fn no_request_hides_in_another() {
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
        let answers = client.read_to_close();
        let answers = String::from_utf8_lossy(&answers);
        assert!(!answers.contains("/hidden"), "{head:?}: {answers}");
        let got: Vec<String> =
            server.requests()[seen..].iter().map(|request| request.start.clone()).collect();
        assert!(!got.iter().any(|start| start.contains("hidden")), "{head:?}: {got:?}");
        // The echo has no blank after the version.
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{head:?}: {answers}");
        let is_te_alone = head.contains("Content-Length: 6");
        if !is_te_alone {
            let status = answers.split(' ').nth(1).unwrap();
            // A coding that is not understood is no bad request (RFC 9112 §6.1).
            assert!(matches!(status, "400" | "501"), "{head:?}: {answers}");
        }
    }
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    let (proxy, server) = listening("header_timeout = \"1s\"");
    let mut client = Client::connect(proxy.addr());
    let drip = || {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n");
        loop {
            // One header each tenth of a second: never silent for as long as the timeout.
            std::thread::sleep(Duration::from_millis(100));
            if client.try_send("X: y\r\n").is_err() {
                return;
            }
        }
    };
    let ((), time) = timed(drip);
    assert!((900..5000).contains(&time.as_millis()), "{time:?}");
    // The second head of a connection has the same time.
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    client.send("GET / HTT");
    let ((), time) = timed(|| client.expect_close());
    assert!((900..5000).contains(&time.as_millis()), "{time:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_silent_connection_is_closed() {
    let (proxy, _server) = listening("idle_timeout = \"500ms\"\nheader_timeout = \"60s\"");
    let mut fresh = Client::connect(proxy.addr());
    let ((), time) = timed(|| fresh.expect_close());
    assert!((400..4000).contains(&time.as_millis()), "{time:?}");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..4 {
        assert_eq!(client.get("/", &[]).status(), 200);
        // Less than the timeout: a connection that is used stays.
        std::thread::sleep(Duration::from_millis(200));
    }
    let ((), time) = timed(|| client.expect_close());
    assert!((200..4000).contains(&time.as_millis()), "{time:?}");
    // Nor does it matter how long the answer took.
    let slow = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            // Longer than both times of the listener.
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
    assert!((400..4000).contains(&time.as_millis()), "{time:?}");
}

#[test]
fn a_body_that_stalls_is_cut_off() {
    let (proxy, server) = listening("body_timeout = \"500ms\"\nidle_timeout = \"60s\"");
    for body in ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
        let (answer, time) = timed(|| client.read_to_close());
        assert!((400..4000).contains(&time.as_millis()), "{time:?}");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    eventually("the server is free again", || server.open() == 0);
    assert!(server.requests().is_empty());
    // Slow is not stalled.
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n");
    for byte in b"slowly" {
        std::thread::sleep(Duration::from_millis(150));
        client.send([*byte]);
    }
    assert_eq!(client.read().echoed().text(), "slowly");
}

#[test]
fn a_client_that_reads_nothing_does_not_stay_for_ever() {
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
    eventually("the server is asked", || server.open() == 1);
    let ((), time) = timed(|| eventually("both connections are given up", || server.open() == 0));
    assert!(time < PATIENCE, "{time:?}");
}

#[test]
fn connections_have_a_bound_over_all_workers() {
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
        assert_eq!(client.get("/", &[]).status(), 200, "the others are not disturbed");
    }
    open.pop();
    eventually("there is room for another", || {
        let mut client = Client::connect(proxy.addr());
        let asked = client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        asked.is_ok() && client.read_response("GET").is_ok_and(|answer| answer.status() == 200)
    });
}

#[test]
fn rubbish_is_refused_and_harms_nobody() {
    let (proxy, server) = listening("");
    for rubbish in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        b"GET / HTTP/3.7\r\nHost: a\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut client = Client::connect(proxy.addr());
        client.send(rubbish);
        client.finish();
        let answer = client.read_to_close();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{rubbish:?}: {answer}");
    }
    assert!(server.requests().is_empty());
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
}
