//! Limits with `ahead`: units that Redis grants to a proxy, which spends them without further calls.

mod cluster;
mod faults;
mod lost_messages;
mod lost_state;
mod mixed;
mod regions;
mod several_proxies;

use super::setup::{limited, number};
use crate::support::{Client, RedisServer, Tidegate, eventually, get};

/// A limit of 2,000 units, which does not refill while a test runs.
const FIXED: &str = "rate = \"1/day\"\nburst = 2000\nkey = \"global\"\nahead = \"10s\"";

/// A proxy whose only limit has these lines.
fn proxy(redis: &RedisServer, limit: &str) -> Tidegate {
    proxy_at(&redis.url(), "5s", limit)
}

/// The same with the Redis at this URL, which has so long to reply.
fn proxy_at(url: &str, timeout: &str, limit: &str) -> Tidegate {
    let admin = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let store = format!("timeout = \"{timeout}\"");
    Tidegate::builder(&format!("{admin}{}", limited(limit))).store_at(url, &store).start()
}

/// How many of `requests` are allowed.
fn spend(proxy: &Tidegate, requests: usize) -> u64 {
    let mut client = Client::connect(proxy.addr());
    let is_allowed = |_: &usize| match client.get("/", &[]).status() {
        200 => true,
        429 => false,
        status => panic!("{status}"),
    };
    u64::try_from((0..requests).filter(is_allowed).count()).unwrap()
}

/// How many requests are allowed until one is denied.
fn spend_all(proxy: &Tidegate) -> u64 {
    let mut client = Client::connect(proxy.addr());
    (0..10_000).find(|_| client.get("/", &[]).status() != 200).expect("a request is denied")
}

/// How many decisions were made without Redis.
fn ahead(proxy: &Tidegate, outcome: &str) -> u64 {
    let metrics = get(proxy.admin(), "/metrics", &[]);
    let series = format!("tidegate_decisions_total{{limit=\"one\",outcome=\"{outcome}\",source=\"ahead\"}} ");
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0, |value| value.parse().unwrap())
}

/// How many requests a limit has admitted, decided by this source.
fn admitted_by(proxy: &Tidegate, limit: &str, source: &str) -> u64 {
    let decisions = |outcome: &str| {
        let series = "tidegate_decisions_total";
        proxy.metric(&format!("{series}{{limit=\"{limit}\",outcome=\"{outcome}\",source=\"{source}\"}}"))
    };
    decisions("allowed") + decisions("near_limit")
}

fn held(proxy: &Tidegate) -> u64 {
    held_of(proxy, "one")
}

fn held_of(proxy: &Tidegate, limit: &str) -> u64 {
    proxy.metric(&format!("tidegate_ahead_units_held{{limit=\"{limit}\"}}"))
}

/// Whether the record of the only key in Redis has no granted units: the last byte of others is an `r`.
fn has_no_grants(redis: &RedisServer) -> bool {
    let keys: Vec<String> = redis.keys().into_iter().filter(|key| key.contains(":one:")).collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    redis.cli(&["getrange", &keys[0], "-1", "-1"]) != "r"
}

fn units(proxy: &Tidegate, event: &str) -> u64 {
    proxy.metric(&format!("tidegate_ahead_units_total{{limit=\"one\",event=\"{event}\"}}"))
}

/// Spends until the proxy holds units; returns how many requests were allowed.
fn spend_until_held(proxy: &Tidegate) -> u64 {
    let mut spent = 0;
    eventually("units are held", || {
        spent += spend(proxy, 20);
        held(proxy) > 10
    });
    spent
}

#[test]
fn a_hot_key_needs_few_calls() {
    let redis = RedisServer::start();
    let proxy = proxy(&redis, "rate = \"100000/minute\"\nahead = \"auto\"\nkey = \"global\"");
    let before = redis.calls("evalsha");
    assert_eq!(spend(&proxy, 2_000), 2_000);
    let calls = redis.calls("evalsha") - before;
    assert!(calls <= 100, "{calls} calls");
    assert!(ahead(&proxy, "allowed") >= 1_900);
    let [granted, spent] = ["granted", "spent"].map(|event| units(&proxy, event));
    assert_eq!(spent, ahead(&proxy, "allowed"));
    assert!(granted >= spent, "{granted} granted, {spent} spent");
}

#[test]
fn all_units_of_a_limit_can_be_spent_and_no_more() {
    let redis = RedisServer::start();
    for algorithm in [
        FIXED,
        "algorithm = \"gcra\"\nrate = \"1/day\"\nburst = 1999\nkey = \"global\"\nahead = \"10s\"",
        "rate = \"2000/day\"\nrefill = \"interval\"\nkey = \"global\"\nahead = \"10s\"",
        "algorithm = \"fixed_window\"\nrate = \"2000/365d\"\nalign = \"first_request\"\nkey = \"global\"\nahead = \"10s\"",
        "algorithm = \"sliding_log\"\nrate = \"2000/day\"\nkey = \"global\"\nahead = \"10s\"",
        "algorithm = \"sliding_window\"\nrate = \"2000/30d\"\nkey = \"global\"\nahead = \"10s\"",
    ] {
        let proxy = proxy(&redis, algorithm);
        assert_eq!(spend_all(&proxy), 2_000, "{algorithm}");
        assert_eq!(spend(&proxy, 20), 0, "{algorithm}");
        assert!(admitted_by(&proxy, "one", "ahead") >= 1_000, "{algorithm}");
        redis.cli(&["flushall"]);
    }
}

#[test]
fn headers_count_the_units_of_one_proxy_exactly() {
    let redis = RedisServer::start();
    let proxy = proxy(&redis, FIXED);
    let mut client = Client::connect(proxy.addr());
    for request in 1..=500 {
        let response = client.get("/", &[]);
        assert_eq!(number(&response, "x-ratelimit-limit"), 2_000);
        let remaining = number(&response, "x-ratelimit-remaining");
        // A background call may have taken units and not replied yet.
        assert!(remaining <= 2_000 - request, "{remaining} after {request} requests");
        assert!(remaining >= 1_700 - request, "{remaining} after {request} requests");
        assert!(number(&response, "x-ratelimit-reset") > 0);
    }
    assert!(held(&proxy) > 0);
}

#[test]
fn a_hot_denied_key_needs_few_calls() {
    let redis = RedisServer::start();
    let proxy = proxy(&redis, "rate = \"200/s\"\nkey = \"global\"\nahead = \"auto\"");
    let mut client = Client::connect(proxy.addr());
    eventually("the limit is used up", || (0..100).any(|_| client.get("/", &[]).status() == 429));
    let (before, denied) = (redis.calls("evalsha"), ahead(&proxy, "denied"));
    let (mut requests, mut waits) = (0, 0);
    eventually("paced grants deny", || {
        for _ in 0..100 {
            let response = client.get("/", &[]);
            requests += 1;
            if response.status() == 429 {
                waits += 1;
                // The next unit is available within a second.
                assert_eq!(response.header("retry-after"), Some("1"));
            }
        }
        ahead(&proxy, "denied") >= denied + 300
    });
    let calls = redis.calls("evalsha") - before;
    assert!(calls * 5 < requests, "{calls} calls for {requests} requests, {waits} denied");
}

#[test]
fn an_operators_reset_drops_held_units() {
    let redis = RedisServer::start();
    let proxy = proxy(&redis, FIXED);
    spend_until_held(&proxy);
    let body = "{\"limit\": \"one\", \"key\": \"global\"}";
    let reset = format!(
        "POST /v1/keys/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = Client::connect(proxy.admin()).ask(&reset);
    assert_eq!(response.status(), 200, "{}", response.text());
    assert_eq!(held(&proxy), 0);
    assert_eq!(spend_all(&proxy), 2_000);
}

#[test]
fn units_of_requests_that_are_not_charged_are_held_again() {
    let redis = RedisServer::start();
    let proxy = proxy(&redis, &format!("{FIXED}\ncharge_on = [500]"));
    assert_eq!(spend(&proxy, 500), 500);
    assert!(ahead(&proxy, "allowed") >= 400);
    let remaining = number(&get(proxy.addr(), "/", &[]), "x-ratelimit-remaining");
    // The units of a grant are held for at most this time, and then those of the next one.
    assert!(remaining >= 1_990, "{remaining}");
    assert_eq!(units(&proxy, "spent"), 0);
}

#[test]
fn a_request_that_another_limit_denies_spends_no_granted_units() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(
        &redis,
        &format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[limits.one]\n{FIXED}\n\
             [limits.few]\nrate = \"50/day\"\nkey = \"global\"\n\
             [[routes]]\npath = \"/few\"\nlimits = [\"one\", \"few\"]\nrespond = {{ status = 200 }}\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n"
        ),
    );
    assert_eq!(spend(&proxy, 200), 200);
    let mut client = Client::connect(proxy.addr());
    let allowed = (0..300).filter(|_| client.get("/few", &[]).status() == 200).count();
    assert_eq!(allowed, 50);
    assert_eq!(spend_all(&proxy), 2_000 - 250);
}
