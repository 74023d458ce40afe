//! The keys and values that a proxy stores in Redis, and the commands that it sends.

use crate::limits::counting::status;
use crate::support::{Client, RedisServer, Tidegate, get};

#[test]
fn key_values_reach_redis_only_as_hashes() {
    const SECRET: &str = "sk-live-4711-secret";
    let config = r#"
        [limits.by-key]
        rate = "2/hour"
        key = ["header:x-api-key", "path", "host", "client_ip"]
        [limits.by_query]
        algorithm = "gcra"
        rate = "1/minute"
        burst = 1
        key = "query:token"
        [[routes]]
        path = "/orders/*"
        limits = ["by-key", "by_query"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    redis.cli(&["FLUSHALL"]);
    let monitor = redis.monitor();
    let target = format!("/orders/hidden-path?token={SECRET}-q");
    let header = format!("X-Api-Key: {SECRET}");
    let headers = [&*header, "Host: hidden-host.test"];
    assert_eq!(status(proxy.addr(), &target, &headers), 200);
    redis.cli(&["ECHO", "that-is-all"]);
    let commands = monitor.until("that-is-all");
    assert!(commands.iter().any(|line| line.contains("EVALSHA")), "{commands:#?}");
    let keys = redis.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    for (name, letter) in [("by-key", "b"), ("by_query", "g")] {
        let end = format!("}}:{name}:{letter}");
        let tag = keys.iter().find_map(|key| key.strip_prefix("tidegate:{")?.strip_suffix(&end));
        let tag = tag.unwrap_or_else(|| panic!("no {name} in {keys:?}"));
        assert_eq!(tag.len(), 22);
        assert!(tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{tag}");
    }
    let values: String = keys.iter().map(|key| redis.cli(&["GET", key])).collect();
    for text in commands.iter().chain(&keys).chain([&values]) {
        for secret in [SECRET, "4711", "hidden", "127.0.0.1\"", "x-api-key", "token\""] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    // Every proxy makes the same keys, unless it has a secret `hash_key`.
    let twin = Tidegate::start_with(&redis, config);
    assert_eq!(status(twin.addr(), &target, &headers), 200);
    let of_limits = || redis.keys().into_iter().filter(|key| !key.contains("ready")).collect::<Vec<_>>();
    assert_eq!(of_limits(), keys);
    let store = "timeout = \"5s\"\nprefix = \"own\"\nhash_key = \"0123456789abcdef\"";
    let keyed = Tidegate::builder(config).store(&redis, store).start();
    redis.cli(&["FLUSHALL"]);
    assert_eq!(status(keyed.addr(), &target, &headers), 200);
    let own: Vec<String> = redis.keys().iter().map(|key| key.replacen("own", "tidegate", 1)).collect();
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|key| key.starts_with("tidegate:{") && !keys.contains(key)), "{own:?}");
}

#[test]
fn every_key_in_redis_expires_when_its_limit_is_full_again() {
    let config = r#"
        [limits.slow]
        rate = "2/hour"
        [limits.spaced]
        algorithm = "gcra"
        rate = "1/minute"
        burst = 4
        [limits.quick]
        rate = "1000/s"
        [[routes]]
        path = "/*"
        limits = ["slow", "spaced", "quick"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    redis.cli(&["FLUSHALL"]);
    for (refill_of_slow, refill_of_spaced) in [(1_800_000, 60_000), (3_600_000, 120_000)] {
        assert_eq!(status(proxy.addr(), "/", &[]), 200);
        let keys = redis.keys();
        let life = |name: &str| -> Option<i64> {
            let key = keys.iter().find(|key| key.contains(name))?;
            Some(redis.cli(&["PTTL", key]).parse().unwrap())
        };
        for (name, refill) in [("slow", refill_of_slow), ("spaced", refill_of_spaced)] {
            let life = life(name).unwrap();
            // Some time has passed since the charge; and a state expires soon after its limit is full again, or a minute
            // later if its key is in use.
            assert!((refill - 20_000..refill + 62_000).contains(&life), "{name}: {life} of {refill}");
        }
        // The third key may have expired already, but always has an expiry.
        assert!(life("quick").is_none_or(|life| life != -1));
    }
    // A denial neither writes nor extends the expiry.
    let key = redis.keys().into_iter().find(|key| key.contains("slow")).unwrap();
    let before: i64 = redis.cli(&["PTTL", &key]).parse().unwrap();
    assert_eq!(status(proxy.addr(), "/", &[]), 429);
    let after: i64 = redis.cli(&["PTTL", &key]).parse().unwrap();
    assert!(after <= before, "{after} after {before}");
}

#[test]
fn a_script_is_sent_again_after_a_flush() {
    let config = r#"
        [limits.five]
        rate = "5/hour"
        on_store_failure = "deny"
        [[routes]]
        path = "/*"
        limits = ["five"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    for remaining in ["4", "3", "2"] {
        assert_eq!(redis.cli(&["SCRIPT", "FLUSH"]), "OK");
        let response = get(proxy.addr(), "/", &[]);
        assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (200, Some(remaining)));
    }
}

/// Denials are cached until the key may pass again, so Redis gets hardly any calls.
#[test]
fn denials_of_a_hot_key_are_cached() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(
        &redis,
        r#"
        [limits.hot]
        rate = "1/hour"
        key = "header:x-key"
        [[routes]]
        path = "/*"
        limits = ["hot"]
        respond = { status = 200 }
        "#,
    );
    let calls = || redis.calls("evalsha");
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &["X-Key: a"]).status(), 200);
    assert_eq!(client.get("/", &["X-Key: a"]).status(), 429);
    let before = calls();
    for _ in 0..300 {
        let denied = client.get("/", &["X-Key: a"]);
        assert_eq!((denied.status(), denied.header("x-ratelimit-remaining")), (429, Some("0")));
        let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
        assert!((3_500..=3_600).contains(&wait));
    }
    // At most one a second, even on a slow machine.
    assert!(calls() - before < 30, "{} calls", calls() - before);
    assert_eq!(client.get("/", &["X-Key: b"]).status(), 200);
}
