//! Counts and slots across a reload.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::reload::limited;
use crate::support::{Client, PATIENCE, RedisServer, Tidegate, Upstream, eventually, get};

fn left(proxy: &Tidegate) -> (u16, Option<u64>) {
    let answer = get(proxy.addr(), "/", &[]);
    (answer.status(), answer.header("x-ratelimit-remaining").map(|left| left.parse().unwrap()))
}

fn in_redis(redis: &RedisServer) -> String {
    format!("[store]\nurl = \"{}\"\ntimeout = \"5s\"\n", redis.url())
}

#[test]
fn counts_live_on_and_other_numbers_hold_at_once() {
    let redis = RedisServer::start();
    for store in [String::new(), in_redis(&redis)] {
        let proxy = Tidegate::start(&limited(&store, 3, "z"));
        eventually("the store answers", || left(&proxy) == (200, Some(2)));
        proxy.reload(&limited(&store, 3, "a"));
        assert_eq!(left(&proxy), (200, Some(1)));
        proxy.reload(&limited(&store, 3, "y"));
        assert_eq!(left(&proxy), (200, Some(0)));
        proxy.reload(&limited(&store, 3, "b"));
        // The second time it is refused by heart.
        assert_eq!([left(&proxy), left(&proxy)], [(429, Some(0)); 2]);
        proxy.reload(&limited(&store, 1000, "b"));
        assert_eq!(left(&proxy).0, 200);
    }
}

#[test]
fn the_store_can_be_another() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let proxy = Tidegate::start(&limited(&in_redis(&first), 3, "a"));
    eventually("the first answers", || left(&proxy) == (200, Some(2)));
    proxy.reload(&limited(&in_redis(&second), 3, "a"));
    proxy.wait_log(&format!("limits are counted in {}", second.url()));
    eventually("the second answers", || left(&proxy) == (200, Some(2)));
    let clients = |redis: &RedisServer| {
        let list = redis.cli(&["CLIENT", "LIST"]);
        list.lines().filter(|line| !line.contains("cmd=client")).count()
    };
    eventually("the first is left", || clients(&first) == 0);
    proxy.reload(&limited("", 3, "a"));
    assert_eq!(left(&proxy), (200, Some(2)));
    eventually("the second is left", || clients(&second) == 0);
    proxy.reload(&limited(&in_redis(&second), 3, "a"));
    eventually("the second answers again", || left(&proxy) == (200, Some(1)));
}

/// A slot is given back to the store that it came from, whatever the store is by then.
#[test]
fn slots_are_given_back_where_they_were_taken() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let (more, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = waits.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
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
    eventually("the first answers", || get(proxy.addr(), "/ready", &[]).status() == 200);
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("a request is under way", || server.requests().len() == 1);
    let slots = |redis: &RedisServer| redis.keys().iter().filter(|key| key.contains(":slots:")).count();
    assert_eq!(slots(&first), 1);
    proxy.reload(&config(&second));
    // Longer than it takes to see that no request asks the first one any more.
    thread::sleep(Duration::from_millis(1_500));
    more.send(()).unwrap();
    assert_eq!(client.read().status(), 200);
    eventually("the slot is given back", || slots(&first) == 0);
}
