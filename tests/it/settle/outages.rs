//! Redis is frozen or killed in the middle of responses, and a proxy is killed.

use std::sync::mpsc::Sender;

use super::setup::{CAPACITY, RESERVE, config, ok, own, settled_by, until_charged};
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get};

/// A server whose responses cost the number in their path, once a test releases them; those to `/now/` at once.
fn server() -> (Upstream, Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            let path = request.start.split(' ').nth(1).unwrap().to_owned();
            let cost = path.rsplit('/').next().unwrap();
            if !path.starts_with("/now/") {
                let _ = released.lock().unwrap().recv();
            }
            if caller.try_send(ok(&format!("X-Cost: {cost}\r\n"), "ok")).is_err() {
                return;
            }
        }
    });
    (upstream, release)
}

/// Sends a request that costs this, and waits until it is at the server.
fn open(proxy: &Tidegate, server: &Upstream, (key, cost): (&str, u64)) -> Client {
    let before = server.received();
    let mut client = Client::connect(proxy.addr());
    client.send(format!("GET /slow/{cost} HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"));
    eventually("the request is at the server", || server.received() > before);
    client
}

fn start(redis: &RedisServer, server: &Upstream, on_failure: &str) -> Tidegate {
    let limit = format!("{}\non_store_failure = \"{on_failure}\"", settled_by("header:x-cost"));
    Tidegate::builder(&config(&limit, &server.url())).store(redis, "timeout = \"500ms\"").start()
}

/// Sends requests of another key until no call is sent any more.
fn until_open(proxy: &Tidegate) {
    eventually("the breaker is open", || {
        let _ = get(proxy.addr(), "/own", &["X-Key: other"]);
        proxy.metric("tidegate_store_breakers_open") == 1
    });
}

fn until_paid(proxy: &Tidegate) {
    proxy.wait_ready();
    eventually("the breaker is closed and all is paid", || {
        proxy.metric("tidegate_store_breakers_open") == 0 && proxy.metric("tidegate_owed_keys") == 0
    });
}

/// The status of a request during the outage.
fn status_in_outage(on_failure: &str) -> u16 {
    if on_failure == "deny" { 503 } else { 200 }
}

/// The breaker is open when the responses come: extra units are owed and paid, and refunds are dropped.
#[test]
fn redis_is_frozen_in_the_middle_of_responses() {
    for on_failure in ["local", "allow", "deny"] {
        let redis = RedisServer::start();
        let (server, release) = server();
        let proxy = start(&redis, &server, on_failure);
        let mut clients =
            [("less", 7), ("more", 250), ("same", RESERVE)].map(|sent| open(&proxy, &server, sent));
        redis.pause();
        until_open(&proxy);
        for client in &mut clients {
            release.send(()).unwrap();
            // Requests are released in any order.
            let _ = client;
        }
        for client in &mut clients {
            assert_eq!(client.read().status(), 200, "{on_failure}");
        }
        let during = get(proxy.addr(), "/now/30", &["X-Key: during"]);
        assert_eq!(during.status(), status_in_outage(on_failure), "{on_failure}");
        redis.resume();
        until_paid(&proxy);
        until_charged(&proxy, "less", RESERVE);
        until_charged(&proxy, "more", 250);
        until_charged(&proxy, "same", RESERVE);
        // What was admitted in the outage is charged if the proxy has counted it.
        until_charged(&proxy, "during", if on_failure == "local" { 30 } else { 0 });
    }
}

/// The calls that settle are under way when Redis freezes: it makes them when it goes on, and they are not made twice.
#[test]
fn a_settlement_under_way_is_made_once() {
    for on_failure in ["local", "allow", "deny"] {
        let redis = RedisServer::start();
        let (server, release) = server();
        let proxy = start(&redis, &server, on_failure);
        let mut clients = [("less", 7), ("more", 250)].map(|sent| open(&proxy, &server, sent));
        redis.pause();
        for _ in &clients {
            release.send(()).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read().status(), 200, "{on_failure}");
        }
        redis.resume();
        until_paid(&proxy);
        eventually("both are settled", || {
            let less = own(&proxy, "less");
            // A refund that was not sent is dropped.
            own(&proxy, "more") == (CAPACITY - 250, 0)
                && [(CAPACITY - 7, 0), (CAPACITY - RESERVE, 0)].contains(&less)
        });
    }
}

/// Redis loses what was reserved: extra units are charged after its restart, and nothing is given back.
#[test]
fn redis_is_killed_in_the_middle_of_responses() {
    for on_failure in ["local", "allow", "deny"] {
        let mut redis = RedisServer::start();
        let (server, release) = server();
        let proxy = start(&redis, &server, on_failure);
        let mut clients = [("less", 7), ("more", 250)].map(|sent| open(&proxy, &server, sent));
        redis.kill();
        until_open(&proxy);
        for _ in &clients {
            release.send(()).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read().status(), 200, "{on_failure}");
        }
        // In flight while Redis comes back.
        let mut later = None;
        if on_failure != "deny" {
            later = Some(open(&proxy, &server, ("later", 40)));
        }
        redis.restart();
        until_paid(&proxy);
        until_charged(&proxy, "less", 0);
        until_charged(&proxy, "more", 250 - RESERVE);
        if let Some(mut client) = later {
            release.send(()).unwrap();
            assert_eq!(client.read().status(), 200);
            until_paid(&proxy);
            until_charged(&proxy, "later", if on_failure == "local" { 40 } else { 0 });
        }
    }
}

/// What a killed proxy has reserved stays charged: its clients have used no more, and the key waits no longer than its limit says.
#[test]
fn a_proxy_is_killed_with_a_hundred_streams() {
    let redis = RedisServer::start();
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nfive!");
            let _ = caller.read_to_close();
        }
    });
    let limit = "cost = { reserve = 10, settle = \"response_bytes\" }";
    let config = config(limit, &server.url());
    let [mut killed, other] = [(); 2].map(|()| Tidegate::start_with(&redis, &config));
    let mut clients: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::connect(killed.addr());
            client.send("GET /stream HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n");
            client
        })
        .collect();
    let mut received = 0;
    for client in &mut clients {
        assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
        received += client.take(5).unwrap().len() as u64;
    }
    assert_eq!(get(other.addr(), "/stream", &["X-Key: k"]).status(), 429);
    killed.signal("KILL");
    killed.wait();
    assert!(received <= CAPACITY, "{received}");
    assert_eq!(own(&other, "k"), (0, 0));
    let denied = get(other.addr(), "/stream", &["X-Key: k"]);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!(denied.status() == 429 && wait <= 86_400, "{wait}");
    // No other key is affected.
    assert_eq!(own(&other, "another"), (CAPACITY, 0));
    let stored = redis.keys();
    for key in &stored {
        let left: i64 = redis.cli(&["pttl", key]).parse().unwrap();
        assert!((0..=2 * 86_400_000).contains(&left), "{key} stays for {left} ms");
    }
}
