//! Consumers in Redis, which another program adds and changes while the proxy runs.

use futures_util::future::join_all;
use http::Request;

use super::setup::{CONSUMERS, ConsumersFile, status_of, with_key};
use crate::support::{Http2, RedisServer, Tidegate, eventually, get};

const TABLE: &str =
    "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[consumers]\nredis_cache = \"1s\"\n";
const ROUTES: &str = "\
    [limits.each]\nrate = \"2/day\"\nkey = \"consumer\"\n\
    tiers = { by = \"consumer\", pro = { rate = \"5/day\" } }\n\
    [[routes]]\npath = \"/pro\"\nconsumers = [\"pro\"]\nrespond = { body = \"pro\" }\n\
    [[routes]]\npath = \"/free\"\nrespond = { body = \"free\" }\n\
    [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = { body = \"all\" }\n";

/// Writes the record of a credential.
fn put(redis: &RedisServer, credential: &str, fields: &[&str]) {
    let hash = tidegate::consumers::CredentialHash::of(credential.as_bytes());
    redis.cli(&[&["hset", &format!("test:consumer:{hash}")], fields].concat());
}

/// Starts a proxy with this store.
fn start(redis: &RedisServer, config: &str) -> Tidegate {
    let store = format!("[store]\nurl = \"{}\"\nprefix = \"test\"\ntimeout = \"1s\"\n", redis.url());
    Tidegate::start(&(config.to_owned() + &store))
}

/// The same, and waits until it can read Redis.
fn start_connected(redis: &RedisServer, config: &str) -> Tidegate {
    let proxy = start(redis, config);
    eventually("an unknown credential gets 401", || status_of(&proxy, "/pro", "unknown") == 401);
    proxy
}

#[test]
fn consumers_are_read_from_redis_when_they_are_first_seen_and_after_the_cache_time() {
    let redis = RedisServer::start();
    put(&redis, "k-1", &["name", "acme", "tier", "pro", "plan", "ignored"]);
    put(&redis, "k-2", &["name", "small"]);
    put(&redis, "k-3", &["name", "gone", "blocked", "1"]);
    put(&redis, "k-4", &["name", "old", "expires", "2026-01-01"]);
    let proxy = start_connected(&redis, &(TABLE.to_owned() + ROUTES));
    for (path, key, status) in [
        ("/pro", "k-1", 200),
        ("/pro", "k-2", 403),
        ("/free", "k-2", 200),
        ("/free", "k-3", 403),
        ("/free", "k-4", 401),
        ("/free", "k-5", 401),
    ] {
        assert_eq!(status_of(&proxy, path, key), status, "{path} with {key}");
    }
    assert_eq!(with_key(&proxy, "/", "k-1").header("x-ratelimit-limit"), Some("5"));
    assert_eq!(with_key(&proxy, "/", "k-2").header("x-ratelimit-limit"), Some("2"));

    let reads = redis.calls("hgetall");
    for _ in 0..20 {
        assert_eq!(status_of(&proxy, "/pro", "k-1"), 200);
    }
    assert!(redis.calls("hgetall") <= reads + 10, "it is cached");

    put(&redis, "k-5", &["name", "new"]);
    eventually("a new consumer is served", || status_of(&proxy, "/free", "k-5") == 200);
    put(&redis, "k-5", &["blocked", "true"]);
    eventually("a consumer is blocked", || status_of(&proxy, "/free", "k-5") == 403);
}

#[test]
fn the_file_precedes_redis() {
    let redis = RedisServer::start();
    put(&redis, "k-2", &["name", "other"]);
    put(&redis, "k-9", &["name", "stored"]);
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = start_connected(&redis, &(file.table("redis_cache = \"1s\"") + ROUTES));
    for _ in 0..2 {
        assert_eq!(status_of(&proxy, "/pro", "k-2"), 200, "acme of the file");
        assert_eq!(status_of(&proxy, "/free", "k-9"), 200);
        assert_eq!(status_of(&proxy, "/free", "k-10"), 401);
    }
}

#[test]
fn without_redis_known_consumers_are_served_and_others_get_503() {
    let mut redis = RedisServer::start();
    put(&redis, "k-1", &["name", "acme", "tier", "pro"]);
    let proxy = start_connected(&redis, &(TABLE.to_owned() + ROUTES));
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 200);
    redis.kill();
    eventually("the store is unavailable", || proxy.metric("tidegate_store_up") == 0);
    let unknown = with_key(&proxy, "/free", "k-2");
    assert_eq!((unknown.status(), unknown.header("retry-after")), (503, Some("1")), "{unknown:?}");
    assert_eq!(unknown.header("content-type"), Some("application/problem+json"));
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 200);
    // Longer than the cache time: the record is outdated, and can't be read.
    eventually("the record was to be read again", || {
        proxy.logged("a consumer can't be read from Redis") > 0 && status_of(&proxy, "/pro", "k-1") == 200
    });
    redis.restart();
    eventually("Redis, which is empty now, is read again", || status_of(&proxy, "/pro", "k-1") == 401);
}

#[test]
fn a_reload_keeps_the_consumers_that_were_read() {
    let mut redis = RedisServer::start();
    put(&redis, "k-1", &["name", "acme", "tier", "pro"]);
    put(&redis, "k-2", &["name", "small"]);
    let config = TABLE.replace("1s", "1h") + ROUTES;
    let proxy = start_connected(&redis, &config);
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 200);
    let store = format!("[store]\nurl = \"{}\"\nprefix = \"test\"\ntimeout = \"1s\"\n", redis.url());
    redis.kill();
    proxy.reload(&(config.clone() + &store));
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 200);
    assert_eq!(status_of(&proxy, "/free", "k-2"), 503);
    // A file that names the credential now precedes what was read.
    let file = ConsumersFile::new("[other]\ncredentials = [\"k-1\"]\n");
    let table = file.table("redis_cache = \"1h\"");
    proxy.reload(&(config.replace("[consumers]\nredis_cache = \"1h\"\n", &table) + &store));
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 403);
}

#[test]
fn credentials_that_are_too_long_are_not_looked_up() {
    let redis = RedisServer::start();
    let long = "k".repeat(1_025);
    put(&redis, &long, &["name", "long"]);
    put(&redis, &long[1..], &["name", "longest"]);
    let proxy = start_connected(&redis, &(TABLE.to_owned() + ROUTES));
    assert_eq!(status_of(&proxy, "/free", &long[1..]), 200);
    let reads = redis.calls("hgetall");
    assert_eq!(status_of(&proxy, "/free", &long), 401);
    assert_eq!(redis.calls("hgetall"), reads);
}

#[test]
fn without_redis_requests_are_anonymous_where_that_is_allowed() {
    let redis = RedisServer::absent();
    let proxy = start(&redis, &(TABLE.to_owned() + "unknown = \"anonymous\"\n" + ROUTES));
    assert_eq!(status_of(&proxy, "/free", "k-1"), 200);
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 503);
}

#[test]
fn a_few_differing_credentials_of_a_request_are_looked_up() {
    let redis = RedisServer::start();
    put(&redis, "k-1", &["name", "acme"]);
    put(&redis, "k-2", &["name", "gone", "blocked", "1"]);
    let table = TABLE.replace("1s", "1h") + "credential = \"cookie:key\"\nunknown = \"anonymous\"\n";
    let proxy = start(&redis, &(table + ROUTES));
    let status = |credentials: &[&str]| {
        let pairs: Vec<String> = credentials.iter().map(|it| format!("key={it}")).collect();
        get(proxy.addr(), "/free", &[&format!("Cookie: {}", pairs.join("; "))]).status()
    };
    eventually("the blocked consumer is read", || status(&["k-2"]) == 403);
    let reads = redis.calls("hgetall");
    let many: Vec<String> = (0..100).map(|number| format!("made-up-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (credentials, expected) in [
        (&["a", "k-2"][..], 403),
        (&["b", "k-1"], 200),
        (&["k-2", "c", "k-1"], 403),
        (&["d", "e"], 401),
        (&many, 400),
    ] {
        assert_eq!(status(credentials), expected, "{credentials:?}");
    }
    // Where a blocked one is known, no other one is read: `b`, `k-1`, `d` and `e` are.
    assert_eq!(redis.calls("hgetall") - reads, 4);
    let hash = tidegate::consumers::CredentialHash::of(b"x");
    redis.cli(&["set", &format!("test:consumer:{hash}"), "of another type"]);
    assert_eq!((status(&["x"]), status(&["x", "y"])), (200, 503), "only one credential can be anonymous");
}

#[test]
fn a_malformed_record_identifies_no_consumer() {
    let redis = RedisServer::start();
    put(&redis, "k-1", &["tier", "pro"]);
    let proxy = start_connected(&redis, &(TABLE.to_owned() + ROUTES));
    assert_eq!(status_of(&proxy, "/free", "k-1"), 401);
    let line = proxy.wait_log("is ignored");
    assert!(line.contains("`name` must have 1 to 128 characters"), "{line}");
    assert!(!line.contains("k-1"), "{line}");
}

#[test]
fn a_missing_permission_does_not_affect_the_limits() {
    let redis = RedisServer::start();
    redis.cli(&["acl", "setuser", "default", "-hgetall"]);
    let proxy = start(&redis, &(TABLE.to_owned() + "unknown = \"anonymous\"\n" + ROUTES));
    for _ in 0..20 {
        assert_eq!(status_of(&proxy, "/free", "k-1"), 200);
    }
    assert_eq!(status_of(&proxy, "/pro", "k-1"), 503);
    assert_eq!(proxy.metric("tidegate_store_up"), 1);
    proxy.wait_log("a consumer can't be read from Redis");
}

/// The statuses of requests with these credentials, sent at once over one connection. `meanwhile` runs when the first of them
/// has a response, or none is expected before it.
fn statuses_at_once(client: &Http2, keys: &[String], first: usize, meanwhile: impl Fn()) -> Vec<u16> {
    client.block_on(async |sender| {
        let mut responses = Vec::new();
        for key in keys {
            let request = Request::get("http://a/free").header("x-api-key", key).body(()).unwrap();
            responses.push(sender.clone().ready().await.unwrap().send_request(request, true).unwrap().0);
        }
        let late = responses.split_off(responses.len() - first);
        let status = async |response: h2::client::ResponseFuture| response.await.unwrap().status().as_u16();
        let mut statuses = join_all(late.into_iter().map(status)).await;
        meanwhile();
        statuses.extend(join_all(responses.into_iter().map(status)).await);
        statuses
    })
}

#[test]
fn a_client_has_a_few_lookups_at_once_and_equal_credentials_share_one() {
    let redis = RedisServer::start();
    let store = format!("[store]\nurl = \"{}\"\nprefix = \"test\"\ntimeout = \"5s\"\n", redis.url());
    let proxy = Tidegate::start(&(TABLE.replace("1s", "1h") + ROUTES + &store));
    eventually("an unknown credential gets 401", || status_of(&proxy, "/pro", "unknown") == 401);
    let client = Http2::connect(proxy.addr());
    let reads = redis.calls("hgetall");
    redis.pause();
    let same = vec!["same".to_owned(); 50];
    assert_eq!(statuses_at_once(&client, &same, 0, || redis.resume()), [401; 50]);
    assert_eq!(redis.calls("hgetall") - reads, 1);
    // While Redis is silent 4 are in progress and 64 wait: the others are refused.
    redis.pause();
    let made_up: Vec<String> = (0..100).map(|number| format!("made-up-{number}")).collect();
    let statuses = statuses_at_once(&client, &made_up, 100 - 68, || redis.resume());
    let refused = statuses.iter().filter(|status| **status == 429).count();
    let unknown = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!((refused, unknown, redis.calls("hgetall") - reads), (32, 68, 69));
    let response = with_key(&proxy, "/free", "made-up-99");
    assert_eq!(response.status(), 401, "it is looked up later");
}
