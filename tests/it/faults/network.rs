//! A server that is well, at the end of a way that is not.

use std::time::Duration;

use super::{Expected, Trial};
use crate::support::{RedisServer, Relay, Tidegate, get};

fn over(name: &'static str, relay: &Relay) -> Trial {
    Trial::of(name, &format!("url = \"redis://{}\"", relay.addr()))
}

#[test]
fn two_hundred_milliseconds_away() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    let trial = over("200 ms latency", &relay);
    relay.delay(Duration::from_millis(100));
    // The outage.
    std::thread::sleep(Duration::from_secs(2));
    relay.delay(Duration::ZERO);
    let reasons = ["no answer within the deadline", "the connection ended before", "not connected: "];
    trial.end(&Expected { reasons: &reasons, keeps: true });
}

#[test]
fn half_open() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    let trial = over("half-open connections", &relay);
    relay.lose(true);
    // The outage.
    std::thread::sleep(Duration::from_secs(2));
    relay.lose(false);
    let reasons = ["no answer within the deadline", "the connection ended before", "not connected: "];
    trial.end(&Expected { reasons: &reasons, keeps: true });
}

/// Far away is not away, for whoever allows for it.
#[test]
fn a_long_deadline_allows_for_a_long_way() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    relay.delay(Duration::from_millis(100));
    let proxy = Tidegate::start(&format!(
        r#"
        [store]
        url = "redis://{}"
        timeout = "1s"
        [limits.a]
        rate = "1/day"
        burst = 3
        key = "route"
        on_store_failure = "deny"
        [[routes]]
        path = "/"
        limits = ["a"]
        respond = {{ status = 200 }}
        "#,
        relay.addr()
    ));
    crate::support::eventually("it is connected", || get(proxy.addr(), "/", &[]).status() == 200);
    let statuses: Vec<u16> = (0..3).map(|_| get(proxy.addr(), "/", &[]).status()).collect();
    assert_eq!(statuses, [200, 200, 429]);
}
