//! Responses of upstream servers: framing, interim responses, upgrades.

use super::setup::{assert_bad_gateway, refusing_url};
use crate::support::{Client, Tidegate, Upstream, eventually, get};

#[test]
fn a_response_without_length_ends_with_its_connection() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\n\r\nsome text");
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let response = client.get("/", &[]);
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        assert_eq!(response.text(), "some text");
    }
}

#[test]
fn reason_phrases_are_forwarded() {
    for phrase in ["OK", "Fine", ""] {
        let server = Upstream::answering(format!("HTTP/1.1 200 {phrase}\r\nContent-Length: 0\r\n\r\n"));
        let proxy = Tidegate::forwarding_to(&server.url());
        let response = get(proxy.addr(), "/", &["Host: a"]);
        assert_eq!(response.start.trim_end(), format!("HTTP/1.1 200 {phrase}").trim_end());
    }
}

#[test]
fn a_502_keeps_the_client_connection_only_after_a_short_body() {
    let closing = Upstream::scripted(|caller| {
        let _ = caller.read_head();
    });
    let long = "x".repeat(1024 * 1024);
    for (upstream, framing, body, keeps_alive) in [
        (&refusing_url(), "Content-Length: 2", "hi", true),
        (&refusing_url(), "Content-Length: 1048576", &*long, false),
        (&refusing_url(), "Transfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n", false),
        (&closing.url(), "Content-Length: 1048576", &*long, false),
    ] {
        let proxy = Tidegate::forwarding_to(upstream);
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        // The connection to the server fails before the body arrives.
        proxy.wait_read();
        if upstream == &closing.url() {
            eventually("the server closes the connection", || {
                closing.connections() > 0 && closing.open() == 0
            });
            proxy.wait_read();
        }
        let _ = client.try_send(body);
        let response = client.read();
        assert_eq!(
            (response.status(), response.header("connection")),
            (502, (!keeps_alive).then_some("close")),
            "{framing}"
        );
        if keeps_alive {
            assert_eq!(client.get("/", &[]).status(), 502);
        }
    }
}

#[test]
fn a_response_with_ambiguous_framing_is_502() {
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n6\r\nhello!\r\n0\r\n\r\n");
        let server = Upstream::answering(response);
        let proxy = Tidegate::forwarding_to(&server.url());
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502, "{framing}");
    }
}

#[test]
fn chunks_of_a_response_may_be_padded_and_have_extensions() {
    let text = "0123456789".repeat(10_000);
    for size in ["a     ", "00000000000000a", "a;name=\"some value\"", "a \t;x"] {
        let chunks = format!("{size}\r\n0123456789\r\n").repeat(10_000);
        let response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0 \r\n\r\n");
        let server = Upstream::answering(response);
        let proxy = Tidegate::forwarding_to(&server.url());
        let mut client = Client::connect(proxy.addr());
        for _ in 0..2 {
            let response = client.get("/", &[]);
            assert_eq!(response.header("transfer-encoding"), Some("chunked"));
            assert!(response.text() == text, "{size:?}: {} bytes", response.text().len());
        }
        assert_eq!(server.connections(), 1, "the connection is used again");
    }
}

#[test]
fn a_101_response_without_an_upgrade_request_is_502() {
    let server = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    );
    let proxy = Tidegate::forwarding_to(&server.url());
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
fn endless_interim_responses_are_502() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        while caller.try_send("HTTP/1.1 102 Processing\r\n\r\n".repeat(50)).is_ok() {}
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let response = get(proxy.addr(), "/", &[]);
    assert_bad_gateway(&response, "the upstream sent no valid response");
    eventually("the upstream connection is closed", || server.open() == 0);
}
