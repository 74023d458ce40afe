//! HTTP/1.1 as it is spoken: connections, framing, bodies in both directions, and their pace.

use std::time::Duration;

use crate::support::{Caller, Client, Message, Tidegate, Upstream, eventually, get};

pub const MIB: usize = 1024 * 1024;

pub fn before(server: &Upstream) -> Tidegate {
    Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()))
}

#[test]
fn a_connection_serves_many_requests() {
    let server = Upstream::echo();
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    for path in ["/1", "/2", "/3"] {
        let answer = client.get(path, &[]);
        assert_eq!(answer.header("connection"), None);
        assert_eq!(answer.echoed().start, format!("GET {path} HTTP/1.1"));
    }
    let answer = client.get("/4", &["Connection: close"]);
    assert_eq!(answer.header("connection"), Some("close"));
    client.expect_close();
}

#[test]
fn requests_in_one_piece_are_answered_in_order() {
    let server = Upstream::echo();
    let proxy = before(&server);
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
fn a_request_may_come_byte_by_byte() {
    let server = Upstream::echo();
    let proxy = before(&server);
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
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         5;ext=1\r\nhello\r\n1\r\n \r\n0A\r\n0123456789\r\n0\r\n\r\n",
    );
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert_eq!(answer.header("content-length"), None);
    let received = answer.echoed();
    assert_eq!(received.header("transfer-encoding"), Some("chunked"));
    assert_eq!(received.header("content-length"), None);
    assert_eq!(received.text(), "hello 0123456789");

    let answer = client.ask("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world");
    assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
    assert_eq!(answer.header("transfer-encoding"), None);
    let received = answer.echoed();
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
fn a_client_that_waits_for_100_gets_it() {
    let server = Upstream::echo();
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
        let interim = client.read_head().unwrap().unwrap();
        assert_eq!((&*interim.start, interim.headers.len()), ("HTTP/1.1 100 Continue", 0));
        client.send("hello");
        let answer = client.read();
        assert!(answer.interim.is_empty());
        let received = answer.echoed();
        assert_eq!((received.header("expect"), received.text()), (None, "hello"));
    }
}

#[test]
fn a_client_that_is_refused_is_not_asked_for_its_body() {
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
        let answer = client.read();
        assert_eq!((answer.status(), answer.interim.len()), (status, 0), "{answer:?}");
    }
}

/// A request with trailers, of which two are announced and one of these must not be one.
const WITH_TRAILERS: &str = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n\
                             2\r\nhi\r\n0\r\nX-Sum: 7\r\nContent-Length: 99\r\nX-Unannounced: 8\r\n\r\n";

#[test]
fn trailers_that_are_announced_pass_both_ways() {
    let server = Upstream::echo();
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n{WITH_TRAILERS}"));
    let received = &server.requests()[0];
    assert_eq!(received.header("trailer"), Some("x-sum"));
    assert_eq!(received.header("te"), Some("trailers"));
    let pairs: Vec<(String, &str)> =
        received.trailers.iter().map(|(name, value)| (name.to_lowercase(), &**value)).collect();
    assert_eq!(pairs, [("x-sum".to_owned(), "7")]);
    assert_eq!(answer.echoed().text(), "hi");
    assert_eq!(answer.header("trailer"), Some("x-sum"));
    let pairs: Vec<(String, &str)> =
        answer.trailers.iter().map(|(name, value)| (name.to_lowercase(), &**value)).collect();
    assert_eq!(pairs, [("x-sum".to_owned(), "7")]);
    // What stands behind trailers is no more to be trusted.
    client.expect_close();
    // Without TE a client gets none.
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{WITH_TRAILERS}"));
    assert!(answer.trailers.is_empty(), "{:?}", answer.trailers);
    client.expect_close();
}

#[test]
fn trailers_of_a_response_that_must_not_be_stay_here() {
    let server = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Set-Cookie, Transfer-Encoding\r\n\r\n\
         2\r\nok\r\n0\r\nSet-Cookie: a=b\r\nTransfer-Encoding: gzip\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    );
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.get("/", &["TE: trailers"]);
        assert_eq!(answer.text(), "ok");
        assert_eq!(answer.header("trailer"), Some("x-sum"));
        let names: Vec<String> = answer.trailers.iter().map(|(name, _)| name.to_lowercase()).collect();
        assert_eq!(names, ["x-sum"]);
    }
}

#[test]
fn a_head_request_has_a_length_and_no_body() {
    let server = Upstream::echo();
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status(), 200);
    assert!(answer.header("content-length").unwrap().parse::<usize>().unwrap() > 20);
    assert_eq!(server.requests()[0].start, "HEAD /x HTTP/1.1");
    assert_eq!(client.get("/y", &[]).echoed().start, "GET /y HTTP/1.1");
    assert_eq!(server.connections(), 1);
}

#[test]
fn bodies_where_none_may_be_reach_nobody() {
    for (request, said) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n6\r\npoison\r\n0\r\n\r\n"),
    ] {
        let server = Upstream::answering(said);
        let proxy = before(&server);
        let mut client = Client::connect(proxy.addr());
        for count in 1..=3 {
            let answer = client.ask(&format!("{request} / HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(answer.start.split(' ').nth(1), said.split(' ').nth(1), "{said:?}");
            assert_eq!(answer.text(), "");
            // The connection has bytes on it that belong to nothing.
            assert_eq!(server.connections(), count, "{said:?}");
        }
    }
}

#[test]
fn responses_without_a_body_pass_and_keep_the_connection() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let answer = match request.start.split(' ').nth(1) {
                Some("/204") => "HTTP/1.1 204 No Content\r\nETag: \"x\"\r\n\r\n",
                Some("/304") => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 77\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n",
            };
            let _ = caller.try_send(answer);
        }
    });
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    for (target, start, length) in [
        ("/204", "HTTP/1.1 204 No Content", None),
        ("/304", "HTTP/1.1 304 Not Modified", Some("77")),
        ("/200", "HTTP/1.1 200 OK", Some("0")),
    ] {
        for _ in 0..2 {
            let answer = client.get(target, &["If-None-Match: \"x\""]);
            assert_eq!(answer.start, start);
            // That a 304 need not tell the length; but it must not tell another one.
            let told = answer.header("content-length");
            assert!(told == length || (told.is_none() && target == "/304"), "{target}: {told:?}");
            assert_eq!(answer.header("transfer-encoding"), None);
            assert_eq!(answer.header("etag"), Some("\"x\""));
        }
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn old_clients_are_served() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nol\r\n1\r\nd\r\n0\r\n\r\n",
            );
        }
    });
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.text(), "old");
    client.expect_close();
    let received = &server.requests()[0];
    assert_eq!((&*received.start, received.header("host")), ("GET / HTTP/1.1", Some("a")));

    let echo = Upstream::echo();
    let proxy = before(&echo);
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer =
            client.ask("POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer.header("connection"), Some("keep-alive"));
        assert_eq!(answer.echoed().text(), "hi");
    }
}

#[test]
fn an_old_client_is_told_that_a_body_without_length_ends_the_connection() {
    let keeps = |path: &str| format!("GET {path} HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let answer = match request.start.split(' ').nth(1) {
                Some("/chunked") => "Transfer-Encoding: chunked\r\n\r\n3\r\nold\r\n0\r\n\r\n",
                Some("/to-the-end") => "Connection: keep-alive\r\n\r\nold",
                _ => "Content-Length: 3\r\n\r\nold",
            };
            let version = if answer.contains("keep-alive") { "1.0" } else { "1.1" };
            let sent = caller.try_send(format!("HTTP/{version} 200 OK\r\n{answer}"));
            if sent.is_err() || version == "1.0" {
                return;
            }
        }
    });
    let proxy = before(&server);
    for path in ["/chunked", "/to-the-end"] {
        let mut client = Client::connect(proxy.addr());
        let sized = client.ask(&keeps("/sized"));
        assert_eq!((sized.all("connection"), sized.text()), (vec!["keep-alive"], "old"));
        let unsized_answer = client.ask(&keeps(path));
        assert_eq!(unsized_answer.text(), "old");
        assert_eq!(unsized_answer.all("connection"), ["close"], "{path}");
        client.expect_close();
    }
    // The end of a body without length is no end of a client that speaks HTTP/1.1.
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        assert_eq!(client.get("/to-the-end", &[]).text(), "old");
    }
    // What closes the connection says nothing else.
    let refused = Client::connect(proxy.addr()).ask(&keeps("/%00"));
    assert_eq!((refused.status(), refused.all("connection")), (400, vec!["close"]));
}

/// Reads the head only and refuses, and then reads what else comes.
fn too_large(caller: &mut Caller) {
    while let Ok(Some(_)) = caller.read_head() {
        let _ = caller.try_send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
        caller.read_to_close();
    }
}

#[test]
fn an_answer_may_come_before_the_request_is_whole() {
    let server = Upstream::scripted(too_large);
    let proxy = before(&server);
    for framing in ["Content-Length: 1000000\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"]
    {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
        let answer = client.read();
        assert_eq!((&*answer.start, answer.text()), ("HTTP/1.1 413 Content Too Large", "no!"));
        eventually("the unfinished connection is not kept", || server.open() == 0);
    }
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_early_answer_to_a_client_that_goes_on_sending_arrives() {
    let server = Upstream::scripted(too_large);
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    // It does not look for the answer before it has sent all; the proxy may close in between.
    let _ = client.try_send(vec![b'x'; 200_000]);
    let answer: Message = client.read_response("POST").unwrap();
    assert_eq!((answer.status(), answer.text()), (413, "no!"));
}

/// Once an answer has begun, the time for its head is over: it may go on for longer than that, also when the
/// request ends in the middle of it.
#[test]
fn an_answer_outlives_the_response_timeout_when_the_request_ends_late() {
    let server = Upstream::scripted(|caller| {
        caller.read_head().unwrap().unwrap();
        caller.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
        for _ in 0..6 {
            // Slower in all than the response may be in coming, quicker than a stall.
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

/// An answer of the proxy's own does not cost the connection: a short body is read to its end.
#[test]
fn an_own_answer_keeps_the_connection_past_a_short_body() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = { status = 200, body = \"ok\" }\n");
    let mut client = Client::connect(proxy.addr());
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    client.send("halfGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..2 {
        let answer = client.read();
        assert_eq!((answer.status(), answer.header("connection")), (200, None));
    }
    client.send("POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nno");
    assert_eq!(client.read().header("connection"), Some("close"));
    client.expect_close();
}
