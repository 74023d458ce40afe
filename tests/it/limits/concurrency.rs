//! Concurrency limits: slots, their leases, and their release.

mod disconnect;
mod kept;
mod reserved;

use std::time::{Duration, Instant};

use super::setup::{held_back, in_flight, wait_in_flight};
use crate::support::{RedisServer, Tidegate, Upstream, eventually, get, over_both_stores};

fn slots(upstream: &Upstream, lease: &str) -> String {
    format!(
        r#"
        [limits.flight]
        algorithm = "concurrency"
        max_in_flight = 1
        lease = "{lease}"
        key = "global"
        [[routes]]
        path = "/*"
        limits = ["flight"]
        upstream = "{}"
        "#,
        upstream.url()
    )
}

#[test]
fn a_slot_is_held_until_the_last_byte() {
    let (upstream, release) = held_back();
    over_both_stores(&slots(&upstream, "30s"), |proxy| {
        let mut first = in_flight(proxy.addr()).unwrap();
        let denied = get(proxy.addr(), "/", &[]);
        assert_eq!((denied.status(), denied.header("retry-after")), (429, Some("1")));
        assert_eq!(denied.header("x-ratelimit-limit"), Some("1"));
        release.send(()).unwrap();
        assert_eq!(first.take(4).unwrap(), b"held");
        // In Redis the slot is released after the response.
        let mut second = wait_in_flight(proxy.addr());
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        release.send(()).unwrap();
        assert_eq!(second.take(4).unwrap(), b"held");
    });
}

#[test]
fn a_slot_of_a_disconnected_client_is_released_when_the_server_finishes() {
    let (upstream, release) = held_back();
    over_both_stores(&slots(&upstream, "30s"), |proxy| {
        for _ in 0..3 {
            let client = wait_in_flight(proxy.addr());
            let served = upstream.requests().len();
            // A reset, so that the proxy notices it at once.
            drop(client);
            for _ in 0..40 {
                assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
            }
            assert_eq!((upstream.requests().len(), upstream.open()), (served, 1));
            release.send(()).unwrap();
        }
    });
}

#[test]
fn leases_of_a_killed_proxy_expire_and_those_of_a_running_one_are_renewed() {
    let redis = RedisServer::start();
    let (upstream, _release) = held_back();
    let config = slots(&upstream, "3s");
    let (holding, other) = (Tidegate::start_with(&redis, &config), Tidegate::start_with(&redis, &config));
    let _client = in_flight(holding.addr()).unwrap();
    // Longer than a lease, by the clock of a real Redis: only a renewed lease is still valid then.
    let until = Instant::now() + Duration::from_millis(4_500);
    while Instant::now() < until {
        assert_eq!(get(other.addr(), "/", &[]).status(), 429);
        std::thread::sleep(Duration::from_millis(100));
    }
    holding.signal("KILL");
    // The lease expires.
    let _ = wait_in_flight(other.addr());
}

#[test]
fn a_slot_acquired_during_an_outage_is_written_to_redis_afterwards() {
    let mut redis = RedisServer::start();
    let (upstream, release) = held_back();
    let proxy = Tidegate::start_with(&redis, &slots(&upstream, "3s"));
    redis.kill();
    let mut client = in_flight(proxy.addr()).unwrap();
    // Longer than a lease: only a renewed lease is still valid then.
    let until = Instant::now() + Duration::from_millis(4_500);
    while Instant::now() < until {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        std::thread::sleep(Duration::from_millis(100));
    }
    redis.restart();
    proxy.wait_ready();
    let is_held = || redis.keys().iter().any(|key| key.contains(":flight:"));
    assert!(is_held() && get(proxy.addr(), "/", &[]).status() == 429);
    release.send(()).unwrap();
    assert_eq!(client.take(4).unwrap(), b"held");
    eventually("the slot is released", || !is_held());
}
