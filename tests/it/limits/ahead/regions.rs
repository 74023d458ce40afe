//! Proxies in several regions: the distance to Redis delays few requests of a busy key.

use std::time::Duration;

use super::{admitted_by, held, proxy, proxy_at, spend};
use crate::support::{Client, RedisServer, Relay, eventually};

/// The delay of all bytes to Redis, and of those from it.
const DISTANCE: Duration = Duration::from_millis(100);

#[test]
fn a_distant_proxy_serves_a_hot_key_without_waiting() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    relay.delay(DISTANCE);
    // Grants last for ten seconds.
    let limit = "rate = \"60000/minute\"\nkey = \"global\"\nahead = \"auto\"";
    let (near, far) = (proxy(&redis, limit), proxy_at(&relay.url(), "5s", limit));
    let proxies = [&near, &far];
    // The first grants are small, since the demand is not known yet.
    for proxy in proxies {
        eventually("many units are held", || {
            assert_eq!(spend(proxy, 100), 100);
            held(proxy) > 500
        });
    }
    let before = proxies.map(|proxy| ["store", "ahead"].map(|source| admitted_by(proxy, "one", source)));
    std::thread::scope(|scope| {
        for proxy in proxies {
            scope.spawn(move || assert_eq!(spend(proxy, 3_000), 3_000));
        }
    });
    for (proxy, [waited, at_once]) in proxies.into_iter().zip(before) {
        let waited = admitted_by(proxy, "one", "store") - waited;
        let at_once = admitted_by(proxy, "one", "ahead") - at_once;
        println!("{waited} requests waited for Redis, {at_once} did not");
        assert_eq!(waited + at_once, 3_000);
        assert!(waited <= 30, "{waited} requests waited for Redis");
    }
}

#[test]
fn a_distant_proxy_passes_slots_on_without_waiting() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    relay.delay(DISTANCE);
    let limit = "algorithm = \"concurrency\"\nmax_in_flight = 100\nkey = \"global\"\nahead = \"auto\"";
    let proxy = proxy_at(&relay.url(), "5s", limit);
    let mut client = Client::connect(proxy.addr());
    assert!((0..1_000).all(|_| client.get("/", &[]).status() == 200));
    // A slot is passed on for a second.
    let waited = admitted_by(&proxy, "one", "store");
    assert!(waited <= 20, "{waited} requests waited for Redis");
}
