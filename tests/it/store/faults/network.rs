//! A healthy server behind a slow or lossy network.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::limit::{Charge, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::RedisTarget;
use tidegate::store::{Redis, RedisSpec};
use tidegate::time::Micros;

use super::{Ahead, Expected, Trial, try_fault};
use crate::support::{RedisServer, Relay, Tidegate, eventually, eventually_async, get, patience};

fn through(name: &'static str, ahead: Ahead, relay: &Relay) -> Trial {
    Trial::start(name, ahead, &format!("url = \"redis://{}\"", relay.addr()))
}

#[test]
fn a_round_trip_takes_four_times_the_timeout() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let relay = Relay::to(redis.addr());
        let trial = through("200 ms latency", ahead, &relay);
        relay.delay(trial.timeout * 2);
        run_outage(&trial, &relay);
        relay.delay(Duration::ZERO);
        let reasons = ["no reply within the deadline", "the connection closed before", "not connected: "];
        trial.end(&Expected { reasons: &reasons, keeps: true });
    });
}

#[test]
fn connections_are_half_open() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let relay = Relay::to(redis.addr());
        let trial = through("half-open connections", ahead, &relay);
        relay.lose(true);
        run_outage(&trial, &relay);
        relay.lose(false);
        let reasons = ["no reply within the deadline", "the connection closed before", "not connected: "];
        trial.end(&Expected { reasons: &reasons, keeps: true });
    });
}

/// Waits until the breakers are open and the proxy has tried to replace its connections.
#[track_caller]
fn run_outage(trial: &Trial, relay: &Relay) {
    let before = relay.connections();
    trial.run_outage();
    eventually("a connection is replaced", || relay.connections() > before);
}

/// A route that denies requests while the store is unavailable.
const DENY: &str = r#"
    [limits.a]
    rate = "1/day"
    burst = 3
    key = "route"
    on_store_failure = "deny"
    [[routes]]
    path = "/"
    limits = ["a"]
    respond = { status = 200 }
"#;

/// Calls to a distant server do not wait for each other's replies.
#[test]
fn calls_to_a_distant_server_overlap() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    relay.delay(Duration::from_millis(100));
    let target = RedisTarget::parse(&format!("redis://{}", relay.addr())).unwrap();
    let spec = RedisSpec { target, timeout: patience(), prefix: "t".into(), client_clock: false };
    let day = Rate::new(1, Micros(86_400_000_000)).unwrap();
    let policies = Arc::<[Policy]>::from(vec![Policy::new("a", Quota::token_bucket(day, 100_000).unwrap())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Redis::connect(&spec);
        store.wait_connected(patience()).await.unwrap();
        // Two charges, so that every call is of the same script.
        let charges = [1, 2].map(|key| Charge::take(PolicyId(0), Key([key; 16]), 1));
        for _ in 0..4 {
            let _ = store.take(&policies, &charges).await.unwrap();
        }
        let before = redis.calls("evalsha");
        // The times of the calls that had a reply: all requests of a call have that of its script.
        let replied = Arc::new(Mutex::new(HashSet::new()));
        eventually_async("two calls have been run that have no reply yet", async || {
            let (store, policies, replied) = (store.clone(), Arc::clone(&policies), Arc::clone(&replied));
            let taking = {
                let replied = Arc::clone(&replied);
                async move {
                    let decisions = store.take(&policies, &charges).await.unwrap();
                    replied.lock().unwrap().insert(decisions[0].at);
                }
            };
            tokio::spawn(taking);
            tokio::task::yield_now().await;
            let run = redis.calls("evalsha") - before;
            run >= replied.lock().unwrap().len() as u64 + 2
        })
        .await;
    });
}

/// A slow Redis is not an unavailable one if `timeout` is long enough.
#[test]
fn a_long_timeout_tolerates_a_slow_network() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    relay.delay(Duration::from_millis(100));
    let proxy =
        Tidegate::start(&format!("[store]\nurl = \"redis://{}\"\ntimeout = \"5s\"\n{DENY}", relay.addr()));
    eventually("it is connected", || get(proxy.addr(), "/", &[]).status() == 200);
    let statuses: Vec<u16> = (0..3).map(|_| get(proxy.addr(), "/", &[]).status()).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

/// Every reply is later than the deadline, but not so late that fred takes the connection for dead. The proxy replaces it and
/// closes the old one.
#[test]
fn a_connection_without_timely_replies_is_replaced() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    let proxy = Tidegate::start(&format!("[store]\nurl = \"redis://{}\"\n{DENY}", relay.addr()));
    eventually("Redis decides", || get(proxy.addr(), "/", &[]).status() == 200);
    let clients = || redis.cli(&["client", "list"]).lines().count();
    let (before, open) = (relay.connections(), clients());
    relay.delay(Duration::from_millis(40));
    eventually("the connection is replaced", || {
        get(proxy.addr(), "/", &[]);
        relay.connections() > before
    });
    relay.delay(Duration::ZERO);
    eventually("Redis decides again", || get(proxy.addr(), "/", &[]).status() != 503);
    eventually("the old connection is closed", || clients() == open);
}

#[test]
fn a_replaced_connection_leaves_no_task() {
    let redis = RedisServer::start();
    let spec = RedisSpec {
        target: RedisTarget::parse(&redis.url()).unwrap(),
        timeout: patience(),
        prefix: "t".into(),
        client_clock: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Redis::connect(&spec);
        store.wait_connected(patience()).await.unwrap();
        store.probe().await.unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        for _ in 0..5 {
            store.reconnect();
            // The supervisor runs first; then probes fail at once until the store is connected again.
            tokio::task::yield_now().await;
            eventually_async("the store is connected again", async || store.probe().await.is_ok()).await;
        }
        assert_eq!(tasks(), before);
    });
    let all = redis.cli(&["info", "stats"]);
    let all = all.lines().find_map(|line| line.trim().strip_prefix("total_connections_received:")).unwrap();
    assert!(all.parse::<usize>().unwrap() > 5, "{all}");
}
