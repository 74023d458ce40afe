//! Allow and block lists.

use super::setup::{PROXY, limited, quota};
use crate::support::{Client, Tidegate};

#[test]
fn allowed_clients_are_not_limited_and_blocked_clients_are_denied() {
    let config = limited(
        r#"
        rate = "1/hour"
        key = "header:x-api-key"
        on_missing = "deny"
        allow = ["127.0.2.0/24", "key:friend", "key:traitor"]
        block = ["127.0.3.7", "key:stolen", "key:traitor"]
        overrides = { friend = { rate = "9/hour" }, stolen = { rate = "9/hour" }, big = { rate = "7/hour" } }
        tiers = { by = "header:x-plan", pro = { rate = "8/hour" } }
        "#,
    );
    let proxy = Tidegate::start(&config);
    let from = |source: &str, headers: &[&str]| Client::connect_from(source, proxy.addr()).get("/", headers);
    for _ in 0..3 {
        let friend = from("127.0.0.1", &["X-Api-Key: friend"]);
        assert_eq!((friend.status(), friend.header("x-ratelimit-limit")), (200, None));
        // The address is allowed even if the key is missing.
        assert_eq!(from("127.0.2.77", &[]).status(), 200);
    }
    for (source, headers) in [
        ("127.0.0.1", &["X-Api-Key: stolen"][..]),
        ("127.0.0.1", &["X-Api-Key: traitor"]),
        ("127.0.2.77", &["X-Api-Key: stolen"]),
        ("127.0.3.7", &["X-Api-Key: friend"]),
        ("127.0.3.7", &[]),
    ] {
        let denied = from(source, headers);
        assert_eq!(denied.status(), 403, "{source} {headers:?}");
        assert_eq!(denied.header("content-type"), Some("application/problem+json"), "{source} {headers:?}");
        assert!(denied.text().contains("\"detail\":\"this client is blocked\""), "{}", denied.text());
        assert_eq!(denied.header("connection"), None, "{source} {headers:?}");
    }
    // An override has precedence over a tier, and a tier over the limit's own numbers.
    assert_eq!(quota(&from(PROXY, &["X-Api-Key: big", "X-Plan: pro"])), 7);
    assert_eq!(quota(&from(PROXY, &["X-Api-Key: any", "X-Plan: pro"])), 8);
    assert_eq!(quota(&from(PROXY, &["X-Api-Key: any"])), 1);
    assert_eq!(from("127.0.0.1", &[]).status(), 403);
}
