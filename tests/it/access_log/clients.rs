//! Who sent a request: the consumer, the key under which a limit denied it, and headers.

use serde_json::{Value, json};

use crate::consumers::setup::{CONSUMERS, ConsumersFile, with_key};
use crate::support::{Tidegate, get};

const ROUTES: &str = r#"
[limits.per-key]
rate = "1/hour"
key = ["header:x-user", "method"]
[limits.per-token]
rate = "1/hour"
key = "header:authorization"
[limits.per-client]
rate = "1/hour"
[[routes]]
path = "/user"
limits = ["per-key"]
respond = { status = 200 }
[[routes]]
path = "/token"
limits = ["per-token"]
respond = { status = 200 }
[[routes]]
path = "/client"
limits = ["per-client"]
respond = { status = 200 }
"#;

fn line(proxy: &Tidegate, index: usize) -> Value {
    serde_json::from_str(&proxy.accesses(index + 1)[index]).unwrap()
}

/// The line of the second of two equal requests, which is denied.
fn denied(proxy: &Tidegate, path: &str, headers: &[&str]) -> Value {
    let earlier = proxy.accesses(0).len();
    get(proxy.addr(), path, headers);
    assert_eq!(get(proxy.addr(), path, headers).status(), 429);
    let first = line(proxy, earlier);
    assert_eq!(first.get("key"), None, "{first}");
    line(proxy, earlier + 1)
}

fn proxy_with(log: &str) -> Tidegate {
    Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n{log}\n[admin]\nlisten = \"127.0.0.1:0\"\n{ROUTES}"
    ))
}

#[test]
fn the_key_of_a_denial_is_the_tag_of_the_admin_interface() {
    let proxy = proxy_with("");
    let line = denied(&proxy, "/user", &["X-User: a|b"]);
    let listed: Value =
        serde_json::from_str(get(proxy.admin(), "/v1/keys?limit=per-key", &[]).text()).unwrap();
    assert_eq!((&line["denied_by"], &line["key"]), (&json!("per-key"), &listed["keys"][0]["key"]));
}

#[test]
fn plain_keys_are_those_that_operators_write_and_never_credentials() {
    let proxy = proxy_with("keys = \"plain\"");
    let line = denied(&proxy, "/user", &["X-User: a|b"]);
    assert_eq!(line["key"], r"a\|b|GET");
    let peeked = get(proxy.admin(), "/v1/keys/peek?limit=per-key&key=a%5C%7Cb%7CGET", &[]);
    let peeked: Value = serde_json::from_str(peeked.text()).unwrap();
    assert_eq!(peeked["keys"][0]["remaining"], 0);
    let line = denied(&proxy, "/client", &[]);
    assert_eq!(line["key"], "127.0.0.1");
    let line = denied(&proxy, "/token", &["Authorization: Bearer s3cret"]);
    assert!(line["key"].as_str().unwrap().starts_with("tag:"), "{line}");
    // Counted by the address in place of the missing part, which no name of a key says.
    let line = denied(&proxy, "/user", &[]);
    assert!(line["key"].as_str().unwrap().starts_with("tag:"), "{line}");
}

#[test]
fn keys_can_be_kept_out_of_the_log() {
    let proxy = proxy_with("keys = \"off\"");
    let line = denied(&proxy, "/client", &[]);
    assert_eq!((&line["denied_by"], line.get("key")), (&json!("per-client"), None));
}

/// RFC 9110 §5.3.
#[test]
fn chosen_headers_are_logged() {
    let proxy = proxy_with("headers = [\"User-Agent\", \"referer\", \"x-many\", \"user-agent\"]");
    get(proxy.addr(), "/", &["User-Agent: curl/8 \"x\"", "X-Many: 1", "X-Other: no", "X-Many: 2"]);
    assert_eq!(line(&proxy, 0)["headers"], json!({ "user-agent": "curl/8 \"x\"", "x-many": "1, 2" }));
    get(proxy.addr(), "/", &[]);
    assert_eq!(line(&proxy, 1).get("headers"), None);
}

#[test]
fn the_consumer_is_logged_and_its_credential_is_not() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!(
        "[log]\naccess = \"json\"\nkeys = \"plain\"\n{}[limits.per-key]\nrate = \"1/hour\"\n\
         key = \"header:x-api-key\"\n[limits.per-consumer]\nrate = \"1/hour\"\nkey = \"consumer\"\n\
         [[routes]]\npath = \"/key\"\nlimits = [\"per-key\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/consumer\"\nlimits = [\"per-consumer\"]\nrespond = {{ status = 200 }}\n",
        file.table("credential = \"header:x-api-key\"")
    ));
    let mut lines = Vec::new();
    for path in ["/key", "/key", "/consumer", "/consumer"] {
        with_key(&proxy, path, "k-4711");
        lines.push(line(&proxy, lines.len()));
    }
    assert!(lines.iter().all(|line| line["consumer"] == "acme"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.to_string().contains("k-4711")), "{lines:?}");
    assert!(lines[1]["key"].as_str().unwrap().starts_with("tag:"), "{lines:?}");
    assert_eq!(lines[3]["key"], "acme");
    with_key(&proxy, "/key", "unknown");
    assert_eq!(line(&proxy, 4).get("consumer"), None);
}

#[test]
fn rejected_consumers_are_logged_by_name() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!(
        "[log]\naccess = \"json\"\nkeys = \"plain\"\n{}[limits.listed]\nrate = \"9/hour\"\nkey = \"consumer\"\n\
         block = [\"key:acme\"]\n\
         [[routes]]\npath = \"/pro\"\nconsumers = [\"pro\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"listed\"]\nrespond = {{}}\n",
        file.table("")
    ));
    for (index, (path, key, status, consumer)) in [
        ("/", "b-1", 403, "blocked"),
        ("/", "e-1", 401, "expired"),
        ("/pro", "s-1", 403, "small"),
        ("/", "k-2", 403, "acme"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(with_key(&proxy, path, key).status(), status, "{consumer}");
        let line = line(&proxy, index);
        assert_eq!(line["consumer"], consumer, "{line}");
    }
    let listed = line(&proxy, 3);
    assert_eq!((&listed["denied_by"], &listed["key"]), (&"listed".into(), &"acme".into()), "{listed}");
}

#[test]
fn a_credential_in_the_query_is_not_logged() {
    let file = ConsumersFile::new(CONSUMERS);
    let table = file.table("credential = \"query:key\"");
    let proxy = Tidegate::start(&format!(
        "[log]\naccess = \"json\"\n{table}[[routes]]\npath = \"/*\"\nrespond = {{}}\n"
    ));
    assert_eq!(get(proxy.addr(), "/x?a=1&key=k-2", &[]).status(), 200);
    assert_eq!(line(&proxy, 0)["target"], "/x?a=1&key=…");
}
