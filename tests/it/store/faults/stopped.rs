//! A server that is absent, stopped, or still loading its data.

use std::time::Duration;

use super::routes::{Ahead, routes};
use super::{Expected, Trial, try_fault};
use crate::support::{RedisServer, Tidegate, eventually, get};

#[test]
fn a_server_is_killed_and_restarted() {
    try_fault(|ahead| {
        let mut redis = RedisServer::start();
        let trial = Trial::with_server("killed and restarted", ahead, &redis);
        redis.kill();
        trial.run_outage();
        redis.restart();
        trial.end(&Expected { reasons: &["not connected: Connection re"], keeps: false });
    });
}

#[test]
fn a_server_is_stopped_for_five_seconds() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("stopped for 5 s", ahead, &redis);
        redis.pause();
        trial.run_outage();
        if ahead == Ahead::Off {
            // Longer than all timeouts of connections, of the proxy and of fred: only the passing of time shows that the proxy
            // recovers after them.
            std::thread::sleep(Duration::from_secs(5));
        }
        redis.resume();
        let reasons = [
            "no reply within the deadline",
            "the connection closed before the reply",
            "not connected: Unresponsive connection",
            "not connected: no reply",
        ];
        trial.end(&Expected { reasons: &reasons, keeps: true });
    });
}

#[test]
fn a_restarted_server_is_loading_its_data() {
    try_fault(|ahead| {
        let mut redis = RedisServer::start_as(|_| {
            // A millisecond for each key, and replies to clients after each kilobyte.
            let options =
                "--key-load-delay 1000 --loading-process-events-interval-bytes 1024 --rdbcompression no";
            options.split(' ').map(str::to_owned).collect()
        });
        let fill = "for number = 1, 1500 do redis.call('SET', 'other:' .. number, string.rep('x', 1024)) end";
        redis.cli(&["eval", fill, "0"]);
        let trial = Trial::with_server("loading its data", ahead, &redis);
        assert_eq!(redis.cli(&["save"]), "OK");
        redis.restart();
        let reasons =
            ["LOADING Redis is loading", "not connected: LOADING Redis is loading", "not connected: Conn"];
        trial.end(&Expected { reasons: &reasons, keeps: false });
    });
}

/// The proxy probes the store, so it notices an outage without any request.
#[test]
fn an_idle_proxy_notices_an_outage() {
    let mut redis = RedisServer::absent();
    let proxy = Tidegate::start(&format!("{}\n[store]\nurl = \"{}\"", routes(Ahead::Off), redis.url()));
    let is_up = |is_up: bool| {
        let (word, up, open) = if is_up { ("up", 1, 0) } else { ("unreachable", 0, 2) };
        get(proxy.admin(), "/ready", &[]).text() == format!("ready\nstore: {word}\n")
            && proxy.metric("tidegate_store_up") == up
            && proxy.metric("tidegate_store_breakers_open") == open
    };
    eventually("it is down at the start", || is_up(false));
    redis.restart();
    eventually("it is up", || is_up(true));
    redis.kill();
    eventually("it is down", || is_up(false));
    assert_eq!(proxy.metric("tidegate_store_breaker_openings_total"), 4);
    let (down, up) = (proxy.logged("the store is unavailable"), proxy.logged("the store is available again"));
    assert_eq!((down, up), (2, 1));
}
