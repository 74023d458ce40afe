//! The admin interface: limits, readiness, authentication and errors.

use std::net::{SocketAddr, TcpListener};

use crate::support::{Client, Message, Tidegate, Upstream, eventually, get};

/// Two limits, a route with both and one without.
pub const LIMITED: &str = r#"
    [limits.three]
    rate = "3/hour"
    [limits.wide]
    rate = "1000/hour"
    [[routes]]
    name = "limited"
    path = "/limited"
    limits = ["wide", "three"]
    respond = { status = 204 }
    [[routes]]
    name = "free"
    path = "/free"
    respond = { status = 503 }
"#;

const ADMIN: &str = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

/// A configuration with an admin interface and these lines.
pub fn with_admin(rest: &str) -> String {
    format!("{ADMIN}{rest}")
}

#[test]
fn a_configured_token_is_required() {
    let proxy = Tidegate::start(&format!("{}token = \"s3cret-admin-t0ken\"\n{LIMITED}", with_admin("")));
    let status = |headers: &[&str]| get(proxy.admin(), "/metrics", headers).status();
    assert_eq!(status(&["Authorization: Bearer s3cret-admin-t0ken"]), 200);
    for wrong in [
        &[][..],
        &["Authorization: Bearer s3cret-t0keN"],
        &["Authorization: Bearer s3cret-admin-t0ken2"],
        &["Authorization: Basic s3cret-admin-t0ken"],
        &["Authorization: Bearer s3cret-admin-t0ken", "Authorization: Bearer s3cret-admin-t0ken"],
    ] {
        assert_eq!(status(wrong), 401, "{wrong:?}");
    }
    let refused = get(proxy.admin(), "/v1/limits", &[]);
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert!(refused.text().contains("Authorization: Bearer TOKEN"), "{}", refused.text());
    // Readiness needs no token, and with a token any Host is accepted.
    assert_eq!(get(proxy.admin(), "/ready", &["Host: gate.internal"]).status(), 200);
    assert_eq!(status(&["Host: gate.internal", "Authorization: Bearer s3cret-admin-t0ken"]), 200);
    assert!(!proxy.lines().iter().any(|line| line.contains("s3cret")));
}

#[test]
fn cross_origin_requests_are_rejected() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let admin = proxy.admin();
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io"] {
        for path in ["/metrics", "/ready", "/v1/keys", "/nothing"] {
            assert_eq!(get(admin, path, &[&format!("Host: {host}")]).status(), 403, "{host}{path}");
        }
    }
    for host in ["localhost", "127.0.0.1:1", &admin.to_string(), "[::1]:9900"] {
        assert_eq!(get(admin, "/ready", &[&format!("Host: {host}")]).status(), 200, "{host}");
    }
    assert_eq!(ask(admin, "GET http://evil.example/ready HTTP/1.1\r\nHost: localhost\r\n\r\n").status(), 403);
    // A request that a form or a script of another site can send without a preflight.
    let body = r#"{"limit":"three","key":"127.0.0.1"}"#;
    let plain = post(admin, "/v1/keys/reset", "text/plain", body);
    assert_eq!(plain.status(), 415);
    let preflight = "OPTIONS /v1/keys/reset HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                     Access-Control-Request-Method: POST\r\n\r\n";
    let preflight = ask(admin, preflight);
    assert_eq!((preflight.status(), preflight.header("allow")), (405, Some("POST")));
    for response in [plain, preflight, get(admin, "/v1/limits", &["Origin: http://evil.example"])] {
        assert!(!response.names().iter().any(|name| name.starts_with("access-control")), "{response:?}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
}

#[test]
fn invalid_requests_are_explained() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let admin = proxy.admin();
    for (path, status, said) in [
        ("/nothing", 404, "/v1/keys/unblock"),
        ("/v1/keys/peek?limit=thre&key=a", 404, "did you mean `three`?"),
        ("/v1/keys/peek?limit=elsewhere&key=a", 404, "the limits are three, wide"),
        ("/v1/keys/peek?limit=three", 400, "the parameter `key` is missing"),
        ("/v1/keys/peek?limit=three&key=127.0.0.1|GET", 400, "client_ip"),
        ("/v1/keys/peek?limit=three&key=unknown", 400, "`unknown` is not an address"),
        ("/v1/keys?limit=three&limit=three", 400, "twice"),
        ("/v1/keys?name=three", 400, "unknown parameter `name`"),
        ("/v1/keys?max=0", 400, "from 1 to 10000"),
        ("/v1/keys/reset", 405, "GET is not allowed for /v1/keys/reset"),
    ] {
        let response = get(admin, path, &[]);
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(response.header("content-type"), Some("application/json"), "{path}");
        assert!(response.text().contains(said), "{path}: {}", response.text());
    }
    for (body, status, said) in [
        ("{", 400, "the body is not valid"),
        (r#"{"limit":"three","key":"127.0.0.1"}"#, 400, "missing field `for`"),
        (r#"{"limit":"three","key":"127.0.0.1","for":"1h","x":1}"#, 400, "unknown field `x`"),
        (r#"{"limit":"three","key":"127.0.0.1","for":"soon"}"#, 400, "`soon` is not a duration of a block"),
        (r#"{"limit":"four","key":"127.0.0.1","for":"1h"}"#, 404, "unknown limit `four`"),
        (&"x".repeat(64 * 1024 + 1), 413, "65536 bytes"),
    ] {
        let response = post(admin, "/v1/keys/block", "application/json", body);
        assert_eq!(response.status(), status, "{body:.60}");
        assert!(response.text().contains(said), "{body:.60}: {}", response.text());
    }
    let put = ask(admin, "PUT /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((put.status(), put.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn limits_are_listed() {
    let proxy = Tidegate::start(&with_admin(
        r#"
        [limits.per-key]
        algorithm = "gcra"
        rate = "10/s"
        burst = 4
        cost = 2
        key = ["header:x-api-key", "method"]
        on_store_failure = "deny"
        tiers = { by = "method", POST = { burst = 9 } }
        overrides = { acme = { burst = 19 } }
        [[routes]]
        path = "/"
        limits = ["per-key"]
        respond = { status = 200 }
        "#,
    ));
    let limits: serde_json::Value =
        serde_json::from_str(get(proxy.admin(), "/v1/limits", &[]).text()).unwrap();
    let limit = &limits["limits"][0];
    assert_eq!((&limit["name"], &limit["algorithm"]), (&"per-key".into(), &"gcra".into()));
    assert_eq!((&limit["limit"], &limit["cost"]), (&5.into(), &2.into()));
    assert_eq!((&limit["mode"], &limit["on_store_failure"]), (&"enforce".into(), &"deny".into()));
    assert_eq!(limit["key"].as_array().unwrap().len(), 2);
    let other = |kind: &str| format!("{} {}", limit[kind][0]["name"], limit[kind][0]["limit"]);
    assert_eq!((other("tiers"), other("overrides")), ("\"POST\" 10".into(), "\"acme\" 20".into()));
    // In the words of the file.
    let numbers = [limit, &limit["tiers"][0], &limit["overrides"][0]].map(|one| &one["numbers"]);
    assert_eq!(numbers, ["10/s, burst 4", "10/s, burst 9", "10/s, burst 19"]);
}

#[test]
fn a_draining_proxy_is_not_ready() {
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
    let routes = format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let mut proxy = Tidegate::start(&with_admin(&routes));
    let admin = proxy.admin();
    let ready = get(admin, "/ready", &[]);
    assert_eq!((ready.status(), ready.text()), (200, "ready\nstore: in this process\n"));
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() == 1);
    proxy.signal("TERM");
    eventually("the proxy is not ready", || get(admin, "/ready", &[]).status() == 503);
    assert_eq!(get(admin, "/ready", &[]).text(), "draining\nstore: in this process\n");
    release.send(()).unwrap();
    assert_eq!(client.read().text(), "late");
    assert!(proxy.wait().success());
}

#[test]
fn a_port_in_use_fails_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"{address}\"\n{LIMITED}");
    let (status, lines) = Tidegate::fails(&config);
    let expected = format!("error: [admin]: can't listen on {address}: Address already in use (os error 98)");
    assert_eq!((status.code(), &lines[0]), (Some(1), &expected));
    assert!(lines[1].contains("ss -ltnp 'sport = :"), "{lines:?}");
}

/// Sends a request over a new connection.
fn ask(admin: SocketAddr, request: &str) -> Message {
    Client::connect(admin).ask(request)
}

fn post(admin: SocketAddr, path: &str, kind: &str, body: &str) -> Message {
    ask(
        admin,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}
