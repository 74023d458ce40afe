//! Freed slots that a proxy keeps for the next requests of their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get, timed};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn limited(slots: u32, ahead: &str, route: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [limits.flight]\nalgorithm = \"concurrency\"\nmax_in_flight = {slots}\nahead = \"{ahead}\"\nkey = \"global\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"flight\"]\n{route}\n"
    )
}

/// Whether no slot is held in Redis.
fn is_free(redis: &RedisServer) -> bool {
    !redis.keys().iter().any(|key| key.ends_with(":flight:c"))
}

#[test]
fn requests_that_follow_each_other_share_a_slot_without_calls() {
    for (ahead, is_kept) in [("auto", true), ("off", false)] {
        let redis = RedisServer::start();
        let proxy = Tidegate::start_with(&redis, &limited(100, ahead, "respond = { status = 200 }"));
        let mut client = Client::connect(proxy.addr());
        let before = redis.calls("evalsha");
        let (mut slow, mut was_slow) = (0, false);
        for _ in 0..400 {
            let (response, time) = timed(|| client.ask(REQUEST));
            // A slot is kept for a tenth of a second: a slower request takes another, while that one may still be released. One
            // that is not kept is released after the response, and the next request may reach Redis before.
            let is_slow = time >= Duration::from_millis(50);
            let remaining = response.header("x-ratelimit-remaining");
            let may_be_in_use = !is_kept || is_slow || was_slow;
            let is_right = remaining == Some("99") || may_be_in_use && remaining == Some("98");
            assert!(response.status() == 200 && is_right, "{} {remaining:?}", response.status());
            (slow, was_slow) = (slow + u64::from(is_slow), is_slow);
        }
        let calls = redis.calls("evalsha") - before;
        if is_kept {
            assert!(calls < 200 + 2 * slow, "{calls} calls, and {slow} slow requests");
        } else {
            assert!(calls >= 200, "{calls} calls with ahead = \"{ahead}\"");
        }
        assert_eq!(proxy.decisions("flight", "allowed"), 400);
        let by_redis = "tidegate_decisions_total{limit=\"flight\",outcome=\"allowed\",source=\"store\"}";
        let by_redis = proxy.metric(by_redis);
        assert!(
            if is_kept { by_redis < 200 + slow } else { by_redis >= 200 },
            "{by_redis} with ahead = \"{ahead}\""
        );
        eventually("the slot is released", || is_free(&redis));
    }
}

#[test]
fn two_proxies_never_forward_more_than_the_limit() {
    let redis = RedisServer::start();
    let [running, most, served] = [0; 3].map(|_| Arc::new(AtomicUsize::new(0)));
    let counts = [&running, &most, &served].map(Arc::clone);
    let upstream = Upstream::scripted(move |caller| {
        let [running, most, served] = &counts;
        while let Ok(Some(_)) = caller.request() {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let number = served.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(u64::try_from(number % 7).unwrap()));
            running.fetch_sub(1, Ordering::SeqCst);
            if caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let config = limited(8, "auto", &format!("upstream = \"{}\"", upstream.url()));
    let proxies = [0; 2].map(|_| Tidegate::start_with(&redis, &config));
    let before = redis.calls("evalsha");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients = [6, 5].into_iter().zip(&proxies).flat_map(|(count, proxy)| vec![proxy.addr(); count]);
        let ask = |address| {
            move || {
                let mut client = Client::connect(address);
                (0..150).map(|_| client.ask(REQUEST).status()).collect::<Vec<u16>>()
            }
        };
        let running: Vec<_> = clients.map(|address| scope.spawn(ask(address))).collect();
        running.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let count = |status: u16| statuses.iter().filter(|other| **other == status).count();
    assert_eq!((count(200) + count(429), count(200)), (statuses.len(), served.load(Ordering::SeqCst)));
    assert!(count(200) > 100 && count(429) > 0, "{} passed", count(200));
    assert!(most.load(Ordering::SeqCst) <= 8, "{most:?} at once");
    assert!(redis.calls("evalsha") > before);
    eventually("all slots are released", || is_free(&redis));
}

#[test]
fn a_proxy_that_stops_releases_the_slots_that_it_keeps() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, &limited(100, "auto", "respond = { status = 200 }"));
    for _ in 0..20 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(proxy.stop().success());
    assert!(is_free(&redis), "{:?}", redis.keys());
}
