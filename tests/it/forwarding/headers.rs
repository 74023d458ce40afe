//! Headers of forwarded requests and responses.

use crate::support::{Client, Tidegate, Upstream, get};
use crate::upstream::setup::{proxy_for, refusing_url, with_route};

#[test]
fn a_plain_request_gets_only_forwarding_headers() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let response = get(proxy.addr(), "/a?b", &["Host: a.test:80", "Accept: x/y", "X-Odd:  two words "]);
    let mut received = response.echoed();
    assert_eq!(received.start, "GET /a?b HTTP/1.1");
    received.headers.sort();
    let [id, via] = ["x-request-id", "via"].map(|name| received.header(name).unwrap().to_owned());
    let expected = [
        ("accept", "x/y"),
        ("forwarded", "for=127.0.0.1;host=\"a.test:80\";proto=http"),
        ("host", "a.test:80"),
        ("via", &*via),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "a.test:80"),
        ("x-forwarded-proto", "http"),
        ("x-odd", "two words"),
        ("x-request-id", &*id),
    ];
    assert_eq!(received.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(received.body, b"");
}

#[test]
fn hop_by_hop_request_headers_are_removed() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\
         Connection: X-Secret, Host, keep-alive, content-length\r\nConnection: x-other ,,Upgrade, HTTP2-Settings, x-forwarded-for\r\n\
         X-Secret: 1\r\nX-Other: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nProxy-Authorization: Basic eDp5\r\n\
         Proxy-Authenticate: Basic\r\nX-Kept: 3\r\n\r\nhi",
    );
    let received = response.echoed();
    let expected = [
        "content-length",
        "forwarded",
        "host",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-kept",
        "x-request-id",
    ];
    assert_eq!(received.names(), expected);
    assert_eq!((received.header("host"), received.header("x-forwarded-for")), (Some("a"), Some("127.0.0.1")));
    assert_eq!(received.text(), "hi");
    // `close` applies to the client connection; the upstream connection is reused.
    let response = client.get("/", &["Connection: close"]);
    assert_eq!(response.echoed().all("connection"), Vec::<&str>::new());
    assert_eq!(response.header("connection"), Some("close"));
    client.expect_close();
    assert_eq!(get(proxy.addr(), "/", &["TE: trailers, gzip"]).echoed().header("te"), Some("trailers"));
    assert_eq!(server.connections(), 1);
}

#[test]
fn hop_by_hop_response_headers_are_removed() {
    let server = Upstream::answering(
        "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: X-Hop, keep-alive\r\nConnection: x-pop\r\nX-Hop: 1\r\nX-Pop: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nTE: x\r\n\
         Trailer: X-Sum, Content-Length\r\nServer: theirs\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nok",
    );
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let response = client.get("/", &[]);
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.names(),
            ["content-length", "date", "server", "set-cookie", "set-cookie", "trailer", "x-request-id"]
        );
        assert_eq!(response.all("set-cookie"), ["a=1", "b=2"]);
        assert_eq!(response.header("server"), Some("theirs"));
        assert_eq!(response.header("trailer"), Some("x-sum"));
        assert_eq!(response.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert_eq!(response.text(), "ok");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn forwarding_headers_are_kept_only_from_trusted_proxies() {
    const CLAIMS: [&str; 6] = [
        "Host: a.test",
        "X-Forwarded-For: 203.0.113.9, 10.0.0.1",
        "X-Forwarded-For: 10.0.0.2",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: real.test",
        "Forwarded: for=203.0.113.9;proto=https, for=10.0.0.2",
    ];
    let server = Upstream::echo();
    let proxy = proxy_for(&server.url(), "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    let trusted = get(proxy.addr(), "/", &CLAIMS).echoed();
    assert_eq!(trusted.header("x-forwarded-for"), Some("203.0.113.9, 10.0.0.1, 10.0.0.2, 127.0.0.1"));
    assert_eq!(trusted.header("x-forwarded-proto"), Some("https"));
    assert_eq!(trusted.header("x-forwarded-host"), Some("real.test"));
    // 10.0.0.2 is not a trusted proxy, so it is the client.
    let chain = "for=10.0.0.2;host=\"real.test\";proto=https, for=127.0.0.1;host=\"a.test\";proto=http";
    assert_eq!(trusted.header("forwarded"), Some(chain));
    let plain = get(proxy.addr(), "/", &["Host: a.test"]).echoed();
    assert_eq!(plain.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(plain.header("x-forwarded-proto"), Some("http"));
    assert_eq!(plain.header("x-forwarded-host"), Some("a.test"));
    let untrusted = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &CLAIMS).echoed();
    assert_eq!(untrusted.header("x-forwarded-for"), Some("127.0.0.2"));
    assert_eq!(untrusted.header("x-forwarded-proto"), Some("http"));
    assert_eq!(untrusted.header("x-forwarded-host"), Some("a.test"));
    assert_eq!(untrusted.header("forwarded"), Some("for=127.0.0.2;host=\"a.test\";proto=http"));
}

#[test]
fn a_custom_client_ip_header_is_removed_from_untrusted_clients() {
    let server = Upstream::echo();
    let settings = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\nheader = \"cf-connecting-ip\"\n";
    let proxy = proxy_for(&server.url(), settings);
    let line = "CF-Connecting-IP: 203.0.113.9";
    let trusted = get(proxy.addr(), "/", &[line]).echoed();
    assert_eq!(trusted.header("cf-connecting-ip"), Some("203.0.113.9"));
    let untrusted = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &[line]).echoed();
    assert_eq!(untrusted.header("cf-connecting-ip"), None);
}

#[test]
fn rewrite_host_sets_the_upstream_host() {
    let server = Upstream::echo();
    let own = server.addr().to_string();
    for (rule, expected) in [
        ("", "Client.test:99"),
        ("rewrite = { host = \"upstream\" }", &own),
        ("rewrite = { host = \"Named.test:8\" }", "Named.test:8"),
    ] {
        let proxy = with_route(&server.url(), rule);
        let received = get(proxy.addr(), "/", &["Host: Client.test:99"]).echoed();
        assert_eq!(received.header("host"), Some(expected), "{rule}");
        assert_eq!(received.header("x-forwarded-host"), Some("Client.test:99"), "{rule}");
    }
    let proxy = with_route(&server.url(), "");
    let received = get(proxy.addr(), "http://Target.test:7/x", &["Host: other.test"]).echoed();
    assert_eq!((&*received.start, received.header("host")), ("GET /x HTTP/1.1", Some("Target.test:7")));
    assert_eq!(received.header("x-forwarded-host"), Some("Target.test:7"));
    assert_eq!(received.header("forwarded"), Some("for=127.0.0.1;host=\"Target.test:7\";proto=http"));
    // HTTP/1.0 does not need Host, and HTTP/1.1 does.
    let received = Client::connect(proxy.addr()).ask("GET / HTTP/1.0\r\n\r\n").echoed();
    assert_eq!((&*received.start, received.header("host")), ("GET / HTTP/1.1", Some(&*own)));
}

#[test]
fn headers_are_set_and_removed_both_ways() {
    let server = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: x\r\nX-Powered-By: y\r\nCache-Control: public\r\nCache-Control: a\r\n\r\n",
    );
    let proxy = with_route(
        &server.url(),
        "request_headers = { set = { x-gate = \"tidegate\", x-both = \"set\", x-forwarded-proto = \"https\" }, remove = [\"X-Internal\", \"x-both\", \"forwarded\"] }\n\
         response_headers = { set = { cache-control = \"no-store\" }, remove = [\"Server\", \"x-powered-by\"] }",
    );
    let response = get(proxy.addr(), "/", &["X-Internal: 1", "x-internal: 2", "X-Both: 3", "X-Gate: 4"]);
    assert_eq!(response.names(), ["cache-control", "content-length", "date", "x-request-id"]);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let received = &server.requests()[0];
    assert_eq!(received.header("x-gate"), Some("tidegate"));
    assert_eq!(received.header("x-both"), Some("set"));
    assert_eq!(received.header("x-forwarded-proto"), Some("https"));
    assert_eq!((received.header("x-internal"), received.header("forwarded")), (None, None));
}

#[test]
fn response_headers_apply_to_local_replies_with_always() {
    let edits = "response_headers = { set = { \"x-frame-options\" = \"DENY\" }, remove = [\"cache-control\"], always = true }";
    let server = Upstream::echo();
    let text = |edits: &str| {
        format!(
            "[limits.one]\nrate = \"1/hour\"\nkey = \"header:x-key\"\non_missing = \"deny\"\n\
             [[routes]]\npath = \"/limited\"\nlimits = [\"one\"]\nupstream = \"{}\"\n{edits}\n\
             [[routes]]\npath = \"/small\"\nmax_body = 1\nupstream = \"{}\"\n{edits}\n\
             [[routes]]\npath = \"/down\"\nupstream = \"{}\"\n{edits}\n",
            server.url(),
            server.url(),
            refusing_url(),
        )
    };
    for (edits, is_always) in
        [(edits.to_owned(), true), (edits.replace("always = true", "always = false"), false)]
    {
        let proxy = Tidegate::start(&text(&edits));
        for (path, header, status) in [
            ("/limited", "X-Key: k", 200),
            ("/limited", "X-Key: k", 429),
            ("/limited", "X: y", 403),
            ("/small", "Content-Length: 2", 413),
            ("/down", "X: y", 502),
            ("/none", "X: y", 404),
        ] {
            let response = get(proxy.addr(), path, &[header]);
            assert_eq!(response.status(), status, "{path}");
            let is_edited = status == 200 || (is_always && status != 404);
            assert_eq!(response.header("x-frame-options"), is_edited.then_some("DENY"), "{path} {status}");
            let has_cache_control = !is_edited && matches!(status, 403 | 429);
            assert_eq!(response.header("cache-control").is_some(), has_cache_control, "{path} {status}");
        }
    }
}
