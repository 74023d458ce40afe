//! The access log: what it says of a request.

use serde_json::{Value, json};

use crate::support::{Tidegate, get};

const LIMITED: &str = r#"
[client_ip]
trusted_proxies = ["127.0.0.1"]
[log]
access = "json"
[limits.watched]
rate = "1/hour"
mode = "shadow"
[limits.real]
rate = "2/hour"
block = ["192.0.2.0/24"]
[limits.keyed]
rate = "2/hour"
key = "header:x-key"
on_missing = "deny"
[[routes]]
name = "counted"
path = "/counted"
limits = ["watched", "real"]
respond = { status = 200 }
[[routes]]
name = "keyed"
path = "/keyed"
limits = ["keyed"]
respond = { status = 200 }
"#;

/// What the log says of these requests: a path and the client's address each.
fn logged(requests: &[(&str, &str)], field: &str) -> Vec<Value> {
    let proxy = Tidegate::start(LIMITED);
    for (path, client) in requests {
        get(proxy.addr(), path, &["Host: api.test", &format!("X-Forwarded-For: {client}")]);
    }
    let lines = proxy.accesses(requests.len());
    lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()[field].take()).collect()
}

#[test]
fn who_is_turned_away_is_logged_as_everybody_else() {
    let requests = [
        ("/counted", "198.51.100.7"),
        ("/counted", "192.0.2.7"),
        ("/keyed", "198.51.100.7"),
        ("/a%2Fb", "198.51.100.7"),
    ];
    let clients = ["198.51.100.7", "192.0.2.7", "198.51.100.7", "198.51.100.7"];
    assert_eq!(logged(&requests, "client"), clients);
    assert_eq!(logged(&requests, "host"), ["api.test", "api.test", "api.test", ""]);
    let routes = [json!("counted"), json!("counted"), json!("keyed"), Value::Null];
    assert_eq!(logged(&requests, "route"), routes);
    assert_eq!(logged(&requests, "status"), [200, 403, 403, 400]);
    assert_eq!(logged(&requests, "denied_by"), [Value::Null, json!("real"), Value::Null, Value::Null]);
}

#[test]
fn a_limit_that_only_watches_is_named_where_it_would_have_refused() {
    let requests = [("/counted", "198.51.100.7"); 3];
    assert_eq!(logged(&requests, "denied_by"), [Value::Null, Value::Null, json!("real")]);
    let watched = json!(["watched"]);
    assert_eq!(logged(&requests, "shadow_denied_by"), [Value::Null, watched.clone(), watched]);
}
