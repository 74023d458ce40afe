//! Overrides: other numbers for some keys.

use tidegate::limit::PolicyId;

use super::setup::{charges, limited, loaded, number, quota};
use crate::support::{Client, RedisServer, Tidegate, get};

#[test]
fn overrides_match_the_first_part_or_the_whole_key() {
    let config = limited(
        r#"
        rate = "5/hour"
        key = ["header:x-api-key", "method"]
        [limits.one.overrides]
        acme = { rate = "20/hour" }
        'acme|POST' = { rate = "30/hour" }
        'a\|b' = { rate = "40/hour" }
        'a\|b|PUT' = { rate = "50/hour" }
        "127.0.0.1" = { rate = "60/hour" }
        "#,
    );
    let test = |proxy: &Tidegate| {
        let quota_of = |method: &str, key: &str| {
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 0\r\n\r\n");
            quota(&Client::connect(proxy.addr()).ask(&request))
        };
        assert_eq!(quota_of("GET", "X-Api-Key: acme\r\n"), 20);
        assert_eq!(quota_of("POST", "X-Api-Key: acme\r\n"), 30);
        assert_eq!(quota_of("GET", "X-Api-Key: a|b\r\n"), 40);
        assert_eq!(quota_of("PUT", "X-Api-Key: a|b\r\n"), 50);
        assert_eq!(quota_of("GET", "X-Api-Key: other\r\n"), 5);
        assert_eq!(quota_of("GET", "X-Api-Key: acme|POST\r\n"), 5);
        // An address that replaces a missing part does not match an override.
        assert_eq!(quota_of("GET", ""), 5);
        assert_eq!(quota_of("GET", "X-Api-Key: 127.0.0.1\r\n"), 60);
        // The override matches the first part, but the count is that of the whole key.
        let second = Client::connect(proxy.addr()).get("/", &["X-Api-Key: acme"]);
        assert_eq!(number(&second, "x-ratelimit-remaining"), 18);
    };
    test(&Tidegate::start(&config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, &config));
}

#[test]
fn an_overridden_rate_does_not_inherit_the_burst() {
    let config = limited(
        r#"
        rate = "100/hour"
        burst = 50
        key = "header:x-api-key"
        [limits.one.overrides]
        rate = { rate = "20/hour" }
        both = { rate = "20/hour", burst = 3 }
        burst = { burst = 70 }
        same = {}
        "#,
    );
    let proxy = Tidegate::start(&config);
    for (key, wanted) in [("none", 50), ("rate", 20), ("both", 3), ("burst", 70), ("same", 50)] {
        assert_eq!(quota(&get(proxy.addr(), "/", &[&format!("X-Api-Key: {key}")])), wanted, "{key}");
    }
}

#[test]
fn names_resolve_to_the_keys_and_quotas_of_requests() {
    let loaded = loaded(
        r#"
        rate = "5/hour"
        key = ["header:x-api-key", "method"]
        tiers = { by = "host", a = { rate = "6/hour" }, b = { rate = "7/hour" } }
        overrides = { acme = { rate = "20/hour" }, 'a\|b|GET' = { rate = "30/hour" } }
        "#,
    );
    let gate = &loaded.config.snapshot.gate;
    let limit = gate.limit_named("one").unwrap();
    for (name, value, numbers, tiers) in
        [("acme|GET", "acme", 3, 0), (r"a\|b|GET", "a|b", 4, 0), ("other|GET", "other", 0, 2)]
    {
        let named = gate.keys(limit).named(name).unwrap();
        let [charge] = charges(gate, &[("x-api-key", value)])[..] else { panic!("one charge") };
        assert_eq!(named.key, charge.key, "{name}");
        assert_eq!((named.policy, named.tiers.len()), (PolicyId(numbers), tiers), "{name}");
        // A tier applies to the request if its key has no override.
        assert_eq!(charge.policy, if tiers > 0 { PolicyId(1) } else { named.policy }, "{name}");
    }
    let error = gate.keys(limit).named("acme").unwrap_err().to_string();
    assert_eq!(error, "the name has one part, and the key has 2: header:x-api-key|method");
}
