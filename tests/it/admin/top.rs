//! The most frequent keys: `GET /top` of the admin interface.

use serde_json::{Value, json};

use crate::consumers::setup::{CONSUMERS, ConsumersFile, with_key};
use crate::support::{RedisServer, Tidegate, get};

const ADMIN: &str = "workers = 2\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

/// A limit by consumer, and a wide one by address.
const LIMITS: &str = "\
    [limits.per-consumer]\nrate = \"2/hour\"\nkey = \"consumer\"\n\
    [limits.wide]\nrate = \"1000/hour\"\n\
    [[routes]]\npath = \"/*\"\nlimits = [\"per-consumer\", \"wide\"]\nrespond = {}\n";

fn config(rest: &str) -> String {
    format!("{ADMIN}{rest}")
}

#[track_caller]
fn top(proxy: &Tidegate, query: &str) -> Value {
    let response = get(proxy.admin(), &format!("/v1/top?{query}"), &[]);
    assert_eq!(response.status(), 200, "{}", response.text());
    serde_json::from_str(response.text()).unwrap()
}

/// The entry of a limit.
#[track_caller]
fn limit(top: &Value, name: &str) -> Value {
    let limits = top["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["limit"] == name).unwrap_or_else(|| panic!("{top}")).clone()
}

/// The consumers, or else the keys, and the counts of a limit.
#[track_caller]
fn counts(top: &Value, name: &str) -> Vec<(String, u64)> {
    let limit = limit(top, name);
    let keys = limit["keys"].as_array().unwrap().iter();
    let who = |key: &Value| key["consumer"].as_str().or(key["name"].as_str()).unwrap_or("?").to_owned();
    keys.map(|key| (who(key), key["count"].as_u64().unwrap())).collect()
}

fn pair(who: &str, count: u64) -> (String, u64) {
    (who.to_owned(), count)
}

/// Twelve requests of acme, with both of its keys, three of small and one of lasting.
fn send_requests(proxy: &Tidegate) {
    // Each has a connection of its own, so that both workers get some.
    for (key, count) in [("s-1", 3), ("k-2", 6), ("l-1", 1), ("k-4711", 6)] {
        (0..count).for_each(|_| drop(with_key(proxy, "/", key)));
    }
}

#[test]
fn the_consumer_with_the_most_denials_is_first_also_after_a_reload() {
    let file = ConsumersFile::new(CONSUMERS);
    let config = config(&(file.table("") + LIMITS));
    let proxy = Tidegate::start(&config);
    assert_eq!(limit(&top(&proxy, ""), "wide")["total"], 0);
    send_requests(&proxy);
    let denials = top(&proxy, "");
    assert_eq!((&denials["by"], &denials["window"]), (&json!("denials"), &json!("10m")));
    assert!(denials["seconds"].as_u64().unwrap() < 300, "{denials}");
    // The limit with the most denials comes first.
    assert_eq!(denials["limits"][0]["limit"], "per-consumer");
    assert_eq!(counts(&denials, "per-consumer"), [pair("acme", 10), pair("small", 1)]);
    let per_consumer = limit(&denials, "per-consumer");
    assert_eq!(
        (&per_consumer["total"], &per_consumer["max_error"], &per_consumer["mode"]),
        (&json!(11), &json!(0), &json!("enforce"))
    );
    assert!(per_consumer["keys"][0]["key"].as_str().unwrap().starts_with("tag:"), "{denials}");
    let traffic = [pair("acme", 12), pair("small", 3), pair("lasting", 1)];
    assert_eq!(counts(&top(&proxy, "by=traffic&window=1h"), "per-consumer"), traffic);
    assert_eq!(counts(&top(&proxy, "by=traffic&count=1"), "per-consumer"), traffic[..1]);

    proxy.reload(&config.replace("1000/hour", "2000/hour").replace("2/hour", "3/hour"));
    send_requests(&proxy);
    assert_eq!(counts(&top(&proxy, "by=traffic"), "per-consumer")[0], pair("acme", 24));
    let denials = counts(&top(&proxy, "limit=per-consumer&window=60m"), "per-consumer");
    assert_eq!(denials[0].0, "acme");
    assert!(denials[0].1 > 19, "{denials:?}");
}

#[test]
fn a_key_of_several_consumers_has_no_name() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&config(&(file.table("") + LIMITS)));
    let by_address =
        |proxy: &Tidegate| limit(&top(proxy, "by=traffic&limit=wide"), "wide")["keys"][0].clone();
    with_key(&proxy, "/", "k-2");
    assert_eq!(by_address(&proxy)["consumer"], "acme");
    with_key(&proxy, "/", "s-1");
    let key = by_address(&proxy);
    assert_eq!(
        (key.get("consumer"), &key["several_consumers"], &key["count"]),
        (None, &true.into(), &2.into())
    );
}

#[test]
fn values_of_keys_are_shown_only_with_plain_keys() {
    let limit = "[limits.l]\nrate = \"1/hour\"\nkey = [\"header:x-user\", \"method\"]\n\
                 [[routes]]\npath = \"/*\"\nlimits = [\"l\"]\nrespond = {}\n";
    let plain = config(&format!("[log]\nkeys = \"plain\"\n{limit}"));
    let proxy = Tidegate::start(&plain);
    let send = || (0..3).for_each(|_| drop(get(proxy.addr(), "/", &["X-User: bob"])));
    send();
    assert_eq!(counts(&top(&proxy, ""), "l"), [pair("bob|GET", 2)]);
    for keys in ["hash", "off"] {
        proxy.reload(&plain.replace("plain", keys));
        send();
        let shown = top(&proxy, "");
        assert!(!shown.to_string().contains("bob"), "{shown}");
        assert_eq!(limit_keys(&shown), 1);
    }
}

fn limit_keys(top: &Value) -> usize {
    limit(top, "l")["keys"].as_array().unwrap().len()
}

#[test]
fn denials_count_whatever_their_reason() {
    let limits = "\
        [limits.banned]\nrate = \"1/hour\"\nkey = \"header:x-user\"\nban = { after = 2, within = \"1m\", for = \"1h\" }\n\
        [limits.shadow]\nrate = \"1/hour\"\nkey = \"header:x-user\"\nmode = \"shadow\"\n\
        [limits.blocked]\nrate = \"100/hour\"\nkey = \"header:x-user\"\nblock = [\"key:mallory\"]\n\
        [[routes]]\npath = \"/banned\"\nlimits = [\"banned\"]\nrespond = {}\n\
        [[routes]]\npath = \"/*\"\nlimits = [\"shadow\", \"blocked\"]\nrespond = {}\n";
    let config = config(&format!("[log]\nkeys = \"plain\"\n{limits}"));
    let test = |proxy: &Tidegate| {
        let send = |path: &str, user: &str, count: u64| {
            (0..count).for_each(|_| drop(get(proxy.addr(), path, &[&format!("X-User: {user}")])));
        };
        send("/banned", "bob", 6);
        send("/", "alice", 4);
        send("/", "mallory", 3);
        let denials = top(proxy, "by=denials");
        assert_eq!(counts(&denials, "banned"), [pair("bob", 5)]);
        assert_eq!(counts(&denials, "blocked"), [pair("mallory", 3)]);
        assert_eq!(counts(&denials, "shadow"), [pair("alice", 3)]);
        assert_eq!(limit(&denials, "shadow")["mode"], "shadow");
        // A blocked request is not counted by other limits.
        let traffic = top(proxy, "by=traffic");
        assert_eq!(counts(&traffic, "shadow"), [pair("alice", 4)]);
        assert_eq!(counts(&traffic, "blocked"), [pair("alice", 4), pair("mallory", 3)]);
    };
    test(&Tidegate::start(&config));
    // Redis, where most denials come from the cache of denials.
    test(&Tidegate::start_with(&RedisServer::start(), &config));
}

#[test]
fn wrong_parameters_are_rejected() {
    let proxy = Tidegate::start(&config(LIMITS.replace("consumer\"\n", "client_ip\"\n").as_str()));
    for (query, error) in [
        ("window=5m", "`window` must be 1m, 10m or 60m, not `5m`"),
        ("by=units", "`by` must be denials, traffic or refusals, not `units`"),
        ("by=refusals&limit=wide", "refusals of upstreams have no `limit` and no `count`"),
        ("count=0", "`count` must be from 1 to 100, not `0`"),
        ("count=101", "`count` must be from 1 to 100, not `101`"),
        ("limt=wide", "unknown parameter `limt`"),
    ] {
        let response = get(proxy.admin(), &format!("/v1/top?{query}"), &[]);
        assert_eq!(response.status(), 400, "{query}");
        assert!(response.text().contains(error), "{}", response.text());
    }
    let unknown = get(proxy.admin(), "/v1/top?limit=wid", &[]);
    assert_eq!(unknown.status(), 404);
    assert!(unknown.text().contains("did you mean `wide`?"), "{}", unknown.text());
}
