//! Limits whose work is not over when a request is admitted: slots, queues, and charges by status; and those that
//! only watch.

mod disconnect;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get};

/// Runs a test over both stores; a Redis has nothing in it.
fn over_both_stores(config: &str, test: impl Fn(&Tidegate)) {
    test(&Tidegate::start(config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, config));
}

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
fn a_client_that_goes_away_gives_its_slot_back_when_the_server_has_finished() {
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
fn slots_of_a_killed_proxy_come_back_and_those_of_a_living_one_stay() {
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
fn a_slot_that_was_taken_without_the_store_is_renewed_and_then_put_into_it() {
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

#[test]
fn what_waits_in_a_queue_goes_on_when_it_is_its_turn() {
    let config = r#"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "20/s"
        queue = 4
        key = "global"
        [[routes]]
        path = "/*"
        limits = ["even"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let began = Instant::now();
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let mut client = Client::connect(proxy.addr());
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        // All of them are answered, the last after four turns of 50 ms: never sooner, whatever the machine does.
        for mut client in clients {
            assert_eq!(client.read().status(), 200);
        }
        assert!(began.elapsed() >= Duration::from_millis(199));
    });
}

#[test]
fn who_hangs_up_in_the_queue_never_reaches_the_server() {
    let upstream = Upstream::echo();
    let config = format!(
        r#"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "2/s"
        queue = 3
        key = "global"
        [[routes]]
        path = "/*"
        limits = ["even"]
        upstream = "{}"
        "#,
        upstream.url()
    );
    let proxy = Tidegate::start(&config);
    assert_eq!(get(proxy.addr(), "/first", &[]).status(), 200);
    let mut leaving = Client::connect(proxy.addr());
    leaving.send("GET /leaving HTTP/1.1\r\nHost: a\r\n\r\n");
    // Time for the proxy to read it; its turn comes later. Were it not read yet, it would not go on either.
    std::thread::sleep(Duration::from_millis(100));
    drop(leaving);
    // So does one that has sent a body, which is not read yet.
    let mut leaving = Client::connect(proxy.addr());
    leaving.send("POST /leaving HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    std::thread::sleep(Duration::from_millis(100));
    drop(leaving);
    // The turn of this one comes after that.
    assert_eq!(get(proxy.addr(), "/last", &[]).status(), 200);
    let paths: Vec<String> = upstream.requests().iter().map(|request| request.start.clone()).collect();
    assert_eq!(paths, ["GET /first HTTP/1.1", "GET /last HTTP/1.1"]);
}

#[test]
fn failed_logins_are_charged_and_others_are_not() {
    let upstream = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let status = if request.start.starts_with("GET /wrong") { "401 Unauthorized" } else { "200 OK" };
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    });
    let config = format!(
        r#"
        [limits.logins]
        algorithm = "fixed_window"
        align = "first_request"
        rate = "3/hour"
        charge_on = [401]
        [[routes]]
        path = "/*"
        limits = ["logins"]
        upstream = "{}"
        "#,
        upstream.url()
    );
    over_both_stores(&config, |proxy| {
        let ask = |path: &str| {
            let answer = get(proxy.addr(), path, &[]);
            (answer.status(), answer.header("x-ratelimit-remaining").unwrap().to_owned())
        };
        for _ in 0..5 {
            assert_eq!(ask("/right"), (200, "3".to_owned()));
        }
        for left in ["2", "1", "0"] {
            assert_eq!(ask("/wrong"), (401, left.to_owned()));
        }
        let before = upstream.requests().len();
        assert_eq!(ask("/wrong"), (429, "0".to_owned()));
        assert_eq!(ask("/right"), (429, "0".to_owned()));
        assert_eq!(upstream.requests().len(), before);
    });
}

#[test]
fn a_limit_that_watches_neither_denies_nor_shows() {
    let config = r#"
        [limits.strict]
        rate = "1/hour"
        mode = "shadow"
        [limits.real]
        rate = "5/hour"
        [[routes]]
        path = "/both"
        limits = ["strict", "real"]
        respond = { status = 200 }
        [[routes]]
        path = "/alone"
        limits = ["strict"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        for left in ["4", "3", "2", "1", "0"] {
            let answer = get(proxy.addr(), "/both", &[]);
            assert_eq!((answer.status(), answer.header("x-ratelimit-remaining")), (200, Some(left)));
            assert_eq!(answer.header("x-ratelimit-limit"), Some("5"));
        }
        assert_eq!(get(proxy.addr(), "/both", &[]).status(), 429);
        let alone = get(proxy.addr(), "/alone", &[]);
        assert_eq!((alone.status(), alone.header("x-ratelimit-limit")), (200, None));
    });
}

#[test]
fn who_is_refused_too_often_is_banned() {
    let config = r#"
        [limits.strict]
        rate = "10/s"
        burst = 1
        key = "header:x-key"
        ban = { after = 3, within = "1h", for = "1h" }
        [[routes]]
        path = "/*"
        limits = ["strict"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let mut client = Client::connect(proxy.addr());
        eventually("it is banned", || {
            let answer = client.get("/", &["X-Key: a"]);
            let wait: u64 = answer.header("retry-after").map_or(0, |wait| wait.parse().unwrap());
            wait > 3_000
        });
        let banned = client.get("/", &["X-Key: a"]);
        assert_eq!(banned.status(), 429);
        assert!(banned.text().contains("bans"), "{}", banned.text());
        assert_eq!(client.get("/", &["X-Key: b"]).status(), 200);
    });
}
