//! A server that is well, at the end of a way that is not.

use std::time::Duration;

use tidegate::store::redis::Target;
use tidegate::store::{Redis, RedisSpec};

use super::{Expected, Trial};
use crate::support::{PATIENCE, RedisServer, Relay, Tidegate, eventually, get};

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
    let reasons = ["no reply within the deadline", "the connection closed before", "not connected: "];
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
    let reasons = ["no reply within the deadline", "the connection closed before", "not connected: "];
    trial.end(&Expected { reasons: &reasons, keeps: true });
}

/// A limit without which nobody passes.
const DENY: &str = r#"
    [limits.a]
    rate = "1/day"
    burst = 3
    key = "route"
    on_store_failure = "deny"
    [[routes]]
    path = "/"
    limits = ["a"]
    respond = { status = 200 }
"#;

/// Far away is not away, for whoever allows for it.
#[test]
fn a_long_deadline_allows_for_a_long_way() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    relay.delay(Duration::from_millis(100));
    let proxy =
        Tidegate::start(&format!("[store]\nurl = \"redis://{}\"\ntimeout = \"1s\"\n{DENY}", relay.addr()));
    eventually("it is connected", || get(proxy.addr(), "/", &[]).status() == 200);
    let statuses: Vec<u16> = (0..3).map(|_| get(proxy.addr(), "/", &[]).status()).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

/// Every answer is late, but none so late that the connection counts as dead. So it is made anew, and the old one is
/// closed.
#[test]
fn a_connection_without_answers_is_made_anew() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.addr());
    let proxy = Tidegate::start(&format!("[store]\nurl = \"redis://{}\"\n{DENY}", relay.addr()));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let at_once = || redis.cli(&["client", "list"]).lines().count();
    let (before, open) = (relay.connections(), at_once());
    relay.delay(Duration::from_millis(40));
    eventually("it is made anew", || {
        get(proxy.addr(), "/", &[]);
        relay.connections() > before
    });
    relay.delay(Duration::ZERO);
    eventually("it answers again", || get(proxy.addr(), "/", &[]).status() != 503);
    eventually("the old one is closed", || at_once() == open);
}

#[test]
fn nothing_is_left_of_a_connection_that_was_made_anew() {
    let redis = RedisServer::start();
    let spec = RedisSpec {
        target: Target::parse(&redis.url()).unwrap(),
        timeout: PATIENCE,
        prefix: "t".into(),
        client_clock: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Redis::connect(&spec);
        store.wait_connected(PATIENCE).await.unwrap();
        store.probe().await.unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        for _ in 0..5 {
            store.reconnect();
            // Let the supervisor hear of it; until there is a connection again it says so at once.
            tokio::task::yield_now().await;
            while store.probe().await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(tasks(), before);
    });
    let all = redis.cli(&["info", "stats"]);
    let all = all.lines().find_map(|line| line.trim().strip_prefix("total_connections_received:")).unwrap();
    assert!(all.parse::<usize>().unwrap() > 5, "{all}");
}
