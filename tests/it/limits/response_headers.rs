//! Rate-limit headers of responses.

use std::time::SystemTime;

use super::setup::answering;
use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, assert_seconds, eventually, get};

#[test]
fn reset_may_be_a_unix_time() {
    let proxy = answering(r#"reset = "epoch""#);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let response = get(proxy.addr(), "/", &[]);
    let reset: u64 = response.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((now + 1800..=now + 1821).contains(&reset), "{reset} where it is {now}");
    let _ = get(proxy.addr(), "/", &[]);
    let denied = get(proxy.addr(), "/", &[]);
    assert_eq!(denied.status(), 429);
    assert_seconds(denied.header("retry-after"), 1800);
    let reset: u64 = denied.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((now + 3600..=now + 3621).contains(&reset), "{reset} where it is {now}");
}

/// A `RateLimit` field without its parameter `t`, and the value of `t`.
fn draft(value: &str) -> (String, u64) {
    let (front, seconds) = value.rsplit_once(";t=").unwrap();
    (front.to_owned(), seconds.parse().unwrap())
}

#[test]
fn rate_headers_are_those_that_are_configured() {
    for (value, x, of_draft) in [
        ("x-ratelimit", true, false),
        ("draft-11", false, true),
        ("both", true, true),
        ("none", false, false),
    ] {
        let proxy = answering(&format!("rate_headers = \"{value}\""));
        for expected in [(200, "1", 1800, 1800), (200, "0", 3600, 3600), (429, "0", 3600, 1800)] {
            let (status, remaining, reset, t) = expected;
            let response = get(proxy.addr(), "/", &[]);
            assert_eq!(response.status(), status, "{value}");
            assert_eq!(response.header("x-ratelimit-limit"), x.then_some("2"));
            assert_eq!(response.header("x-ratelimit-remaining"), x.then_some(remaining));
            if x {
                assert_seconds(response.header("x-ratelimit-reset"), reset);
            }
            assert_eq!(response.header("x-ratelimit-reset").is_some(), x);
            assert_eq!(response.header("ratelimit-policy"), of_draft.then_some(r#""few";q=2;w=3600"#));
            assert_eq!(response.header("ratelimit").is_some(), of_draft);
            if let Some(value) = response.header("ratelimit") {
                let (front, seconds) = draft(value);
                assert_eq!(front, format!(r#""few";r={remaining}"#));
                assert_seconds(Some(&seconds.to_string()), t);
            }
            // Retry-After is no rate header: every denial has it.
            assert_eq!(response.header("retry-after").is_some(), status == 429);
        }
    }
}

#[test]
fn draft_headers_list_every_limit_and_others_the_strictest() {
    let proxy = Tidegate::start(
        r#"
        default_limits = ["wide"]
        [limits.wide]
        rate = "100/minute"
        burst = 500
        [limits.even]
        algorithm = "gcra"
        rate = "1/minute"
        burst = 3
        [[routes]]
        path = "/*"
        limits = ["even"]
        respond = { status = 200 }
        [answers]
        rate_headers = "both"
        "#,
    );
    let response = get(proxy.addr(), "/", &[]);
    assert_eq!(response.header("x-ratelimit-limit"), Some("4"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("3"));
    assert_eq!(response.header("x-ratelimit-reset"), Some("60"));
    assert_eq!(response.header("ratelimit-policy"), Some(r#""wide";q=500;w=300, "even";q=4;w=240"#));
    assert_eq!(response.header("ratelimit"), Some(r#""wide";r=499;t=1, "even";r=3;t=60"#));
}

/// The headers of `OpenAI` for requests or tokens: limit, remaining and reset.
fn of_openai<'m>(response: &'m Message, unit: &str) -> [Option<&'m str>; 3] {
    ["limit", "remaining", "reset"].map(|part| response.header(&format!("x-ratelimit-{part}-{unit}")))
}

/// Each unit has the limit of it that binds; limits of other costs, and of requests in flight, have no such headers.
#[test]
fn headers_of_openai_show_requests_and_tokens_apart() {
    let model = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        r#"
        [limits.requests]
        algorithm = "fixed_window"
        rate = "500/day"
        [limits.few]
        rate = "10/minute"
        burst = 9
        [limits.tokens]
        rate = "60/minute"
        burst = 1000
        cost = "llm_tokens"
        [limits.money]
        rate = "1/minute"
        burst = 5
        cost = {{ llm = {{ input = 0.5, output = 2 }} }}
        [limits.pairs]
        rate = "3/minute"
        cost = 2
        [limits.slots]
        algorithm = "concurrency"
        max_in_flight = 2
        [[routes]]
        path = "/v1/*"
        limits = ["requests", "few", "tokens", "money", "pairs", "slots"]
        upstream = "{model}"
        [[routes]]
        path = "/none"
        limits = ["pairs", "slots"]
        respond = {{ status = 200 }}
        [answers]
        rate_headers = "openai"
        "#,
        model = model.url(),
    ));
    // A request without a body reserves one token.
    let response = get(proxy.addr(), "/v1/models", &[]);
    assert_eq!(response.status(), 200);
    assert_eq!(of_openai(&response, "requests"), [Some("9"), Some("8"), Some("6s")]);
    assert_eq!(of_openai(&response, "tokens"), [Some("1000"), Some("999"), Some("1s")]);
    assert_eq!(response.header("x-ratelimit-limit"), None);
    // Denied by a limit that has no headers.
    let denied = get(proxy.addr(), "/v1/models", &[]);
    assert_eq!(denied.status(), 429);
    assert_eq!(of_openai(&denied, "requests")[1], Some("8"));
    let other = get(proxy.addr(), "/none", &[]);
    assert_eq!(of_openai(&other, "requests"), [None; 3]);
    assert_eq!(of_openai(&other, "tokens"), [None; 3]);
}

/// Denials of the cache, and those of paced grants, have the same headers as those of the store.
#[test]
fn denials_without_a_call_show_every_limit() {
    let redis = RedisServer::start();
    for (ahead, source) in [("", "cache"), ("ahead = \"auto\"", "ahead")] {
        let config = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[limits.hot]\nrate = \"80/s\"\nkey = \"global\"\n{ahead}\n\
             [limits.wide]\nrate = \"100000/s\"\nkey = \"global\"\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"hot\", \"wide\"]\nrespond = {{ status = 200 }}\n\
             [answers]\nrate_headers = \"draft-11\"\n"
        );
        let proxy = Tidegate::start_with(&redis, &config);
        let series =
            format!("tidegate_decisions_total{{limit=\"hot\",outcome=\"denied\",source=\"{source}\"}}");
        let mut client = Client::connect(proxy.addr());
        // Pipelined, and just above the rate from which units are paced, so that a busy machine also exceeds it.
        let requests = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200);
        eventually("requests are denied without a call", || {
            client.send(&requests);
            for _ in 0..200 {
                let response = client.read();
                let policies = response.header("ratelimit-policy");
                assert_eq!(policies, Some(r#""hot";q=80;w=1, "wide";q=100000;w=1"#), "{}", response.status());
                let limits = response.header("ratelimit").unwrap();
                assert!(limits.contains("\"hot\";r=") && limits.contains("\"wide\";r="), "{limits}");
            }
            get(proxy.admin(), "/metrics", &[])
                .text()
                .lines()
                .filter_map(|line| line.strip_prefix(&series)?.trim().parse::<u64>().ok())
                .any(|denied| denied > 20)
        });
    }
}

#[test]
fn stricter_rate_headers_of_an_upstream_are_kept() {
    let response = |remaining: &str| {
        Upstream::answering(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Limit: 7\r\nx-ratelimit-Remaining: {remaining}\r\nX-RateLimit-Reset: 9\r\nRateLimit: \"theirs\";r={remaining};t=9\r\nRateLimit-Policy: \"theirs\";q=7;w=9\r\n\r\n"
        ))
    };
    let (tight, equal, loose, odd) = (response("0"), response("4"), response("5"), response("many"));
    let servers = [&tight, &equal, &loose, &odd].into_iter().enumerate();
    let route = |(number, server): (usize, &Upstream)| {
        format!("[[routes]]\npath = \"/{number}\"\nlimits = [\"few\"]\nupstream = \"{}\"\n", server.url())
    };
    let routes = servers.map(route).collect::<Vec<_>>().concat();
    let proxy = Tidegate::start(&format!(
        "[limits.few]\nrate = \"5/hour\"\nkey = \"route\"\n{routes}[answers]\nrate_headers = \"both\"\n"
    ));
    for (path, theirs) in [("/0", Some("0")), ("/1", Some("4")), ("/2", None), ("/3", None)] {
        let got = get(proxy.addr(), path, &[]);
        assert_eq!(got.header("x-ratelimit-limit"), Some(if theirs.is_some() { "7" } else { "5" }), "{path}");
        assert_eq!(got.header("x-ratelimit-remaining"), Some(theirs.unwrap_or("4")), "{path}");
        assert_seconds(got.header("x-ratelimit-reset"), if theirs.is_some() { 9 } else { 720 });
        let policy = got.header("ratelimit-policy").unwrap();
        assert_eq!(policy, if theirs.is_some() { r#""theirs";q=7;w=9"# } else { r#""few";q=5;w=3600"# });
        let (front, _) = draft(got.header("ratelimit").unwrap());
        let expected = theirs.map_or(r#""few";r=4"#.to_owned(), |left| format!(r#""theirs";r={left}"#));
        assert_eq!(front, expected, "{path}");
    }
}

#[test]
fn rate_headers_of_an_upstream_pass_without_a_limit() {
    let server =
        Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Remaining: 99\r\n\r\n");
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let response = get(proxy.addr(), "/", &[]);
    assert_eq!(response.header("x-ratelimit-remaining"), Some("99"));
    assert_eq!(response.header("x-ratelimit-limit"), None);
}
