//! HTTP/1.1 messages: keep-alive, pipelining, framing, trailers, Expect and interim responses.

use std::time::Duration;

use crate::support::{Caller, Client, Message, Tidegate, Upstream, eventually, get};

pub const MIB: usize = 1024 * 1024;

#[test]
fn a_connection_serves_many_requests() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for path in ["/1", "/2", "/3"] {
        let response = client.get(path, &[]);
        assert_eq!(response.header("connection"), None);
        assert_eq!(response.echoed().start, format!("GET {path} HTTP/1.1"));
    }
    let response = client.get("/4", &["Connection: close"]);
    assert_eq!(response.header("connection"), Some("close"));
    client.expect_close();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    client.send(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
         HEAD /3 HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /4 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n\
         GET /5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n\
         GET /6 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.read().echoed().start, "GET /1 HTTP/1.1");
    let second = client.read().echoed();
    assert_eq!((&*second.start, second.text()), ("POST /2 HTTP/1.1", "hello"));
    let third = client.read_response("HEAD").unwrap();
    assert_eq!((third.status(), third.body.len()), (200, 0));
    let fourth = client.read().echoed();
    assert_eq!((&*fourth.start, fourth.text()), ("POST /4 HTTP/1.1", "hi"));
    assert_eq!(client.read().echoed().start, "GET /5 HTTP/1.1");
    client.expect_close();
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for byte in b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" {
        client.send([*byte]);
    }
    let received = client.read().echoed();
    assert_eq!((&*received.start, received.text()), ("POST /slow HTTP/1.1", "abc"));
}

#[test]
fn bodies_keep_their_framing() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         5;ext=1\r\nhello\r\n1\r\n \r\n0A\r\n0123456789\r\n0\r\n\r\n",
    );
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    assert_eq!(response.header("content-length"), None);
    let received = response.echoed();
    assert_eq!(received.header("transfer-encoding"), Some("chunked"));
    assert_eq!(received.header("content-length"), None);
    assert_eq!(received.text(), "hello 0123456789");

    let response = client.ask("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world");
    assert_eq!(response.header("content-length"), Some(&*response.body.len().to_string()));
    assert_eq!(response.header("transfer-encoding"), None);
    let received = response.echoed();
    assert_eq!(received.header("content-length"), Some("11"));
    assert_eq!(received.header("transfer-encoding"), None);
    assert_eq!(received.text(), "hello world");

    for empty in ["Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let received = client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{empty}")).echoed();
        assert_eq!((received.start.as_str(), received.text()), ("POST / HTTP/1.1", ""));
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn expect_100_continue_gets_100() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
        let interim = client.read_head().unwrap().unwrap();
        assert_eq!((&*interim.start, interim.headers.len()), ("HTTP/1.1 100 Continue", 0));
        client.send("hello");
        let response = client.read();
        assert!(response.interim.is_empty());
        let received = response.echoed();
        assert_eq!((received.header("expect"), received.text()), (None, "hello"));
    }
}

#[test]
fn a_rejected_request_gets_no_100_continue() {
    let proxy = Tidegate::start(
        r#"
        [limits.one]
        rate = "1/hour"
        [[routes]]
        path = "/own"
        respond = { body = "own" }
        [[routes]]
        path = "/*"
        limits = ["one"]
        respond = { status = 200 }
        "#,
    );
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    for (target, status) in [("/", 429), ("/own", 200), ("/%2F", 400)] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        ));
        let response = client.read();
        assert_eq!((response.status(), response.interim.len()), (status, 0), "{target}: {response:?}");
    }
}

/// A request with trailers: two are announced, one of which is forbidden, and one is not announced.
const WITH_TRAILERS: &str = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n\
                             2\r\nhi\r\n0\r\nX-Sum: 7\r\nContent-Length: 99\r\nX-Unannounced: 8\r\n\r\n";

#[test]
fn announced_trailers_are_forwarded_both_ways() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n{WITH_TRAILERS}"));
    let received = &server.requests()[0];
    assert_eq!(received.header("trailer"), Some("x-sum"));
    assert_eq!(received.header("te"), Some("trailers"));
    let pairs: Vec<(String, &str)> =
        received.trailers.iter().map(|(name, value)| (name.to_lowercase(), &**value)).collect();
    assert_eq!(pairs, [("x-sum".to_owned(), "7")]);
    assert_eq!(response.echoed().text(), "hi");
    assert_eq!(response.header("trailer"), Some("x-sum"));
    let pairs: Vec<(String, &str)> =
        response.trailers.iter().map(|(name, value)| (name.to_lowercase(), &**value)).collect();
    assert_eq!(pairs, [("x-sum".to_owned(), "7")]);
    // The connection is closed, since bytes after the trailers can't be trusted.
    client.expect_close();
    // Without TE a client gets no trailers.
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{WITH_TRAILERS}"));
    assert!(response.trailers.is_empty(), "{:?}", response.trailers);
    client.expect_close();
}

#[test]
fn forbidden_response_trailers_are_removed() {
    let server = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Set-Cookie, Transfer-Encoding\r\n\r\n\
         2\r\nok\r\n0\r\nSet-Cookie: a=b\r\nTransfer-Encoding: gzip\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    );
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let response = client.get("/", &["TE: trailers"]);
        assert_eq!(response.text(), "ok");
        assert_eq!(response.header("trailer"), Some("x-sum"));
        let names: Vec<String> = response.trailers.iter().map(|(name, _)| name.to_lowercase()).collect();
        assert_eq!(names, ["x-sum"]);
    }
}

#[test]
fn a_response_to_head_has_a_length_and_no_body() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    let response = client.ask("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(response.status(), 200);
    assert!(response.header("content-length").unwrap().parse::<usize>().unwrap() > 20);
    assert_eq!(server.requests()[0].start, "HEAD /x HTTP/1.1");
    assert_eq!(client.get("/y", &[]).echoed().start, "GET /y HTTP/1.1");
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_body_of_a_bodyless_response_is_discarded_with_its_connection() {
    for (request, said) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n6\r\npoison\r\n0\r\n\r\n"),
    ] {
        let server = Upstream::answering(said);
        let proxy = Tidegate::forwarding_to(&server.url());
        let mut client = Client::connect(proxy.addr());
        for count in 1..=3 {
            let response = client.ask(&format!("{request} / HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(response.start.split(' ').nth(1), said.split(' ').nth(1), "{said:?}");
            assert_eq!(response.text(), "", "{said:?}");
            // The bytes after the response belong to no response, so the connection can't be reused.
            assert_eq!(server.connections(), count, "{said:?}");
        }
    }
}

#[test]
fn bodyless_responses_keep_the_upstream_connection() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let response = match request.start.split(' ').nth(1) {
                Some("/204") => "HTTP/1.1 204 No Content\r\nETag: \"x\"\r\n\r\n",
                Some("/304") => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 77\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n",
            };
            let _ = caller.try_send(response);
        }
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for (target, start, length) in [
        ("/204", "HTTP/1.1 204 No Content", None),
        ("/304", "HTTP/1.1 304 Not Modified", Some("77")),
        ("/200", "HTTP/1.1 200 OK", Some("0")),
    ] {
        for _ in 0..2 {
            let response = client.get(target, &["If-None-Match: \"x\""]);
            assert_eq!(response.start, start);
            // A 304 may leave the length out, but must not have another one.
            let found = response.header("content-length");
            assert!(found == length || (found.is_none() && target == "/304"), "{target}: {found:?}");
            assert_eq!(response.header("transfer-encoding"), None, "{target}");
            assert_eq!(response.header("etag"), Some("\"x\""), "{target}");
        }
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn http_1_0_clients_are_served() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nol\r\n1\r\nd\r\n0\r\n\r\n",
            );
        }
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    let response = client.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(response.status(), 200);
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.text(), "old");
    client.expect_close();
    let received = &server.requests()[0];
    assert_eq!((&*received.start, received.header("host")), ("GET / HTTP/1.1", Some("a")));

    let echo = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&echo.url());
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let response =
            client.ask("POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(response.header("connection"), Some("keep-alive"));
        assert_eq!(response.echoed().text(), "hi");
    }
}

#[test]
fn a_body_without_length_to_http_1_0_has_connection_close() {
    let keeps = |path: &str| format!("GET {path} HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let response = match request.start.split(' ').nth(1) {
                Some("/chunked") => "Transfer-Encoding: chunked\r\n\r\n3\r\nold\r\n0\r\n\r\n",
                Some("/to-the-end") => "Connection: keep-alive\r\n\r\nold",
                _ => "Content-Length: 3\r\n\r\nold",
            };
            let version = if response.contains("keep-alive") { "1.0" } else { "1.1" };
            let sent = caller.try_send(format!("HTTP/{version} 200 OK\r\n{response}"));
            if sent.is_err() || version == "1.0" {
                return;
            }
        }
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    for path in ["/chunked", "/to-the-end"] {
        let mut client = Client::connect(proxy.addr());
        let sized = client.ask(&keeps("/sized"));
        assert_eq!((sized.all("connection"), sized.text()), (vec!["keep-alive"], "old"));
        let unsized_answer = client.ask(&keeps(path));
        assert_eq!(unsized_answer.text(), "old");
        assert_eq!(unsized_answer.all("connection"), ["close"], "{path}");
        client.expect_close();
    }
    // A client of HTTP/1.1 gets a chunked body, and its connection stays open.
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        assert_eq!(client.get("/to-the-end", &[]).text(), "old");
    }
    // A response that closes the connection has one Connection header.
    let refused = Client::connect(proxy.addr()).ask(&keeps("/%00"));
    assert_eq!((refused.status(), refused.all("connection")), (400, vec!["close"]));
}

/// Responds to the head with 413, and then reads the rest.
fn too_large(caller: &mut Caller) {
    while let Ok(Some(_)) = caller.read_head() {
        let _ = caller.try_send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
        caller.read_to_close();
    }
}

#[test]
fn a_response_may_precede_the_end_of_its_request() {
    let server = Upstream::scripted(too_large);
    let proxy = Tidegate::forwarding_to(&server.url());
    for framing in ["Content-Length: 1000000\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"]
    {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
        let response = client.read();
        assert_eq!((&*response.start, response.text()), ("HTTP/1.1 413 Content Too Large", "no!"));
        eventually("the unfinished connection is not kept", || server.open() == 0);
    }
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_early_response_reaches_a_client_that_is_still_sending() {
    let server = Upstream::scripted(too_large);
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    // The client reads the response only after it has sent everything; the proxy may close before that.
    let _ = client.try_send(vec![b'x'; 200_000]);
    let response: Message = client.read_response("POST").unwrap();
    assert_eq!((response.status(), response.text()), (413, "no!"));
}

/// The response may take longer than the timeout, also when the request ends in the middle of it.
#[test]
fn response_timeout_does_not_apply_after_the_response_head() {
    let server = Upstream::scripted(|caller| {
        caller.read_head().unwrap().unwrap();
        caller.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
        for _ in 0..6 {
            // Real time is tested: together the pauses are longer than the response timeout.
            std::thread::sleep(Duration::from_millis(150));
            if caller.try_send("x").is_err() {
                return;
            }
        }
        let _ = caller.request();
    });
    let proxy = Tidegate::start(&format!(
        "[upstreams.slow]\nservers = [\"{}\"]\nresponse_timeout = \"400ms\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"slow\"\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nha\r\n");
    client.read_head().unwrap().unwrap();
    client.send("2\r\nlf\r\n0\r\n\r\n");
    assert_eq!(client.take(6).unwrap(), b"xxxxxx");
}

#[test]
fn a_local_reply_drains_a_short_body_and_keeps_the_connection() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = { status = 200, body = \"ok\" }\n");
    let mut client = Client::connect(proxy.addr());
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    client.send("halfGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..2 {
        let response = client.read();
        assert_eq!((response.status(), response.header("connection")), (200, None));
    }
    client.send("POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nno");
    assert_eq!(client.read().header("connection"), Some("close"));
    client.expect_close();
}
