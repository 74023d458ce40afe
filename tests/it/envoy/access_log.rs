//! Decisions in the access log and the metrics.

use prost::Message as _;
use serde_json::{Value, json};

use super::setup::{METHOD, Service, file, json_descriptor, rate_limit_request};
use crate::support::Tidegate;

const RULES: &str = r#"
[limits.two]
key = "descriptor:user"
algorithm = "fixed_window"
rate = "2/hour"
block = ["key:bad"]
[limits.watched]
key = "descriptor:user"
algorithm = "fixed_window"
rate = "1/hour"
mode = "shadow"
[[descriptors]]
domain = "d"
match = ["user"]
limits = ["two", "watched"]
[[descriptors]]
domain = "d"
match = ["closed"]
block = true
"#;

/// The lines of the access log of these requests, each with one descriptor.
fn lines(log: &str, descriptors: &[&str]) -> Vec<Value> {
    let service = Service::of(Tidegate::start(&format!("{}[log]\n{log}", file(RULES))));
    for descriptor in descriptors {
        service.json(&json!({ "domain": "d", "descriptors": [json_descriptor(descriptor)] }));
    }
    let lines = service.proxy.accesses(descriptors.len());
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// These fields of a line.
fn fields<const N: usize>(line: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| line[name].clone())
}

const NAMES: [&str; 7] =
    ["interface", "outcome", "domain", "denied_by", "shadow_denied_by", "key", "descriptor"];

#[test]
fn a_denial_is_logged_with_its_limit() {
    let lines = lines("keys = \"plain\"", &["user=a", "user=a", "user=a", "user=bad", "closed=1", "free=1"]);
    let line = |outcome: &str| [json!("envoy_ratelimit"), json!(outcome), json!("d")];
    let expected = |outcome: &str, rest: [Value; 4]| [&line(outcome)[..], &rest].concat();
    let none = Value::Null;
    let rows: Vec<Vec<Value>> = lines.iter().map(|line| fields(line, NAMES).to_vec()).collect();
    assert_eq!(
        rows,
        [
            expected("allowed", [none.clone(), none.clone(), none.clone(), none.clone()]),
            expected("allowed", [none.clone(), json!(["watched"]), none.clone(), none.clone()]),
            expected("denied", [json!("two"), json!(["watched"]), json!("a"), json!("user=a")]),
            expected("denied", [json!("two"), none.clone(), json!("bad"), json!("user=bad")]),
            expected("denied", [none.clone(), none.clone(), none.clone(), json!("closed=1")]),
            expected("allowed", [none.clone(), none.clone(), none.clone(), none]),
        ]
    );
    let statuses: Vec<&Value> = lines.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 200]);
}

#[test]
fn values_of_descriptors_are_logged_as_keys_are() {
    for (log, has_tag) in [("", true), ("keys = \"off\"", false)] {
        let lines = lines(log, &["user=secret"; 3]);
        let [denied_by, key, descriptor] = fields(&lines[2], ["denied_by", "key", "descriptor"]);
        assert_eq!((denied_by, descriptor), (json!("two"), Value::Null));
        assert_eq!(key.as_str().is_some_and(|key| key.starts_with("tag:")), has_tag, "{key}");
        assert!(!lines[2].to_string().contains("secret"), "{}", lines[2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_without_a_decision_are_errors() {
    let log = "[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"text\"\n";
    let service = Service::of(Tidegate::start(&format!("{}{log}", file(RULES))));
    let client = service.client().await;
    for message in [rate_limit_request("", &["user=a"]).encode_to_vec(), vec![0x0a, 5], vec![0; 70 * 1024]] {
        client.unary(METHOD, message).await.unwrap_err();
    }
    service.json(&json!({ "domains": "d" }));
    let errors = "tidegate_interface_requests_total{interface=\"envoy_ratelimit\",outcome=\"error\"}";
    assert_eq!(service.proxy.metric(errors), 4);
    let lines = service.proxy.accesses(4);
    assert!(
        lines.iter().all(|line| line.contains(" interface=\"envoy_ratelimit\" outcome=\"error\" ")),
        "{lines:#?}"
    );
}
