//! The admin interface over real sockets: who may ask, and what the metrics say.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::support::{Client, Message, PATIENCE, RedisServer, Tidegate, Upstream, eventually, get};

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

/// A file with an admin interface and this rest.
fn with_admin(rest: &str) -> String {
    format!("{ADMIN}{rest}")
}

/// Every metric that is a number, by its name with its labels.
fn metrics(admin: SocketAddr) -> HashMap<String, String> {
    let answer = get(admin, "/metrics", &[]);
    assert_eq!(answer.status(), 200);
    let kind = answer.header("content-type").unwrap();
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, n)| (name.to_owned(), n.to_owned()))
        .collect()
}

/// One of them, where it is a count.
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

/// Calls to the store that have come to nothing.
fn failed_calls(metrics: &HashMap<String, String>) -> u64 {
    let of = |end: &&str| number(metrics, &format!("tidegate_store_calls_total{{outcome=\"{end}\"}}"));
    ["away", "deadline", "refused", "garbled"].iter().map(of).sum()
}

#[track_caller]
fn are(metrics: &HashMap<String, String>, counts: &[(&str, u64)]) {
    for (name, count) in counts {
        assert_eq!(number(metrics, name), *count, "{name}");
    }
}

#[test]
fn metrics_count_exactly_what_was_sent() {
    let proxy = Tidegate::start(&format!("workers = 2\n{}", with_admin(LIMITED)));
    let admin = proxy.admin();
    let quiet = metrics(admin);
    assert!(quiet["process_start_time_seconds"].parse::<f64>().unwrap() > 1.7e9);
    assert!(quiet.keys().any(|name| name.starts_with("tidegate_build_info{version=")));
    are(
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
    // Durations are counted when an answer's body is done, which may be a moment later.
    eventually("every request has its duration", || {
        busy = metrics(admin);
        number(&busy, "tidegate_request_duration_seconds_count") >= 16
    });
    assert_eq!(decisions(&busy, "three", "allowed"), 3);
    assert_eq!(decisions(&busy, "three", "denied"), 7);
    // What this limit says, whatever the other did.
    assert_eq!(decisions(&busy, "wide", "allowed"), 10);
    assert_eq!(decisions(&busy, "wide", "denied"), 0);
    assert_eq!(requests(&busy, "limited", "2xx"), 3);
    assert_eq!(requests(&busy, "limited", "4xx"), 7);
    assert_eq!(requests(&busy, "free", "5xx"), 4);
    assert_eq!(requests(&busy, "", "4xx"), 2);
    are(
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
    eventually("the proxy has seen one go", || open() == 2);
}

#[test]
fn what_happens_without_the_store_is_counted() {
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
    // It was away until the worker was connected.
    let before = failed_calls(&up);
    redis.kill();
    let statuses: Vec<u16> = (0..3).map(|_| get(proxy.addr(), "/both", &[]).status()).collect();
    // Of two, the store has told of one.
    assert_eq!(statuses, [200, 429, 429]);
    // A connection that is lost may soon be there again.
    eventually("the store is away", || get(admin, "/ready", &[]).text() == "ready\nstore: unreachable\n");
    assert_eq!(get(proxy.addr(), "/shut", &[]).status(), 503);
    let after = metrics(admin);
    assert_eq!(decisions(&after, "local", "allowed"), 1);
    assert_eq!(decisions(&after, "local", "store_failure_local_allowed"), 1);
    assert_eq!(decisions(&after, "local", "store_failure_local_denied"), 2);
    assert_eq!(decisions(&after, "open", "store_failure_allowed"), 3);
    assert_eq!(decisions(&after, "shut", "store_failure_denied"), 1);
    let failures = failed_calls(&after) - before;
    assert_eq!(number(&after, "tidegate_store_up"), 0);
    // The first says that there is no connection; after it nothing is sent.
    assert!((1..=4).contains(&failures), "{failures}");
    let ready = get(admin, "/ready", &[]);
    assert_eq!((ready.status(), ready.text()), (200, "ready\nstore: unreachable\n"));
    let refused = get(admin, "/keys?limit=local", &[]);
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("the store is unavailable"), "{}", refused.text());
}

#[test]
fn a_token_is_asked_for_where_there_is_one() {
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
    // Who balances the load needs no token, and any name will do where a token is asked for.
    assert_eq!(get(proxy.admin(), "/ready", &["Host: gate.internal"]).status(), 200);
    assert_eq!(status(&["Host: gate.internal", "Authorization: Bearer s3cret-admin-t0ken"]), 200);
    assert!(!proxy.lines().iter().any(|line| line.contains("s3cret")));
}

#[test]
fn pages_of_strangers_get_nothing() {
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
    // What a form or a script of another site can send without asking first.
    let body = r#"{"limit":"three","key":"127.0.0.1"}"#;
    let plain = post(admin, "/keys/reset", "text/plain", body);
    assert_eq!(plain.status(), 415);
    let preflight = "OPTIONS /keys/reset HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                     Access-Control-Request-Method: POST\r\n\r\n";
    let preflight = ask(admin, preflight);
    assert_eq!((preflight.status(), preflight.header("allow")), (405, Some("POST")));
    for answer in [plain, preflight, get(admin, "/limits", &["Origin: http://evil.example"])] {
        assert!(!answer.names().iter().any(|name| name.starts_with("access-control")), "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}

#[test]
fn wrong_requests_are_told_what_would_be_right() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let admin = proxy.admin();
    for (path, status, said) in [
        ("/nothing", 404, "/keys/unblock"),
        ("/keys/peek?limit=thre&key=a", 404, "did you mean `three`?"),
        ("/keys/peek?limit=elsewhere&key=a", 404, "the limits are three, wide"),
        ("/keys/peek?limit=three", 400, "the parameter `key` is missing"),
        ("/keys/peek?limit=three&key=127.0.0.1|GET", 400, "client_ip"),
        ("/keys/peek?limit=three&key=nobody", 400, "`nobody` is not an address"),
        ("/keys?limit=three&limit=three", 400, "twice"),
        ("/keys?name=three", 400, "unknown parameter `name`"),
        ("/keys?max=0", 400, "from 1 to 10000"),
        ("/keys/reset", 405, "GET is not allowed for /keys/reset"),
    ] {
        let answer = get(admin, path, &[]);
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.text().contains(said), "{path}: {}", answer.text());
    }
    for (body, status, said) in [
        ("{", 400, "the body is not valid"),
        (r#"{"limit":"three","key":"127.0.0.1"}"#, 400, "missing field `for`"),
        (r#"{"limit":"three","key":"127.0.0.1","for":"1h","x":1}"#, 400, "unknown field `x`"),
        (r#"{"limit":"three","key":"127.0.0.1","for":"soon"}"#, 400, "`soon` is not a duration of a block"),
        (r#"{"limit":"four","key":"127.0.0.1","for":"1h"}"#, 404, "unknown limit `four`"),
        (&"x".repeat(64 * 1024 + 1), 413, "65536 bytes"),
    ] {
        let answer = post(admin, "/keys/block", "application/json", body);
        assert_eq!(answer.status(), status);
        assert!(answer.text().contains(said), "{}", answer.text());
    }
    let put = ask(admin, "PUT /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((put.status(), put.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn limits_are_told() {
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
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
        }
    });
    let routes = format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let mut proxy = Tidegate::start(&with_admin(&routes));
    let admin = proxy.admin();
    let ready = get(admin, "/ready", &[]);
    assert_eq!((ready.status(), ready.text()), (200, "ready\nstore: in this process\n"));
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() == 1);
    proxy.signal("TERM");
    eventually("it says that it drains", || get(admin, "/ready", &[]).status() == 503);
    assert_eq!(get(admin, "/ready", &[]).text(), "draining\nstore: in this process\n");
    release.send(()).unwrap();
    assert_eq!(client.read().text(), "late");
    assert!(proxy.wait().success());
}

#[test]
fn a_port_in_use_ends_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"{address}\"\n{LIMITED}");
    let (status, lines) = Tidegate::fails(&config);
    let expected = format!("error: [admin]: can't listen on {address}: Address already in use (os error 98)");
    assert_eq!((status.code(), lines), (Some(1), vec![expected]));
}

/// Sends a request over a connection of its own.
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
