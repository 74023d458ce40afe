//! Concurrency limits: slots, their leases, and what gives them back.

mod disconnect;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores};

/// A server that begins each answer at once and ends it when it is told to; each word that is sent ends one.
fn held_back() -> (Upstream, Sender<()>) {
    let (release, wait) = channel();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            if caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe").is_err() {
                return;
            }
            if wait.lock().unwrap().recv().is_err() || caller.try_send("ld").is_err() {
                return;
            }
        }
    });
    (upstream, release)
}

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

/// A client whose request is in flight: it has the head of its answer.
fn in_flight(proxy: &Tidegate) -> Client {
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.read_head().unwrap().unwrap();
    assert_eq!(head.status(), 200);
    client
}

#[test]
fn a_slot_is_held_until_the_last_byte() {
    let (upstream, release) = held_back();
    over_both_stores(&slots(&upstream, "30s"), |proxy| {
        let mut first = in_flight(proxy);
        let refused = get(proxy.addr(), "/", &[]);
        assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("1")));
        assert_eq!(refused.header("x-ratelimit-limit"), Some("1"));
        release.send(()).unwrap();
        assert_eq!(first.take(4).unwrap(), b"held");
        // To Redis the slot goes back behind the answer.
        let mut second = None;
        eventually("the slot is free", || {
            let mut client = Client::connect(proxy.addr());
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let is_in = client.read_head().unwrap().unwrap().status() == 200;
            second = is_in.then_some(client);
            is_in
        });
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        release.send(()).unwrap();
        assert_eq!(second.unwrap().take(4).unwrap(), b"held");
    });
}

#[test]
fn a_slot_of_a_disconnected_client_is_released_when_the_server_finishes() {
    let (upstream, release) = held_back();
    over_both_stores(&slots(&upstream, "30s"), |proxy| {
        for _ in 0..3 {
            let mut client = None;
            eventually("the slot is free", || {
                let mut next = Client::connect(proxy.addr());
                next.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                let is_in = next.read_head().unwrap().unwrap().status() == 200;
                client = is_in.then_some(next);
                is_in
            });
            let served = upstream.requests().len();
            // Reset, so that the proxy hears of it at once.
            SockRef::from(client.as_ref().unwrap().stream()).set_linger(Some(Duration::ZERO)).unwrap();
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
    let (holding, asking) = (Tidegate::start_with(&redis, &config), Tidegate::start_with(&redis, &config));
    let _client = in_flight(&holding);
    // Longer than a lease, by the clock of a real Redis: only who renews still holds then.
    let until = Instant::now() + Duration::from_millis(4_500);
    while Instant::now() < until {
        assert_eq!(get(asking.addr(), "/", &[]).status(), 429);
        std::thread::sleep(Duration::from_millis(100));
    }
    holding.signal("KILL");
    eventually("the lease has ended", || {
        let mut client = Client::connect(asking.addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.read_head().unwrap().unwrap().status() == 200
    });
}

#[test]
fn a_slot_acquired_during_an_outage_is_written_to_redis_afterwards() {
    let mut redis = RedisServer::start();
    let (upstream, release) = held_back();
    let proxy = Tidegate::start_with(&redis, &slots(&upstream, "3s"));
    redis.kill();
    let mut client = in_flight(&proxy);
    // Longer than a lease: only who renews still holds then.
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
    eventually("it is given back", || !is_held());
}
