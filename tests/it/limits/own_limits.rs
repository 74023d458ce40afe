//! Routes that show a client its own limits: `respond = "limits"`.

use std::time::Instant;

use serde_json::{Value, json};

use super::setup::number;
use crate::consumers::setup::{CONSUMERS, ConsumersFile, with_key};
use crate::support::{Client, Message, RedisServer, Tidegate, eventually, get, over_both_stores};

const CONFIG: &str = r#"
    default_limits = ["per-client"]
    [limits.per-client]
    rate = "100/hour"
    [limits.per-key]
    rate = "2/hour"
    key = "header:x-api-key"
    ban = { after = 2, within = "1h", for = "30m" }
    cost = "header:x-cost"
    trust = "any"
    allow = ["key:friend"]
    [limits.at-once]
    algorithm = "concurrency"
    max_in_flight = 3
    [limits.tried]
    rate = "1/hour"
    mode = "shadow"
    [[routes]]
    path = "/limits"
    limits = ["per-key", "at-once", "tried"]
    respond = "limits"
    response_headers = { set = { x-own = "yes" } }
    [[routes]]
    path = "/*"
    limits = ["per-key", "at-once", "tried"]
    respond = { status = 200 }
    [answers]
    rate_headers = "both"
"#;

fn body(response: &Message) -> Value {
    serde_json::from_str(response.text()).unwrap()
}

/// The limit of this name in the response.
fn limit(response: &Message, name: &str) -> Value {
    let body = body(response);
    let found = body["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == name);
    found.cloned().unwrap_or_default()
}

#[test]
fn a_client_sees_its_own_limits_and_spends_nothing() {
    over_both_stores(CONFIG, |proxy| {
        let shown = |key: &str| with_key(proxy, "/limits", key);
        let fresh = shown("a");
        assert_eq!((fresh.status(), fresh.header("content-type")), (200, Some("application/json")));
        assert_eq!((fresh.header("cache-control"), fresh.header("x-own")), (Some("no-store"), Some("yes")));
        assert_eq!(
            body(&fresh),
            json!({
                "limits": [
                    { "name": "per-client", "limit": 100, "remaining": 100, "reset_after": 0, "quota": 100, "window": 3600 },
                    { "name": "per-key", "limit": 2, "remaining": 2, "reset_after": 0, "quota": 2, "window": 3600 },
                    { "name": "at-once", "limit": 3, "remaining": 3, "reset_after": 0, "quota": 3, "window": 1 },
                ],
                "source": "store",
            })
        );
        assert_eq!(
            (number(&fresh, "x-ratelimit-limit"), number(&fresh, "x-ratelimit-remaining")),
            (100, 100)
        );
        assert!(fresh.header("ratelimit").unwrap().contains("\"per-client\";r=100"));

        assert_eq!(with_key(proxy, "/", "a").status(), 200);
        let remaining = |left: u64| limit(&shown("a"), "per-key")["remaining"] == left;
        eventually("the response is no longer repeated", || remaining(1));
        for _ in 0..5 {
            let spent = limit(&shown("a"), "per-key");
            assert_eq!(spent["remaining"], 1, "{spent}");
            assert!((1_700..=1_800).contains(&spent["reset_after"].as_u64().unwrap()), "{spent}");
        }
        // Other keys are those of other clients, and one that a limit allows has no such limit.
        assert_eq!(limit(&shown("b"), "per-key")["remaining"], 2);
        assert_eq!(limit(&shown("friend"), "per-key"), Value::Null);
        assert_eq!(limit(&shown("b"), "per-client")["remaining"], 99);
        // A cost of the request does not matter.
        let costly = get(proxy.addr(), "/limits", &["X-Api-Key: b", "X-Cost: 9"]);
        assert_eq!(limit(&costly, "per-key")["remaining"], 2);

        assert_eq!(with_key(proxy, "/", "a").status(), 200);
        eventually("the response is no longer repeated", || remaining(0));
        let used_up = shown("a");
        assert_eq!((used_up.status(), used_up.header("retry-after")), (200, None));
        assert_eq!(number(&used_up, "x-ratelimit-remaining"), 0);
        let head =
            Client::connect(proxy.addr()).ask("HEAD /limits HTTP/1.1\r\nHost: a\r\nX-Api-Key: a\r\n\r\n");
        assert_eq!((head.status(), number(&head, "x-ratelimit-remaining")), (200, 0));
    });
}

#[test]
fn a_response_is_repeated_for_a_second_without_a_call() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, CONFIG);
    for key in ["fresh", "banned"] {
        if key == "banned" {
            eventually("the key is banned", || {
                with_key(&proxy, "/", key).text().contains("bans this client")
            });
        }
        let (before, start) = (redis.calls("evalsha"), Instant::now());
        for _ in 0..100 {
            let response = with_key(&proxy, "/limits", key);
            assert_eq!(
                (response.status(), limit(&response, "per-client")["limit"].as_u64()),
                (200, Some(100))
            );
            let denied = limit(&response, "per-key")["denied"].clone();
            assert_eq!(denied, if key == "banned" { json!("ban") } else { Value::Null });
        }
        let calls = redis.calls("evalsha") - before;
        assert!(calls <= start.elapsed().as_secs() + 1, "{calls} calls for the key {key}");
    }
}

#[test]
fn a_banned_client_sees_its_ban() {
    over_both_stores(CONFIG, |proxy| {
        eventually("the key is banned", || with_key(proxy, "/", "a").text().contains("bans this client"));
        let banned = with_key(proxy, "/limits", "a");
        let state = limit(&banned, "per-key");
        assert_eq!((banned.status(), &state["denied"], &state["remaining"]), (200, &json!("ban"), &json!(0)));
        assert!((1_780..=1_800).contains(&state["retry_after"].as_u64().unwrap()), "{state}");
    });
}

#[test]
fn a_request_with_an_unknown_credential_is_charged() {
    let consumers = ConsumersFile::new(CONSUMERS);
    let config = format!(
        r#"
        {}
        [limits.per-client]
        rate = "3/hour"
        [[routes]]
        path = "/limits"
        limits = ["per-client"]
        respond = "limits"
        [[routes]]
        path = "/*"
        limits = ["per-client"]
        respond = {{ status = 200 }}
        "#,
        consumers.table("credential = \"header:x-api-key\"")
    );
    let proxy = Tidegate::start(&config);
    let remaining = || limit(&with_key(&proxy, "/limits", "k-2"), "per-client")["remaining"].clone();
    assert_eq!(remaining(), 3);
    assert_eq!(with_key(&proxy, "/limits", "guess-1").status(), 401);
    assert_eq!(remaining(), 2);
    assert_eq!(get(proxy.addr(), "/limits", &[]).status(), 401);
    assert_eq!(with_key(&proxy, "/limits", "guess-2").status(), 401);
    assert_eq!(with_key(&proxy, "/limits", "guess-3").status(), 429);
    assert_eq!(remaining(), 0);
}

#[test]
fn without_the_store_the_shares_of_the_proxy_are_shown() {
    let config = r#"
        [limits.local]
        rate = "10/hour"
        [limits.open]
        rate = "10/hour"
        on_store_failure = "allow"
        [limits.closed]
        rate = "10/hour"
        on_store_failure = "deny"
        [[routes]]
        path = "/limits"
        limits = ["local", "open"]
        respond = "limits"
        [[routes]]
        path = "/closed/limits"
        limits = ["local", "closed"]
        respond = "limits"
        [[routes]]
        path = "/*"
        limits = ["local", "open", "closed"]
        respond = { status = 200 }
    "#;
    let mut redis = RedisServer::start();
    let proxy = Tidegate::builder(config).store(&redis, "timeout = \"5s\"\ninstances = 2").start();
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let shown = || get(proxy.addr(), "/limits", &[]);
    assert_eq!(limit(&shown(), "local")["remaining"], 9);
    redis.kill();
    eventually("the proxy decides without the store", || body(&shown())["source"] == "local");
    let local = limit(&shown(), "local");
    assert_eq!((&local["limit"], &local["remaining"]), (&json!(5), &json!(4)));
    assert_eq!(limit(&shown(), "open"), Value::Null);
    let closed = get(proxy.addr(), "/closed/limits", &[]);
    assert_eq!((closed.status(), closed.header("retry-after").is_some()), (503, true));
}

#[test]
fn the_log_shows_that_the_request_was_not_denied() {
    let config = CONFIG.to_owned() + "[log]\naccess = \"json\"\n";
    let proxy = Tidegate::start(&config);
    eventually("the key is banned", || with_key(&proxy, "/", "a").text().contains("bans this client"));
    assert_eq!(get(proxy.addr(), "/limits?shown", &["X-Api-Key: a"]).status(), 200);
    let mut line = None;
    eventually("the request is logged", || {
        line = proxy.accesses(1).into_iter().find(|line| line.contains("/limits"));
        line.is_some()
    });
    let line = line.unwrap();
    assert!(!line.contains("denied_by"), "{line}");
}
