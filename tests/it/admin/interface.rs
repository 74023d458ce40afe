//! The admin interface: metrics, limits, readiness, authentication and errors.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};

use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, eventually, get};

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
fn with_admin(rest: &str) -> String {
    format!("{ADMIN}{rest}")
}

/// The values of all metrics by name with labels.
fn metrics(admin: SocketAddr) -> HashMap<String, String> {
    let response = get(admin, "/metrics", &[]);
    assert_eq!(response.status(), 200);
    let kind = response.header("content-type").unwrap();
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = response.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, n)| (name.to_owned(), n.to_owned()))
        .collect()
}

/// The value of a counter.
#[track_caller]
fn number(metrics: &HashMap<String, String>, name: &str) -> u64 {
    metrics.get(name).unwrap_or_else(|| panic!("no {name} in {metrics:?}")).parse().unwrap()
}

fn decisions(metrics: &HashMap<String, String>, limit: &str, outcome: &str) -> u64 {
    number(metrics, &format!("tidegate_decisions_total{{limit=\"{limit}\",outcome=\"{outcome}\"}}"))
}

fn requests(metrics: &HashMap<String, String>, route: &str, status: &str) -> u64 {
    number(metrics, &format!("tidegate_requests_total{{route=\"{route}\",status=\"{status}\"}}"))
}

/// How many calls to the store failed.
fn failed_calls(metrics: &HashMap<String, String>) -> u64 {
    let of = |end: &&str| number(metrics, &format!("tidegate_store_calls_total{{outcome=\"{end}\"}}"));
    ["away", "deadline", "refused", "garbled"].iter().map(of).sum()
}

#[track_caller]
fn assert_counts(metrics: &HashMap<String, String>, counts: &[(&str, u64)]) {
    for (name, count) in counts {
        assert_eq!(number(metrics, name), *count, "{name}");
    }
}

#[test]
fn metrics_count_every_request() {
    let proxy = Tidegate::start(&format!("workers = 2\n{}", with_admin(LIMITED)));
    let admin = proxy.admin();
    let quiet = metrics(admin);
    assert!(quiet["process_start_time_seconds"].parse::<f64>().unwrap() > 1.7e9);
    assert!(quiet.keys().any(|name| name.starts_with("tidegate_build_info{version=")));
    assert_counts(
        &quiet,
        &[
            ("tidegate_decisions_total{limit=\"three\",outcome=\"denied\"}", 0),
            ("tidegate_requests_total{route=\"free\",status=\"5xx\"}", 0),
            ("tidegate_request_duration_seconds_count", 0),
        ],
    );
    // A connection for each request, so that both workers get some.
    for _ in 0..10 {
        get(proxy.addr(), "/limited", &[]);
    }
    for _ in 0..4 {
        get(proxy.addr(), "/free", &[]);
    }
    get(proxy.addr(), "/nowhere", &[]);
    get(proxy.addr(), "/a%2fb", &[]);
    let mut busy = metrics(admin);
    // A duration is counted at the end of the response body, which may be a moment later.
    eventually("every request has its duration", || {
        busy = metrics(admin);
        number(&busy, "tidegate_request_duration_seconds_count") >= 16
    });
    assert_eq!(decisions(&busy, "three", "allowed"), 3);
    assert_eq!(decisions(&busy, "three", "denied"), 7);
    // The decision of this limit alone.
    assert_eq!(decisions(&busy, "wide", "allowed"), 10);
    assert_eq!(decisions(&busy, "wide", "denied"), 0);
    assert_eq!(requests(&busy, "limited", "2xx"), 3);
    assert_eq!(requests(&busy, "limited", "4xx"), 7);
    assert_eq!(requests(&busy, "free", "5xx"), 4);
    assert_eq!(requests(&busy, "", "4xx"), 2);
    assert_counts(
        &busy,
        &[
            ("tidegate_request_duration_seconds_count", 16),
            ("tidegate_request_duration_seconds_bucket{le=\"+Inf\"}", 16),
            ("tidegate_store_calls_total{outcome=\"answered\"}", 10),
            ("tidegate_store_up", 1),
            ("tidegate_local_keys", 2),
            ("tidegate_access_log_dropped_lines_total", 0),
            ("tidegate_log_dropped_lines_total", 0),
        ],
    );
}

#[test]
fn open_connections_are_counted() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let name = format!("tidegate_connections{{listener=\"{}\"}}", proxy.addr());
    let open = || number(&metrics(proxy.admin()), &name);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(proxy.addr())).collect();
    for client in &mut clients {
        client.get("/free", &[]);
    }
    assert_eq!(open(), 3);
    clients.pop();
    eventually("the closed connection is no longer counted", || open() == 2);
}

#[test]
fn decisions_without_the_store_are_counted() {
    let mut redis = RedisServer::start();
    let config = with_admin(
        r#"
        [limits.local]
        rate = "2/hour"
        [limits.open]
        rate = "1/hour"
        on_store_failure = "allow"
        [limits.shut]
        rate = "5/hour"
        on_store_failure = "deny"
        [[routes]]
        path = "/both"
        limits = ["local", "open"]
        respond = { status = 200 }
        [[routes]]
        path = "/shut"
        limits = ["shut", "local"]
        respond = { status = 200 }
        "#,
    );
    let proxy = Tidegate::start_with(&redis, &config);
    let admin = proxy.admin();
    assert_eq!(get(proxy.addr(), "/both", &[]).status(), 200);
    let up = metrics(admin);
    assert_eq!(number(&up, "tidegate_store_up"), 1);
    // Calls fail until the worker is connected.
    let before = failed_calls(&up);
    redis.kill();
    let statuses: Vec<u16> = (0..3).map(|_| get(proxy.addr(), "/both", &[]).status()).collect();
    // The local fallback knows that one of two is spent.
    assert_eq!(statuses, [200, 429, 429]);
    // After a loss the store counts as unreachable only when reconnecting fails.
    eventually("the store is unreachable", || {
        get(admin, "/ready", &[]).text() == "ready\nstore: unreachable\n"
    });
    assert_eq!(get(proxy.addr(), "/shut", &[]).status(), 503);
    let after = metrics(admin);
    assert_eq!(decisions(&after, "local", "allowed"), 1);
    assert_eq!(decisions(&after, "local", "store_failure_local_allowed"), 1);
    assert_eq!(decisions(&after, "local", "store_failure_local_denied"), 2);
    assert_eq!(decisions(&after, "open", "store_failure_allowed"), 3);
    assert_eq!(decisions(&after, "shut", "store_failure_denied"), 1);
    let failures = failed_calls(&after) - before;
    assert_eq!(number(&after, "tidegate_store_up"), 0);
    // The first failure is the loss of the connection; after that nothing is sent.
    assert!((1..=4).contains(&failures), "{failures}");
    let ready = get(admin, "/ready", &[]);
    assert_eq!((ready.status(), ready.text()), (200, "ready\nstore: unreachable\n"));
    let refused = get(admin, "/keys?limit=local", &[]);
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("the store is unavailable"), "{}", refused.text());
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
    let refused = get(proxy.admin(), "/limits", &[]);
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
        for path in ["/metrics", "/ready", "/keys", "/nothing"] {
            assert_eq!(get(admin, path, &[&format!("Host: {host}")]).status(), 403, "{host}{path}");
        }
    }
    for host in ["localhost", "127.0.0.1:1", &admin.to_string(), "[::1]:9900"] {
        assert_eq!(get(admin, "/ready", &[&format!("Host: {host}")]).status(), 200, "{host}");
    }
    assert_eq!(ask(admin, "GET http://evil.example/ready HTTP/1.1\r\nHost: localhost\r\n\r\n").status(), 403);
    // A request that a form or a script of another site can send without a preflight.
    let body = r#"{"limit":"three","key":"127.0.0.1"}"#;
    let plain = post(admin, "/keys/reset", "text/plain", body);
    assert_eq!(plain.status(), 415);
    let preflight = "OPTIONS /keys/reset HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                     Access-Control-Request-Method: POST\r\n\r\n";
    let preflight = ask(admin, preflight);
    assert_eq!((preflight.status(), preflight.header("allow")), (405, Some("POST")));
    for response in [plain, preflight, get(admin, "/limits", &["Origin: http://evil.example"])] {
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
        ("/nothing", 404, "/keys/unblock"),
        ("/keys/peek?limit=thre&key=a", 404, "did you mean `three`?"),
        ("/keys/peek?limit=elsewhere&key=a", 404, "the limits are three, wide"),
        ("/keys/peek?limit=three", 400, "the parameter `key` is missing"),
        ("/keys/peek?limit=three&key=127.0.0.1|GET", 400, "client_ip"),
        ("/keys/peek?limit=three&key=unknown", 400, "`unknown` is not an address"),
        ("/keys?limit=three&limit=three", 400, "twice"),
        ("/keys?name=three", 400, "unknown parameter `name`"),
        ("/keys?max=0", 400, "from 1 to 10000"),
        ("/keys/reset", 405, "GET is not allowed for /keys/reset"),
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
        let response = post(admin, "/keys/block", "application/json", body);
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
    let limits: serde_json::Value = serde_json::from_str(get(proxy.admin(), "/limits", &[]).text()).unwrap();
    let limit = &limits.as_array().unwrap()[0];
    assert_eq!((&limit["name"], &limit["algorithm"]), (&"per-key".into(), &"gcra".into()));
    assert_eq!((&limit["limit"], &limit["cost"]), (&5.into(), &2.into()));
    assert_eq!((&limit["mode"], &limit["on_store_failure"]), (&"enforce".into(), &"deny".into()));
    assert_eq!(limit["key"].as_array().unwrap().len(), 2);
    let other = |kind: &str| format!("{} {}", limit[kind][0]["name"], limit[kind][0]["limit"]);
    assert_eq!((other("tiers"), other("overrides")), ("\"POST\" 10".into(), "\"acme\" 20".into()));
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
    assert_eq!((status.code(), lines), (Some(1), vec![expected]));
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
