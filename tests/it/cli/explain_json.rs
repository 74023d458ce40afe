//! `tidegate explain --json`.

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn explain(directory: &Path, args: &[&str]) -> Value {
    let explained = tidegate(directory, &[&["explain", "--json"][..], args].concat());
    assert_eq!((explained.status, explained.stderr.as_str()), (0, ""));
    serde_json::from_str(&explained.stdout).unwrap()
}

#[test]
fn a_forwarded_request_has_its_route_limits_and_servers() {
    let target = "https://api.example.com/v1//users/./7?q=1";
    let forwarded = "X-Forwarded-For: 6.6.6.6, 203.0.113.9";
    let args = [
        "-c",
        "config/production.toml",
        "GET",
        target,
        "-H",
        "X-Api-Key: k1",
        "-H",
        forwarded,
        "--from",
        "10.0.0.7",
    ];
    let explained = explain(repository(), &args);
    assert_eq!(
        explained,
        json!({
            "request": { "method": "GET", "url": "/v1//users/./7?q=1", "from": "10.0.0.7" },
            "path": "/v1/users/7",
            "host": "api.example.com",
            "client": "203.0.113.9",
            "consumer": null,
            "route": "api",
            "limits": [
                {
                    "name": "per-address",
                    "algorithm": "token_bucket",
                    "mode": "enforce",
                    "numbers": "3000/minute, burst 500",
                    "key": [{ "part": "client_ip", "value": "203.0.113.9" }],
                    "outcome": "charged",
                    "cost": 1,
                    "tag": "tag:6i_T3KEdH5XvVbaQzu8edw",
                    "stored_as": "tidegate:{6i_T3KEdH5XvVbaQzu8edw}:per-address:b",
                },
                {
                    "name": "per-key",
                    "algorithm": "token_bucket",
                    "mode": "enforce",
                    "numbers": "600/minute, burst 100",
                    "key": [{ "part": "header:x-api-key", "value": "k1" }],
                    "outcome": "charged",
                    "cost": 1,
                    "tag": "tag:lOi_WN7gUW3I4LyfzWuHMA",
                    "stored_as": "tidegate:{lOi_WN7gUW3I4LyfzWuHMA}:per-key:b",
                },
            ],
            "response": {
                "kind": "forward",
                "upstream": "api",
                "urls": ["http://10.0.1.5:9000/users/7?q=1", "http://10.0.1.6:9000/users/7?q=1"],
            },
        })
    );
}

const LIMITS: &str = r#"
listen = "127.0.0.1:8080"
[limits.tiered]
rate = "5/s"
key = "header:x-key"
allow = ["key:a"]
block = ["key:b"]
trust = "any"
tiers = { by = "header:x-plan", pro = { rate = "9/s" } }
overrides = { o = { rate = "7/s" } }
mode = "shadow"
[limits.skipping]
rate = "5/s"
key = "header:x-other"
on_missing = "skip"
[limits.denying]
rate = "5/s"
key = "header:x-key"
on_missing = "deny"
missing_status = 401
[[routes]]
name = "limited"
path = "/limited"
limits = ["tiered", "skipping", "denying"]
respond = { status = 204 }
[[routes]]
name = "blocked"
path = "/blocked"
block = true
"#;

#[test]
fn limits_say_how_they_apply() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), LIMITS).unwrap();
    let explain = |args: &[&str]| explain(directory.path(), args);
    let tiered = |headers: &[&str]| {
        let headers: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
        explain(&[&["GET", "/limited"][..], &headers].concat())["limits"][0].clone()
    };
    let pro = tiered(&["x-key: c", "x-plan: pro"]);
    assert_eq!(
        (&pro["tier"], &pro["numbers"], &pro["mode"]),
        (&json!("pro"), &json!("9/s"), &json!("shadow"))
    );
    let own = tiered(&["x-key: o"]);
    assert_eq!(
        (&own["override"], &own["numbers"], &own["stored_as"]),
        (&json!("o"), &json!("7/s"), &Value::Null)
    );
    for (key, outcome) in [("a", "allowed"), ("c", "charged")] {
        assert_eq!(tiered(&[&format!("x-key: {key}")])["outcome"], outcome);
    }
    let served = explain(&["GET", "/limited", "-H", "x-key: c"]);
    assert_eq!(served["response"], json!({ "kind": "respond", "status": 204 }));
    assert_eq!(served["limits"][1]["outcome"], "skipped");
    let missing = explain(&["GET", "/limited"]);
    assert_eq!(missing["limits"][2]["outcome"], "missing");
    assert_eq!(missing["limits"][2]["key"], json!([{ "part": "header:x-key", "value": null }]));
    assert_eq!(
        (&missing["response"]["kind"], &missing["response"]["status"]),
        (&json!("reject"), &json!(401))
    );
}

#[test]
fn other_responses_have_their_status() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), LIMITS).unwrap();
    for (target, route, kind, status) in [
        ("/blocked", json!("blocked"), "block", 403),
        ("/none", Value::Null, "reject", 404),
        ("/a%2fb", Value::Null, "reject", 400),
    ] {
        let explained = explain(directory.path(), &["GET", target]);
        let response = &explained["response"];
        assert_eq!(
            (&explained["route"], &response["kind"], &response["status"]),
            (&route, &json!(kind), &json!(status))
        );
    }
}
