//! Responses of upstream servers: framing, interim responses, upgrades.

use std::time::Duration;

use super::setup::{assert_bad_gateway, before, nobody};
use crate::support::{Client, Tidegate, Upstream, eventually, get};

#[test]
fn a_response_without_length_ends_with_its_connection() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\n\r\nsome text");
    });
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.get("/", &[]);
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.text(), "some text");
    }
}

#[test]
fn a_servers_reason_phrase_is_passed_on() {
    for phrase in ["OK", "Fine", ""] {
        let server = Upstream::answering(format!("HTTP/1.1 200 {phrase}\r\nContent-Length: 0\r\n\r\n"));
        let proxy = before(&server.url(), "");
        let answer = get(proxy.addr(), "/", &["Host: a"]);
        assert_eq!(answer.start.trim_end(), format!("HTTP/1.1 200 {phrase}").trim_end());
    }
}

/// `[upstreams.many]` with these servers, and a route to it.
/// A client's connection outlives a server that is not there, or it is told that it does not.
#[test]
fn who_sends_a_body_for_nothing_hears_what_becomes_of_the_connection() {
    let deaf = Upstream::scripted(|caller| {
        let _ = caller.read_head();
    });
    let long = "x".repeat(1024 * 1024);
    for (upstream, framing, body, goes_on) in [
        (&nobody(), "Content-Length: 2", "hi", true),
        (&nobody(), "Content-Length: 1048576", &*long, false),
        (&nobody(), "Transfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n", false),
        (&deaf.url(), "Content-Length: 1048576", &*long, false),
    ] {
        let proxy = before(upstream, "");
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        // So that the body comes when the server is known to be away.
        std::thread::sleep(Duration::from_millis(50));
        let _ = client.try_send(body);
        let answer = client.read();
        assert_eq!(
            (answer.status(), answer.header("connection")),
            (502, (!goes_on).then_some("close")),
            "{framing}"
        );
        if goes_on {
            assert_eq!(client.get("/", &[]).status(), 502);
        }
    }
}

#[test]
fn an_answer_that_ends_in_more_than_one_place_is_502() {
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n6\r\nhello!\r\n0\r\n\r\n");
        let server = Upstream::answering(answer);
        let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502, "{framing}");
    }
}

#[test]
fn a_101_response_without_an_upgrade_request_is_502() {
    let server = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    );
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for headers in [&[][..], &["Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]] {
        assert_bad_gateway(
            &client.get("/", headers),
            "the upstream sent a 101 response that does not match the Upgrade of the request",
        );
    }
    assert!(server.requests().iter().all(|request| request.header("upgrade").is_none()));
    assert_eq!(server.connections(), 2);
}

#[test]
fn interim_responses_are_not_the_answer() {
    let server = Upstream::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.get("/", &[]);
        assert_eq!((answer.status(), answer.text(), answer.header("link")), (200, "ok", None));
    }
}

#[test]
fn interim_responses_without_end_are_no_answer() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        while caller.try_send("HTTP/1.1 102 Processing\r\n\r\n".repeat(50)).is_ok() {}
    });
    let proxy = before(&server.url(), "");
    let answer = get(proxy.addr(), "/", &[]);
    assert_bad_gateway(&answer, "the upstream sent no valid response");
    eventually("the connection is given up", || server.open() == 0);
}
