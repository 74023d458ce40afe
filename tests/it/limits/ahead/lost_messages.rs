//! Connections that are closed in the middle of calls and replies, while units are held.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{has_no_grants, proxy_at, units};
use crate::limits::setup::PROXY;
use crate::support::{Client, Flow, RedisServer, Relay, Tidegate, eventually};

/// None of them come back while a test runs.
const UNITS: u64 = 100_000;
const LIMIT: &str = "rate = \"1/day\"\nburst = 100000\nkey = \"global\"\nahead = \"200ms\"\n\
                     on_store_failure = \"deny\"\ncost = \"header:x-cost\"\ncost_max = 1000";

/// Sends requests until `is_over`; returns how many were admitted.
fn send(proxy: &Tidegate, is_over: &AtomicBool) -> u64 {
    let mut client = Client::connect(proxy.addr());
    let mut admitted = 0;
    while !is_over.load(Ordering::Relaxed) {
        match client.get("/", &[]).status() {
            200 => admitted += 1,
            503 => {}
            status => panic!("{status}"),
        }
    }
    admitted
}

/// Spends what is left, with fewer and fewer units at once; returns how many units were admitted.
fn drain(proxy: &Tidegate) -> u64 {
    let mut client = Client::connect_from(PROXY, proxy.addr());
    let mut admitted = 0;
    for cost in [1_000, 100, 10, 1] {
        let header = format!("X-Cost: {cost}");
        while client.get("/", &[&header]).status() == 200 {
            admitted += cost;
        }
    }
    admitted
}

#[test]
fn lost_calls_and_replies_admit_no_more_than_the_limit() {
    let redis = RedisServer::start();
    let relays = [0; 2].map(|_| Relay::to(redis.addr()));
    let proxies = relays.each_ref().map(|relay| proxy_at(&relay.url(), "5s", LIMIT));
    let is_over = AtomicBool::new(false);
    let mut admitted: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> =
            proxies.iter().chain(&proxies).map(|proxy| scope.spawn(|| send(proxy, &is_over))).collect();
        for number in 0..16 {
            let (relay, proxy) = (&relays[number % 2], &proxies[number % 2]);
            let flow = if number % 4 < 2 { Flow::Requests } else { Flow::Replies };
            // In the middle of a call or a reply, or between two.
            relay.cut_after(flow, fastrand::usize(..300));
            eventually("the connection is closed", || !relay.will_cut());
            let before = units(proxy, "granted");
            eventually("units are granted again", || units(proxy, "granted") > before);
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    proxies.iter().for_each(Tidegate::wait_ready);
    eventually("all grants have ended, and all units are spent", || {
        let drained: u64 = proxies.iter().map(drain).sum();
        admitted += drained;
        drained == 0 && has_no_grants(&redis)
    });
    println!("{admitted} of {UNITS} units admitted");
    assert!(admitted <= UNITS, "{admitted} admitted");
    // The rest was granted or taken by calls whose replies were lost, or returned by calls that were lost.
    assert!(admitted >= UNITS * 3 / 4, "{admitted} admitted");
}
