//! `tidegate keys raise` and `raises`, against running proxies.

use std::time::Duration;

use serde_json::{Value, json};

use super::keys::{json as keys_json, keys, over_both_stores_with, run};
use crate::support::{Client, Message, RedisServer, Tidegate, eventually, get, is_within, timed};

const ADMIN: &str = r#"listen = "127.0.0.1:0"
    [admin]
    listen = "127.0.0.1:0"
    token = "s3cret-admin-t0ken"
"#;

const LIMITS: &str = r#"
    [limits.per-key]
    rate = "2/hour"
    key = "header:x-api-key"
    trust = "any"
    tiers = { by = "header:x-plan", pro = { rate = "10/hour" } }
    [limits.at-once]
    algorithm = "concurrency"
    max_in_flight = 100
    [[routes]]
    path = "/limits"
    limits = ["per-key"]
    respond = "limits"
    [[routes]]
    path = "/*"
    limits = ["per-key", "at-once"]
    respond = { status = 200 }
    [answers]
    rate_headers = "both"
"#;

/// The limits, and an admin interface.
fn with_admin() -> String {
    format!("{ADMIN}{LIMITS}")
}

/// The response to a request with this key.
fn ask(proxy: &Tidegate, key: &str) -> Message {
    get(proxy.addr(), "/", &[&format!("X-Api-Key: {key}")])
}

/// The status of a response, its limit, and what remains.
fn state(response: &Message) -> (u16, u64, u64) {
    let number = |name: &str| response.header(name).unwrap().parse().unwrap();
    (response.status(), number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

fn raise(proxy: &Tidegate, key: &str, by: &str, length: &str) -> String {
    keys(proxy, &["raise", "per-key", key, "--by", by, "--for", length])
}

#[test]
fn a_raised_key_keeps_what_it_has_spent() {
    over_both_stores_with(&with_admin(), |proxy| {
        assert_eq!(state(&ask(proxy, "k1")), (200, 2, 1));
        assert_eq!(state(&ask(proxy, "k1")), (200, 2, 0));
        // This denial may be cached.
        assert_eq!(state(&ask(proxy, "k1")), (429, 2, 0));
        let message = raise(proxy, "k1", "2x", "1h");
        assert!(message.contains(" is raised by 2x until 20"), "{message}");
        let line = proxy.wait_log("raised by 2x until");
        assert!(line.contains("of limit per-key") && line.contains("by 127.0.0.1"), "{line}");

        let raised = ask(proxy, "k1");
        assert_eq!(state(&raised), (200, 4, 1));
        assert!(raised.header("ratelimit-policy").unwrap().contains("\"per-key\";q=4;w=3600"));
        let shown = get(proxy.addr(), "/limits", &["X-Api-Key: k1"]);
        let shown: Value = serde_json::from_str(shown.text()).unwrap();
        assert_eq!((&shown["limits"][0]["limit"], &shown["limits"][0]["quota"]), (&json!(4), &json!(4)));
        assert_eq!(state(&ask(proxy, "k2")), (200, 2, 1));
        let peek = keys_json(proxy, &["peek", "per-key", "k1"])["keys"][0].clone();
        assert_eq!((&peek["of"], &peek["remaining"], &peek["raised"]), (&json!(4), &json!(1), &json!("2x")));
        assert!(keys(proxy, &["peek", "per-key", "k1"]).contains("allowed, raised by 2x"));

        let listed = keys_json(proxy, &["raises"])["raises"].as_array().unwrap().clone();
        assert_eq!((listed.len(), &listed[0]["by"], &listed[0]["key"]), (1, &json!("2x"), &peek["key"]));
        assert_eq!(listed[0]["started_by"], "127.0.0.1");
        let table = keys(proxy, &["raises"]);
        assert!(table.starts_with("LIMIT    KEY") && table.contains("2x"), "{table}");

        assert_eq!(state(&ask(proxy, "k1")), (200, 4, 0));
        assert_eq!(state(&ask(proxy, "k1")), (429, 4, 0));
        // Another raise replaces this one, and the tiers of the key are raised as well.
        raise(proxy, "k1", "1.5x", "1h");
        assert_eq!(ask(proxy, "k1").header("x-ratelimit-limit"), Some("3"));
        let pro = get(proxy.addr(), "/", &["X-Api-Key: k1", "X-Plan: pro"]);
        assert_eq!(state(&pro), (200, 15, 14));
        let denied = "tidegate_decisions_total{limit=\"per-key\",outcome=\"denied\",";
        let metrics = get(proxy.admin(), "/metrics", &["Authorization: Bearer s3cret-admin-t0ken"]);
        let counts = metrics.text().lines().filter(|line| line.starts_with(denied));
        let count: u64 = counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(count, 3, "{}", metrics.text());

        let message = keys(proxy, &["raise", "per-key", "k1", "--end"]);
        assert!(message.ends_with(" is no longer raised\n"), "{message}");
        assert_eq!(state(&ask(proxy, "k1")), (429, 2, 0));
        assert_eq!(keys(proxy, &["raises"]), "no keys are raised\n");
    });
}

#[test]
fn a_raise_ends_by_itself() {
    over_both_stores_with(&with_admin(), |proxy| {
        raise(proxy, "k1", "10x", "1h");
        raise(proxy, "k1", "3x", "1s");
        assert_eq!(state(&ask(proxy, "k1")), (200, 6, 5));
        eventually("the raise has ended", || ask(proxy, "k1").header("x-ratelimit-limit") == Some("2"));
        assert_eq!(keys(proxy, &["raises"]), "no keys are raised\n");
    });
}

#[test]
fn a_raise_applies_to_all_proxies_within_a_second() {
    let mut redis = RedisServer::start();
    let here = Tidegate::start_with(&redis, &with_admin());
    let there = Tidegate::start_with(&redis, LIMITS);
    for _ in 0..2 {
        assert_eq!(ask(&there, "k1").status(), 200);
    }
    let mut factor = 1;
    let is_soon = is_within(Duration::from_secs(1), || {
        factor += 1;
        let limit = (factor * 2).to_string();
        // A cached denial on the other proxy does not delay the raise.
        let _ = ask(&there, "k1");
        raise(&here, "k1", &format!("{factor}x"), "1h");
        let applies = || ask(&there, "k1").header("x-ratelimit-limit") == Some(&*limit);
        timed(|| eventually("the raise applies", applies)).1
    });
    assert!(is_soon);
    // A proxy that starts later knows the raise before its first request.
    let later = Tidegate::start_with(&redis, LIMITS);
    let limit = (factor * 2).to_string();
    assert_eq!(ask(&later, "k1").header("x-ratelimit-limit"), Some(&*limit));
    // What a proxy knows stays while Redis is unavailable.
    redis.kill();
    eventually("the proxy decides without the store", || {
        let shown = get(there.addr(), "/limits", &["X-Api-Key: k1"]);
        serde_json::from_str::<Value>(shown.text()).unwrap()["source"] == "local"
    });
    assert_eq!(ask(&there, "k1").header("x-ratelimit-limit"), Some(&*limit));
    assert_eq!(ask(&there, "k2").header("x-ratelimit-limit"), Some("2"));
}

#[test]
fn raises_are_bounded_and_checked() {
    over_both_stores_with(&with_admin(), |proxy| {
        let url = format!("http://{}", proxy.admin());
        for (args, status, says) in [
            (&["raise", "per-key", "k1"][..], 2, "--by"),
            (&["raise", "per-key", "k1", "--by", "2x"], 2, "--for"),
            (&["raise", "per-key", "k1", "--by", "2", "--for", "1h"], 2, "above 1x and at most 1000x"),
            (&["raise", "per-key", "k1", "--by", "1x", "--for", "1h"], 2, "above 1x and at most 1000x"),
            (&["raise", "per-key", "k1", "--by", "2x", "--for", "soon"], 2, "--for"),
            (&["raise", "per-key", "k1", "--by", "2x", "--end"], 2, "--end"),
            (&["raise", "per-key", "k1", "--by", "2x", "--for", "0s"], 1, "from \"1s\" to \"366 days\""),
            (&["raise", "per-ky", "k1", "--by", "2x", "--for", "1h"], 1, "did you mean `per-key`?"),
            (
                &["raise", "at-once", "127.0.0.1", "--by", "1000x", "--for", "1h"],
                1,
                "can't be raised by 1000x",
            ),
            (&["raise", "per-key", "k1", "--end"], 1, "the key is not raised in limit per-key"),
        ] {
            let output = run(&[args, &["--admin", &url]].concat(), "s3cret-admin-t0ken");
            assert_eq!((output.status, output.stdout.as_str()), (status, ""), "{args:?}");
            assert!(output.stderr.contains(says), "{args:?}: {}", output.stderr);
        }
        let post = |key: usize| {
            let body = format!("{{\"limit\":\"per-key\",\"key\":\"k{key}\",\"by\":\"2x\",\"for\":\"1h\"}}");
            Client::connect(proxy.admin()).ask(&format!(
                "POST /v1/keys/raise HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret-admin-t0ken\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
        };
        for key in 0..1_000 {
            let response = post(key);
            assert_eq!(response.status(), 200, "{key}: {}", response.text());
        }
        let full = post(1_000);
        assert_eq!(full.status(), 409);
        assert!(full.text().contains("there are 1000 raises already"), "{}", full.text());
        // One of them can still be changed, or make room.
        assert_eq!(post(7).status(), 200);
        keys(proxy, &["raise", "per-key", "k7", "--end"]);
        assert_eq!(post(1_000).status(), 200);
        assert_eq!(state(&ask(proxy, "k1000")), (200, 4, 3));
        assert_eq!(state(&ask(proxy, "k7")), (200, 2, 1));
    });
}
