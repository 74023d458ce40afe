//! Two proxies that share limits with `ahead`: every admission is judged by the times at which clients sent their requests
//! and received the responses.

use std::time::Instant;

use super::{ahead, proxy};
use crate::support::{Client, RedisServer, Tidegate};

/// How many requests each of four clients sends.
const REQUESTS: usize = 1_500;

/// An admitted request: it was admitted between these times, in seconds.
#[derive(Clone, Copy, Debug)]
struct Admission {
    sent: f64,
    received: f64,
}

/// Sends requests through both proxies as fast as possible; returns those that were admitted.
fn admissions(proxies: &[Tidegate; 2]) -> Vec<Admission> {
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64();
    let load = |proxy: &Tidegate| {
        let mut client = Client::connect(proxy.addr());
        let request = |_| {
            let sent = now();
            let is_allowed = client.get("/", &[]).status() == 200;
            is_allowed.then(|| Admission { sent, received: now() })
        };
        (0..REQUESTS).filter_map(request).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            proxies.iter().chain(proxies).map(|proxy| scope.spawn(move || load(proxy))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// Asserts that no time has more admissions than `most` allows for its length in seconds.
fn assert_within(admissions: &[Admission], most: impl Fn(f64) -> f64) {
    for first in admissions {
        let mut ends: Vec<f64> =
            admissions.iter().filter(|other| other.sent >= first.sent).map(|other| other.received).collect();
        ends.sort_unstable_by(f64::total_cmp);
        let mut count = 0.0;
        for end in ends {
            count += 1.0;
            let length = end - first.sent;
            assert!(count <= most(length), "{count} admissions in {length} s");
        }
    }
}

#[test]
fn two_proxies_never_exceed_a_limit() {
    let redis = RedisServer::start();
    // The units that refill in a time, and the part of a unit by which clocks may differ.
    let bucket = |seconds: f64| 300.0 + 300.0 * seconds * 1.001 + 1.0;
    let log = |seconds: f64| 300.0 * ((seconds * 1.001).floor() + 1.0);
    for (limit, most) in [
        ("rate = \"300/s\"", &bucket as &dyn Fn(f64) -> f64),
        ("algorithm = \"gcra\"\nrate = \"300/s\"\nburst = 299", &bucket),
        ("algorithm = \"sliding_log\"\nrate = \"300/s\"", &log),
    ] {
        let limit = format!("{limit}\nkey = \"global\"\nahead = \"auto\"");
        let proxies = [proxy(&redis, &limit), proxy(&redis, &limit)];
        let admissions = admissions(&proxies);
        assert_within(&admissions, most);
        assert!(admissions.len() >= 300, "{} admissions of {limit}", admissions.len());
        let units: u64 =
            proxies.iter().map(|proxy| ahead(proxy, "allowed") + ahead(proxy, "near_limit")).sum();
        assert!(units > 0, "{limit}");
        redis.cli(&["flushall"]);
    }
}
