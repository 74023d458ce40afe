//! Held units when a proxy or Redis ends or is stopped.

use std::time::Duration;

use super::{FIXED, ahead, has_no_grants, held, proxy, proxy_at, spend, spend_all, spend_until_held, units};
use crate::support::{Client, RedisServer, eventually};

#[test]
fn units_of_a_killed_proxy_count_as_spent() {
    let redis = RedisServer::start();
    let limit = FIXED.replace("10s", "1s");
    let (first, second) = (proxy(&redis, &limit), proxy(&redis, &limit));
    let spent = spend_until_held(&first);
    let held = held(&first);
    first.signal("KILL");
    let others = spend_all(&second);
    assert!(spent + others <= 2_000, "{spent} and {others}");
    assert!(spent + others + held >= 1_800, "{spent} and {others} of {held}");
    eventually("its grants have ended", || {
        assert_eq!(spend(&second, 1), 0);
        has_no_grants(&redis)
    });
    assert_eq!(spend(&second, 20), 0);
}

#[test]
fn a_proxy_that_was_stopped_spends_nothing_that_it_held() {
    let redis = RedisServer::start();
    let limit = FIXED.replace("10s", "1s");
    let (first, second) = (proxy(&redis, &limit), proxy(&redis, &limit));
    spend_until_held(&first);
    first.signal("STOP");
    // Redis counts its units as spent when they have ended, by its clock.
    eventually("its grants have ended", || {
        // So seldom that this proxy gets no grant itself.
        std::thread::sleep(Duration::from_millis(300));
        spend(&second, 1);
        has_no_grants(&redis)
    });
    first.signal("CONT");
    let before = ahead(&first, "allowed");
    assert_eq!(spend(&first, 1), 1);
    assert_eq!((held(&first), ahead(&first, "allowed")), (0, before));
    assert!(units(&first, "lapsed") > 0);
}

#[test]
fn held_units_are_spent_while_redis_is_unavailable() {
    let mut redis = RedisServer::start();
    let proxy = proxy(&redis, FIXED);
    spend_until_held(&proxy);
    let (held, before) = (held(&proxy), ahead(&proxy, "allowed"));
    redis.kill();
    let mut client = Client::connect(proxy.addr());
    assert!((0..held).all(|_| client.get("/", &[]).status() == 200));
    assert_eq!(ahead(&proxy, "allowed"), before + held);
    // Redis has reserved them.
    assert_eq!(proxy.metric("tidegate_charge_back_units_total{outcome=\"owed\"}"), 0);
    // Then this process decides, by its share.
    eventually("it decides by itself", || {
        assert_eq!(client.get("/", &[]).status(), 200);
        proxy.metric("tidegate_charge_back_units_total{outcome=\"owed\"}") > 0
    });
}

#[test]
fn a_proxy_returns_its_units_when_it_ends() {
    let redis = RedisServer::start();
    let (first, second) = (proxy(&redis, FIXED), proxy(&redis, FIXED));
    let spent = spend_until_held(&first);
    assert!(first.stop().success());
    assert!(has_no_grants(&redis));
    assert_eq!(spend_all(&second), 2_000 - spent);
}

#[test]
fn a_reload_returns_the_units_of_a_limit_that_has_changed() {
    let redis = RedisServer::start();
    let (first, second) = (proxy(&redis, FIXED), proxy(&redis, FIXED));
    let spent = spend_until_held(&first);
    let config = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\ntimeout = \"5s\"\n{}",
        redis.url(),
        super::limited(&FIXED.replace("burst = 2000", "burst = 2001"))
    );
    first.reload(&config);
    eventually("its units are returned", || has_no_grants(&redis));
    assert_eq!(spend_all(&second), 2_000 - spent);
}

/// Redis stands still. Requests for held units do not notice it; then the breaker opens, and closes when Redis is back.
#[test]
fn a_stalled_redis_delays_no_request_that_has_units() {
    let redis = RedisServer::start();
    let proxy = proxy_at(&redis.url(), "50ms", &format!("{FIXED}\non_store_failure = \"deny\""));
    let mut client = Client::connect(proxy.addr());
    let mut admitted = 0;
    eventually("many units are held", || {
        admitted += u64::from(client.get("/", &[]).status() == 200);
        held(&proxy) > 100
    });
    redis.pause();
    // A grant that is still on its way may arrive.
    let before = (held(&proxy), ahead(&proxy, "allowed"));
    let missed = || proxy.metric("tidegate_store_requests_total{outcome=\"timeout\"}");
    let passed = (0..2_000).take_while(|_| client.get("/", &[]).status() == 200).count();
    let passed = u64::try_from(passed).unwrap();
    assert!(passed >= before.0, "{passed} passed of {before:?}");
    assert_eq!(ahead(&proxy, "allowed") - before.1, passed);
    eventually("the breaker opens", || {
        assert_eq!(client.get("/", &[]).status(), 503);
        proxy.metric("tidegate_store_breakers_open") == 1
    });
    // From then on no request waits.
    let before = missed();
    (0..100).for_each(|_| assert_eq!(client.get("/", &[]).status(), 503));
    assert!(missed() - before < 20, "{} of 100 requests waited for Redis", missed() - before);
    redis.resume();
    eventually("Redis decides again, and the breaker is closed", || {
        admitted += u64::from(client.get("/", &[]).status() == 200);
        proxy.metric("tidegate_store_breakers_open") == 0
    });
    admitted += passed;
    let mut denied = 0;
    // On a busy machine, single calls may still miss the deadline.
    eventually("all units are spent", || {
        let statuses = [(); 100].map(|()| client.get("/", &[]).status());
        admitted += u64::try_from(statuses.iter().filter(|status| **status == 200).count()).unwrap();
        denied += statuses.iter().filter(|status| **status == 429).count();
        denied > 100
    });
    assert!((1_500..=2_000).contains(&admitted), "{admitted} admitted");
}
