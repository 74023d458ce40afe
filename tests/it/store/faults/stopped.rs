//! A server that is not there, does not go on, or is not ready yet.

use std::time::Duration;

use super::{Expected, ROUTES, Trial};
use crate::support::{RedisServer, Tidegate, eventually, get};

#[test]
fn killed_and_restarted() {
    let mut redis = RedisServer::start();
    let trial = Trial::over("killed and restarted", &redis);
    redis.kill();
    // The outage.
    std::thread::sleep(Duration::from_millis(1_500));
    redis.restart();
    trial.end(&Expected { reasons: &["not connected: Connection re"], keeps: false });
}

#[test]
fn stopped_for_five_seconds() {
    let redis = RedisServer::start();
    let trial = Trial::over("stopped for 5 s", &redis);
    redis.pause();
    // The outage.
    std::thread::sleep(Duration::from_secs(5));
    redis.resume();
    let reasons = [
        "no reply within the deadline",
        "the connection closed before the reply",
        "not connected: Unresponsive connection",
        "not connected: no reply",
    ];
    trial.end(&Expected { reasons: &reasons, keeps: true });
}

#[test]
fn loading_its_data() {
    let mut redis = RedisServer::start_as(|_| {
        // A millisecond for each key, and an answer after each kilobyte.
        let options =
            "--key-load-delay 1000 --loading-process-events-interval-bytes 1024 --rdbcompression no";
        options.split(' ').map(str::to_owned).collect()
    });
    let fill = "for number = 1, 1500 do redis.call('SET', 'other:' .. number, string.rep('x', 1024)) end";
    redis.cli(&["eval", fill, "0"]);
    let trial = Trial::over("loading its data", &redis);
    assert_eq!(redis.cli(&["save"]), "OK");
    redis.restart();
    let reasons =
        ["LOADING Redis is loading", "not connected: LOADING Redis is loading", "not connected: Conn"];
    trial.end(&Expected { reasons: &reasons, keeps: false });
}

/// Nobody has to ask for anything to find out.
#[test]
fn an_idle_proxy_knows() {
    let mut redis = RedisServer::absent();
    let proxy = Tidegate::start(&format!("{ROUTES}\n[store]\nurl = \"{}\"", redis.url()));
    let is_up = |is_up: bool| {
        let (ready, metrics) = (get(proxy.admin(), "/ready", &[]), get(proxy.admin(), "/metrics", &[]));
        let has = |line: &str| metrics.text().lines().any(|found| found == line);
        let (word, up, open) = if is_up { ("up", 1, 0) } else { ("unreachable", 0, 2) };
        ready.text() == format!("ready\nstore: {word}\n")
            && has(&format!("tidegate_store_up {up}"))
            && has(&format!("tidegate_store_breakers_open {open}"))
    };
    eventually("it is away at the start", || is_up(false));
    redis.restart();
    eventually("it is up", || is_up(true));
    redis.kill();
    eventually("it is away", || is_up(false));
    let openings = get(proxy.admin(), "/metrics", &[]);
    assert!(openings.text().contains("tidegate_store_breaker_openings_total 4\n"), "{}", openings.text());
    let changes = |text| proxy.lines().iter().filter(|line| line.contains(text)).count();
    assert_eq!((changes("the store is unavailable"), changes("the store is available again")), (2, 1));
}
