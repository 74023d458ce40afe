//! What an authorization server is asked, and what each of its responses does.

use std::net::TcpListener;

use http::{Request, Response};

use super::setup::{ROUTE, ask, config, proxy, says, server};
use crate::support::{Client, Collector, Http2, Http2Server, Tidegate, Upstream, attribute, eventually, get};

const COPY: &str = "copy = [\"x-user\", \"x-groups\"]";

#[test]
fn the_server_is_asked_about_the_request_and_sets_its_headers() {
    let (auth, upstream) = (server(), Upstream::echo());
    let proxy = proxy(&format!("{}/base", auth.url()), &upstream, COPY, ROUTE);
    let response = Client::connect(proxy.addr()).ask(
        "POST /a/../b%41?c=d HTTP/1.1\r\nHost: api.test:80\r\nAuthorization: ok ann\r\nCookie: s=1\r\nX-Other: 1\r\n\
         X-User: forged\r\nX_User: forged\r\nX-User: twice\r\nX-Groups: admin\r\nX-Forwarded-Uri: /forged\r\n\
         Connection: x-user\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbody",
    );
    let question = auth.requests().remove(0);
    assert_eq!(question.start, "GET /base/verify?x=1 HTTP/1.1");
    for (name, value) in [
        ("host", &*auth.addr().to_string()),
        ("authorization", "ok ann"),
        ("cookie", "s=1"),
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/bA?c=d"),
        ("x-forwarded-host", "api.test:80"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(question.header(name), Some(value), "{name}");
    }
    let names = question.names();
    for name in ["x-other", "x-user", "x_user", "content-length", "content-type", "transfer-encoding"] {
        assert!(!names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    let forwarded = response.echoed();
    assert_eq!((forwarded.all("x-user"), forwarded.text()), (vec!["ann"], "body"));
    let names = forwarded.names();
    for name in ["x_user", "x-groups", "x-secret"] {
        assert!(!names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    // A response without the header removes that of the client as well.
    let forwarded = get(proxy.addr(), "/", &[&says("204"), "X-User: forged"]).echoed();
    assert_eq!(forwarded.header("x-user"), None);
    assert_eq!(auth.connections(), 1, "the connection is used again");
}

#[test]
fn all_headers_can_be_sent_but_those_of_the_body_and_conditions() {
    let (auth, upstream) = (server(), Upstream::echo());
    let proxy = proxy(&auth.url(), &upstream, "send = [\"*\"]", ROUTE);
    let headers =
        ["X-Other: 1", "If-None-Match: a", "Range: bytes=0-1", "TE: trailers", "X-Original-URI: /forged"];
    let lines: Vec<&str> = headers.into_iter().chain(["Authorization: 204"]).collect();
    assert_eq!(get(proxy.addr(), "/", &lines).status(), 200);
    let names = auth.requests()[0].names();
    assert!(names.contains(&"x-other".to_owned()), "{names:?}");
    for name in ["if-none-match", "range", "te", "connection", "x-original-uri"] {
        assert!(!names.contains(&name.to_owned()), "{name} in {names:?}");
    }
}

#[test]
fn a_refusal_goes_to_the_client() {
    let (auth, upstream) = (server(), Upstream::echo());
    let proxy = proxy(&auth.url(), &upstream, COPY, ROUTE);
    let refused = ask(&proxy, "/", "401");
    assert_eq!((refused.status(), refused.text()), (401, "log in\n"));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!((refused.all("set-cookie"), refused.header("x-hop")), (vec!["a=1", "b=2"], None));
    assert_eq!(ask(&proxy, "/", "403").text(), "no\n");
    assert_eq!(ask(&proxy, "/", "429").header("retry-after"), Some("7"));
    let redirect = ask(&proxy, "/", "302");
    assert_eq!((redirect.status(), redirect.header("location")), (302, Some("https://login.test/?rd=%2F")));
    let upgrade =
        ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="];
    let upgrade: Vec<&str> =
        upgrade.into_iter().chain(["Sec-WebSocket-Version: 13", "Authorization: 403"]).collect();
    assert_eq!(get(proxy.addr(), "/", &upgrade).status(), 403);
    let head = Client::connect(proxy.addr()).ask("HEAD / HTTP/1.1\r\nHost: a\r\nAuthorization: 401\r\n\r\n");
    assert_eq!((head.status(), head.header("content-length")), (401, Some("7")));
    assert_eq!(upstream.received(), 0);
    let count = |outcome| {
        proxy.metric(&format!("tidegate_authorizations_total{{upstream=\"auth\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!(["allowed", "denied", "failed", "cached"].map(count), [0, 6, 0, 0]);
}

#[test]
fn without_a_decision_a_request_is_rejected_unless_the_file_allows_it() {
    let (auth, upstream) = (server(), Upstream::echo());
    let words = ["500", "close", "hang", "404", "304", "nowhere", "long"];
    let deny = proxy(&auth.url(), &upstream, "timeout = \"200ms\"", ROUTE);
    for word in words {
        let response = ask(&deny, "/", word);
        assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")), "{word}");
        assert!(response.text().contains("can't be checked"), "{}", response.text());
    }
    assert_eq!(upstream.received(), 0);
    let errors: Vec<String> = deny.accesses(words.len());
    for (line, error) in errors.iter().zip(["status", "invalid_response", "timeout", "status"]) {
        assert!(line.contains(&format!("\"error\":\"authorization_{error}\"")), "{line}");
    }
    assert_eq!(deny.logged("route all: the authorization server decided nothing: it responded with 500"), 1);
    // What refuses a request, or may do so, never lets it pass.
    let allow =
        proxy(&auth.url(), &upstream, &format!("timeout = \"200ms\", on_failure = \"allow\", {COPY}"), ROUTE);
    for (word, status) in words.into_iter().zip([200, 200, 200, 503, 503, 503, 503]) {
        let response = get(allow.addr(), "/", &[&says(word), "X-User: forged"]);
        assert_eq!(response.status(), status, "{word}");
        if status == 200 {
            assert_eq!(response.echoed().header("x-user"), None, "{word}");
        }
    }
    assert_eq!(ask(&allow, "/", "401").status(), 401);
}

#[test]
fn a_server_that_refuses_connections_decides_nothing() {
    let (closed, upstream) = (TcpListener::bind("127.0.0.1:0").unwrap(), Upstream::echo());
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let proxy = proxy(&url, &upstream, "", ROUTE);
    assert_eq!(ask(&proxy, "/", "ok").status(), 503);
    assert!(proxy.accesses(1)[0].contains("\"error\":\"authorization_unreachable\""));
}

#[test]
fn the_body_is_not_asked_for_before_the_decision() {
    let head = |word| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: {word}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        )
    };
    let (auth, upstream) = (server(), Upstream::echo());
    let proxy = proxy(&auth.url(), &upstream, "", ROUTE);
    let refused = Client::connect(proxy.addr()).ask(&head("403"));
    assert_eq!((refused.status(), refused.interim.len()), (403, 0));
    let mut client = Client::connect(proxy.addr());
    client.send(head("204"));
    assert_eq!(client.read_head().unwrap().unwrap().status(), 100);
    client.send("body");
    assert_eq!(client.read().echoed().text(), "body");
}

#[test]
fn requests_over_http2_and_calls_of_grpc_are_authorized() {
    let (auth, upstream) = (server(), Upstream::echo());
    let proxy = proxy(&auth.url(), &upstream, COPY, ROUTE);
    let client = Http2::connect(proxy.addr());
    let request = |word: &str| Request::post("http://api.test/a").header("authorization", word);
    let allowed = client.ask(request("ok ann").header("x-user", "forged").body(()).unwrap(), b"body");
    let text = String::from_utf8(allowed.body).unwrap();
    assert!(
        text.contains("x-user: ann") && !text.contains("forged") && text.ends_with("\r\n\r\nbody"),
        "{text}"
    );
    assert_eq!(client.ask(request("403").body(()).unwrap(), b"body").response.status(), 403);
    for (word, code) in [("401", "16"), ("403", "7"), ("500", "14")] {
        let call = request(word).header("content-type", "application/grpc").header("te", "trailers");
        let refused = client.ask(call.body(()).unwrap(), b"").response;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["grpc-status"]),
            (200, &code.parse().unwrap())
        );
    }
    assert_eq!(auth.requests()[0].header("x-forwarded-method"), Some("POST"));
    assert_eq!(upstream.received(), 1);
}

#[test]
fn the_server_may_speak_http2() {
    let auth = Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        let is_asked = request.uri().path() == "/verify" && request.headers()["x-forwarded-uri"] == "/a";
        let status = if is_asked && request.headers()["authorization"] == "ok" { 200 } else { 403 };
        let response = Response::builder().status(status).header("x-user", "ann").body(()).unwrap();
        respond.send_response(response, true).unwrap();
    });
    let upstream = Upstream::echo();
    let proxy = proxy(&auth.url(), &upstream, COPY, &format!("protocol = \"h2\"\n{ROUTE}"));
    assert_eq!(ask(&proxy, "/a", "ok").echoed().header("x-user"), Some("ann"));
    assert_eq!(ask(&proxy, "/a", "other").status(), 403);
}

#[test]
fn a_reload_keeps_requests_authorized() {
    let (auth, other, upstream) = (server(), server(), Upstream::echo());
    let proxy = proxy(&auth.url(), &upstream, "", ROUTE);
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[&says("204")]).status(), 200);
    proxy.reload(&config(&other.url(), &upstream, "on_failure = \"allow\"", ROUTE));
    assert_eq!(client.get("/", &[&says("403")]).status(), 403);
    assert_eq!(client.get("/", &[&says("500")]).status(), 200);
    assert_eq!((auth.received(), other.received()), (1, 2));
}

#[test]
fn a_client_that_leaves_ends_the_request_to_the_server() {
    let (auth, upstream) = (server(), Upstream::echo());
    let proxy = proxy(&auth.url(), &upstream, "timeout = \"60s\"", ROUTE);
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: hang\r\n\r\n");
    eventually("the server is asked", || auth.received() == 1);
    drop(client);
    eventually("its connection is closed", || auth.open() == 0);
    assert_eq!(upstream.received(), 0);
}

#[test]
fn the_request_to_the_server_has_a_span_of_its_own() {
    let (collector, auth, upstream) = (Collector::start(), server(), Upstream::echo());
    let tables = format!("[tracing]\nendpoint = \"{}\"\nsample = 1.0\n{ROUTE}", collector.url());
    let proxy: Tidegate = proxy(&auth.url(), &upstream, "", &tables);
    let response = Client::connect(proxy.addr())
        .ask("POST / HTTP/1.1\r\nHost: a\r\nAuthorization: 204\r\nContent-Length: 0\r\n\r\n");
    let forwarded = response.echoed();
    assert_eq!(proxy.stop().code(), Some(0));
    let spans = collector.spans(3);
    let of = |server: &Upstream| {
        let port = server.addr().port().to_string();
        let found = spans.iter().find(|span| attribute(&span.attributes, "server.port") == port);
        found.unwrap_or_else(|| panic!("{spans:#?}"))
    };
    let (asked, sent) = (of(&auth), of(&upstream));
    assert_eq!((&*asked.name, &*sent.name), ("GET", "POST"));
    assert_eq!(asked.parent_span_id, sent.parent_span_id);
    assert_eq!(attribute(&sent.attributes, "http.request.resend_count"), "");
    for (message, span) in [(&auth.requests()[0], asked), (&forwarded, sent)] {
        let id = span.span_id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        assert!(message.header("traceparent").unwrap().contains(&id), "{message:?}");
    }
}
