//! Counts, slots and the store across a reload.

use std::thread;
use std::time::Duration;

use super::reload::limited;
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get};

fn left(proxy: &Tidegate) -> (u16, Option<u64>) {
    let response = get(proxy.addr(), "/", &[]);
    (response.status(), response.header("x-ratelimit-remaining").map(|left| left.parse().unwrap()))
}

fn in_redis(redis: &RedisServer) -> String {
    format!("[store]\nurl = \"{}\"\ntimeout = \"5s\"\n", redis.url())
}

#[test]
fn counts_survive_a_reload_and_new_rates_apply_at_once() {
    let redis = RedisServer::start();
    for store in [String::new(), in_redis(&redis)] {
        let proxy = Tidegate::start(&limited(&store, 3, "z"));
        eventually("the store responds", || left(&proxy) == (200, Some(2)));
        proxy.reload(&limited(&store, 3, "a"));
        assert_eq!(left(&proxy), (200, Some(1)));
        proxy.reload(&limited(&store, 3, "y"));
        assert_eq!(left(&proxy), (200, Some(0)));
        proxy.reload(&limited(&store, 3, "b"));
        // The second denial comes from the denial cache.
        assert_eq!([left(&proxy), left(&proxy)], [(429, Some(0)); 2]);
        proxy.reload(&limited(&store, 1000, "b"));
        assert_eq!(left(&proxy).0, 200);
    }
}

#[test]
fn a_reload_can_switch_the_store() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let proxy = Tidegate::start(&limited(&in_redis(&first), 3, "a"));
    eventually("the first store responds", || left(&proxy) == (200, Some(2)));
    proxy.reload(&limited(&in_redis(&second), 3, "a"));
    proxy.wait_log(&format!("limits are counted in {}", second.url()));
    eventually("the second store responds", || left(&proxy) == (200, Some(2)));
    let clients = |redis: &RedisServer| {
        let list = redis.cli(&["CLIENT", "LIST"]);
        list.lines().filter(|line| !line.contains("cmd=client")).count()
    };
    eventually("the connections to the first store are closed", || clients(&first) == 0);
    proxy.reload(&limited("", 3, "a"));
    assert_eq!(left(&proxy), (200, Some(2)));
    eventually("the connections to the second store are closed", || clients(&second) == 0);
    proxy.reload(&limited(&in_redis(&second), 3, "a"));
    eventually("the second store responds again", || left(&proxy) == (200, Some(1)));
}

#[test]
fn slots_are_released_in_their_original_store() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let config = |redis: &RedisServer| {
        format!(
            "{}[limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\nkey = \"global\"\n\
             on_store_failure = \"deny\"\n[limits.ready]\nrate = \"1000/s\"\non_store_failure = \"deny\"\n\
             [[routes]]\npath = \"/ready\"\nlimits = [\"ready\"]\nrespond = {{}}\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"slots\"]\nupstream = \"{}\"\n",
            in_redis(redis),
            server.url()
        )
    };
    let proxy = Tidegate::start(&config(&first));
    eventually("the first store responds", || get(proxy.addr(), "/ready", &[]).status() == 200);
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() == 1);
    let slots = |redis: &RedisServer| redis.keys().iter().filter(|key| key.contains(":slots:")).count();
    assert_eq!(slots(&first), 1);
    proxy.reload(&config(&second));
    // Real time is tested: the connection to the first store must stay open while a slot of it is held.
    thread::sleep(Duration::from_millis(1_500));
    release.send(()).unwrap();
    assert_eq!(client.read().status(), 200);
    eventually("the slot is released", || slots(&first) == 0);
}
