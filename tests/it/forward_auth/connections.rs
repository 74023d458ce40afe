//! Methods, bodies and connections of authorization requests, none of which is part of the original request.

use http::Request;

use super::setup::{ASKING, PROXY};
use crate::support::{Client, Http2, Tidegate};

const LIMITED: &str = "
    [limits.four]
    rate = \"4/hour\"
    [[routes]]
    path = \"/orders\"
    methods = [\"GET\"]
    limits = [\"four\"]
    respond = { status = 200 }";

const ORIGINAL: &str = "X-Forwarded-Method: GET\r\nX-Forwarded-Host: a.test\r\nX-Forwarded-For: 192.0.2.1";

#[test]
fn a_connection_serves_requests_with_any_method_and_body() {
    let proxy = Tidegate::start(&format!("{ASKING}{LIMITED}"));
    let mut client = Client::connect_from(PROXY, proxy.addr());
    let mut ask = |line: &str, more: &str, body: &str| {
        let head = format!("{line} HTTP/1.1\r\nHost: b\r\n{ORIGINAL}\r\nX-Forwarded-Uri: /orders{more}");
        let response = client.ask(&format!("{head}\r\n\r\n{body}"));
        let header = |name: &str| response.header(name).unwrap_or_default().to_owned();
        (response.status(), header("x-ratelimit-remaining"), header("connection"))
    };
    let expected =
        |status, remaining: &str, connection: &str| (status, remaining.to_owned(), connection.to_owned());
    for (line, more, body, remaining) in [
        ("GET /", "", "", "3"),
        ("POST /", "\r\nContent-Length: 4", "body", "2"),
        ("PUT /", "\r\nContent-Length: 0", "", "1"),
        ("OPTIONS /", "\r\nUpgrade: websocket\r\nConnection: upgrade", "", "0"),
    ] {
        assert_eq!(ask(line, more, body), expected(200, remaining, ""), "{line}");
    }
    assert_eq!(ask("DELETE /", "", ""), expected(429, "0", ""));
    // A body of unknown length is not read, so its connection is closed.
    let chunked = ask("PUT /", "\r\nTransfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n");
    assert_eq!(chunked, expected(429, "0", "close"));
}

#[test]
fn a_response_to_head_has_no_body() {
    let proxy = Tidegate::start(&format!("{ASKING}{LIMITED}"));
    let mut client = Client::connect_from(PROXY, proxy.addr());
    for status in [200, 200, 200, 200, 429, 429] {
        let head = format!("HEAD / HTTP/1.1\r\nHost: b\r\n{ORIGINAL}\r\nX-Forwarded-Uri: /orders");
        let response = client.ask(&format!("{head}\r\n\r\n"));
        assert_eq!((response.status(), response.text()), (status, ""));
    }
}

/// The proxy frames its messages correctly, whatever its client sends.
#[test]
fn a_malformed_original_request_does_not_close_the_connection() {
    for deny_status in ["", "deny_status = 403\n"] {
        let asking = ASKING.replace("\"decide\"\n", &format!("\"decide\"\n{deny_status}"));
        let proxy = Tidegate::start(&format!("{asking}{LIMITED}"));
        let mut client = Client::connect_from(PROXY, proxy.addr());
        let mut ask = |target: &str| {
            let target = format!("X-Forwarded-Uri: {target}");
            let headers: Vec<&str> = ORIGINAL.split("\r\n").chain([&*target]).collect();
            client.get("/", &headers)
        };
        let denied = ask("/a%2fb");
        assert_eq!(denied.header("x-tidegate-status").unwrap_or("400"), "400");
        assert_eq!(denied.header("connection"), None);
        assert_eq!(ask("/orders").status(), 200);
        assert_eq!(ask("/orders#").status(), 400);
        assert_eq!(ask("/orders").status(), 200);
    }
}

#[test]
fn http2_requests_are_decided_too() {
    let proxy = Tidegate::start(&format!("{}{LIMITED}", ASKING.replace(PROXY, "127.0.0.1")));
    let client = Http2::connect(proxy.addr());
    let ask = |method: &str, target: &str| {
        let request = Request::builder()
            .method(method)
            .uri(proxy.url("/any"))
            .header("x-forwarded-method", "GET")
            .header("x-forwarded-host", "a.test")
            .header("x-forwarded-uri", target)
            .header("x-forwarded-for", "192.0.2.1");
        let body: &[u8] = if method == "POST" { b"body" } else { b"" };
        client.ask(request.body(()).unwrap(), body).status()
    };
    assert_eq!((ask("GET", "/orders"), ask("POST", "/orders"), ask("HEAD", "/orders")), (200, 200, 200));
    assert_eq!((ask("OPTIONS", "/orders"), ask("GET", "/orders")), (200, 429));
    assert_eq!((ask("GET", "orders"), ask("GET", "/else")), (400, 404));
}

#[test]
fn connect_is_never_allowed() {
    let proxy = Tidegate::start(&format!("{ASKING}[[routes]]\npath = \"/*\"\nrespond = {{ status = 200 }}"));
    let ask =
        |request| super::setup::ask(proxy.addr(), request, "192.0.2.1", &["Upgrade: websocket"]).status();
    assert_eq!((ask("CONNECT a.test /chat"), ask("GET a.test /chat")), (405, 200));
}
