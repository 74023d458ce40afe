//! Keys that a request must have.

use crate::support::{RedisServer, Tidegate, eventually, get};

#[test]
fn a_request_without_a_required_key_is_charged_to_its_other_limits() {
    let redis = RedisServer::start();
    let config = r#"
        listen = "127.0.0.1:0"
        [log]
        access = "json"
        [admin]
        listen = "127.0.0.1:0"
        [limits.per-address]
        rate = "3/hour"
        [limits.per-key]
        rate = "9/hour"
        key = "header:x-api-key"
        on_missing = "deny"
        missing_status = 401
        [[routes]]
        path = "/*"
        limits = ["per-address", "per-key"]
        respond = { status = 200 }
    "#;
    for proxy in [Tidegate::start(config), Tidegate::start_with(&redis, config)] {
        for remaining in ["2", "1", "0"] {
            let denied = get(proxy.addr(), "/", &[]);
            assert_eq!((denied.status(), denied.header("www-authenticate")), (401, Some("ApiKey")));
            assert_eq!(denied.header("x-ratelimit-remaining"), Some(remaining));
            assert!(
                denied.text().contains("\"detail\":\"the request must have exactly one x-api-key header\"")
            );
        }
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        // With Redis, the first request is that of `wait_ready`, which is not denied.
        let denied_by = |line: &String| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["denied_by"].as_str().map(str::to_owned)
        };
        let mut denied: Vec<String> = Vec::new();
        eventually("the log has its lines", || {
            denied = proxy.accesses(0).iter().filter_map(denied_by).collect();
            denied.len() == 4
        });
        assert_eq!(denied, ["per-key", "per-key", "per-key", "per-address"]);
        let missing = "tidegate_decisions_total{limit=\"per-key\",outcome=\"missing\",source=\"config\"}";
        assert_eq!(proxy.metric(missing), 3);
    }
}
