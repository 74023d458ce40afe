//! Redis is absent, hangs or returns, and the circuit breaker.

use std::net::SocketAddr;
use std::time::Duration;

use crate::limits::setup::routes;
use crate::support::{Client, RedisServer, Tidegate, eventually, get, scaled, timed};

/// A limit of three requests an hour for each value of `on_store_failure`.
const POLICIES: &str = r#"
[limits.local]
rate = "3/hour"
[limits.allow]
rate = "3/hour"
on_store_failure = "allow"
[limits.deny]
rate = "3/hour"
on_store_failure = "deny"
"#;

/// A file with these limits, each on a route of its own.
fn policies() -> String {
    let limited: [(&str, &[&str]); 5] = [
        ("/local", &["local"]),
        ("/allow", &["allow"]),
        ("/deny", &["deny"]),
        ("/both", &["allow", "local"]),
        ("/free", &[]),
    ];
    format!("{POLICIES}{}", routes(&limited))
}

/// The status of a request, and the remaining units.
fn status_and_remaining(proxy: &Tidegate, path: &str) -> (u16, Option<u64>) {
    let response = get(proxy.addr(), path, &[]);
    (response.status(), response.header("x-ratelimit-remaining").map(|units| units.parse().unwrap()))
}

/// Asserts what each policy does without the store; `spent` units of the local count are spent already.
#[track_caller]
fn assert_without_store(proxy: &Tidegate, spent: u64) {
    for remaining in (0..3 - spent).rev() {
        assert_eq!(status_and_remaining(proxy, "/local"), (200, Some(remaining)));
    }
    assert_eq!(status_and_remaining(proxy, "/local"), (429, Some(0)));
    for _ in 0..5 {
        assert_eq!(status_and_remaining(proxy, "/allow"), (200, None));
        assert_eq!(status_and_remaining(proxy, "/deny"), (503, None));
        assert_eq!(status_and_remaining(proxy, "/free"), (200, None));
    }
    assert_eq!(status_and_remaining(proxy, "/both"), (429, Some(0)));
}

#[test]
fn a_proxy_starts_without_redis_and_uses_it_later() {
    let mut redis = RedisServer::absent();
    let store = format!("[store]\nurl = \"{}\"\ntimeout = \"5s\"\n", redis.url());
    let proxy = Tidegate::start(&format!("{}\n{store}", policies()));
    proxy.wait_log("the store is unavailable");
    assert_without_store(&proxy, 0);
    proxy.wait_log(&format!("limits are counted in {}", redis.url()));
    let line =
        proxy.wait_log("the store is unavailable: not connected: Connection refused; each limit follows ");
    assert!(line.contains("WARN"), "{line}");
    redis.restart();
    eventually("Redis decides", || status_and_remaining(&proxy, "/deny").0 == 200);
    proxy.wait_log("the store is available again");
    // The units that were admitted without Redis have been charged.
    assert_eq!(status_and_remaining(&proxy, "/local"), (429, Some(0)));
    assert_eq!(status_and_remaining(&proxy, "/allow"), (200, Some(2)));
    assert_eq!(redis.keys().iter().filter(|key| key.contains(":local:")).count(), 1);
}

#[test]
fn a_proxy_serves_requests_while_redis_is_down() {
    let mut redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, &policies());
    for path in ["/local", "/allow", "/deny"] {
        assert_eq!(status_and_remaining(&proxy, path), (200, Some(2)), "{path}");
    }
    redis.kill();
    assert_without_store(&proxy, 1);
    proxy.wait_log("the store is unavailable");
    assert_without_store(&proxy, 3);
    assert_eq!(proxy.logged("the store is unavailable"), 1, "one line for each change: {:?}", proxy.lines());
    redis.restart();
    proxy.wait_ready();
    for path in ["/allow", "/deny"] {
        assert_eq!(status_and_remaining(&proxy, path), (200, Some(2)), "{path}");
    }
    // Redis has lost its data, and the units admitted without it have been charged; except for the first, if its call was lost
    // with the connection.
    let allowed = (0..3).filter(|_| status_and_remaining(&proxy, "/local").0 == 200).count();
    assert!((1..=2).contains(&allowed), "{allowed}");
    redis.kill();
    assert_without_store(&proxy, 3);
}

#[test]
fn a_hanging_redis_delays_requests_by_the_deadline_at_most() {
    const DEADLINE: Duration = Duration::from_millis(100);
    // The delay that a busy machine may add.
    const TOLERANCE: Duration = Duration::from_millis(400);
    let redis = RedisServer::start();
    let proxy = Tidegate::builder(&policies()).store(&redis, "timeout = \"100ms\"").start();
    redis.pause();
    let mut times = Vec::new();
    for round in 0..8 {
        for (path, expected) in
            [("/allow", 200), ("/deny", 503), ("/local", if round < 3 { 200 } else { 429 })]
        {
            let ((status, _), time) = timed(|| status_and_remaining(&proxy, path));
            assert_eq!(status, expected, "{path} in round {round}");
            assert!(time < DEADLINE + scaled(TOLERANCE), "{path} took {time:?}");
            times.push(time);
        }
    }
    // A tenth is left for the work after the deadline.
    assert!(times[0] >= DEADLINE * 9 / 10, "the first request waits for the deadline: {times:?}");
    redis.resume();
    proxy.wait_ready();
    // Calls of the outage may be charged now, so the request may be allowed or denied; but Redis decides again.
    eventually("Redis decides again", || status_and_remaining(&proxy, "/deny").0 != 503);
}

#[test]
fn proxies_with_one_redis_share_limits_exactly() {
    const THREADS: usize = 8;
    const REQUESTS: usize = 100;
    let limits = r#"
        workers = 2
        [limits.shared]
        rate = "1/hour"
        burst = 200
        key = "route"
        on_store_failure = "deny"
        [limits.spaced]
        algorithm = "gcra"
        rate = "1/hour"
        burst = 149
        key = "route"
        on_store_failure = "deny"
    "#;
    let limited: [(&str, &[&str]); 3] =
        [("/bucket", &["shared"]), ("/spaced", &["spaced"]), ("/both", &["spaced", "shared"])];
    let config = format!("{limits}{}", routes(&limited));
    let redis = RedisServer::start();
    let proxies = [Tidegate::start_with(&redis, &config), Tidegate::start_with(&redis, &config)];
    for proxy in &proxies {
        // Connections go to workers at random: after so many of them, each worker is ready.
        for _ in 0..30 {
            proxy.wait_ready();
        }
    }
    for (path, admitted) in [("/bucket", 200), ("/spaced", 150), ("/both", 150)] {
        let send_all = |address: SocketAddr| {
            let mut client = Client::connect(address);
            let statuses = (0..REQUESTS).map(|_| client.get(path, &[]).status());
            statuses.fold((0, 0, 0), |(allowed, denied, other), status| match status {
                200 => (allowed + 1, denied, other),
                429 => (allowed, denied + 1, other),
                _ => (allowed, denied, other + 1),
            })
        };
        let counts = std::thread::scope(|scope| {
            let addresses = proxies.iter().flat_map(|proxy| [proxy.addr(); THREADS]);
            let threads: Vec<_> = addresses.map(|address| scope.spawn(move || send_all(address))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<(usize, usize, usize)>>()
        });
        let sum = counts.iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        assert_eq!(sum, (admitted, 2 * THREADS * REQUESTS - admitted, 0), "{path}");
    }
}

/// While Redis hangs, some requests wait for the deadline; then the breaker opens, and none waits. When Redis replies again,
/// limits are exact again soon.
#[test]
fn the_breaker_opens_and_closes() {
    let redis = RedisServer::start();
    let proxy = Tidegate::builder(
        r#"
        listen = "127.0.0.1:0"
        [admin]
        listen = "127.0.0.1:0"
        [limits.strict]
        rate = "1/hour"
        burst = 5
        key = "header:x-key"
        on_store_failure = "deny"
        [[routes]]
        path = "/*"
        limits = ["strict"]
        respond = { status = 200 }
        "#,
    )
    .store(&redis, "timeout = \"50ms\"")
    .start();
    let send = |key: &str| get(proxy.addr(), "/", &[&format!("X-Key: {key}")]);
    redis.pause();
    let denied = send("a");
    assert_eq!((denied.status(), denied.header("retry-after")), (503, Some("1")));
    for _ in 0..12 {
        assert_eq!(send("a").status(), 503);
    }
    proxy.wait_log("the store is unavailable");
    let missed = || proxy.metric("tidegate_store_requests_total{outcome=\"timeout\"}");
    let before = missed();
    (0..100).for_each(|_| assert_eq!(send("a").status(), 503));
    assert!(missed() - before < 20, "{} of 100 requests waited for Redis", missed() - before);
    redis.resume();
    eventually("Redis decides again", || send("b").status() == 200);
    proxy.wait_log("the store is available again");
    // On a busy machine, single calls may still miss the deadline; then another key is tried.
    eventually("limits are exact again", || {
        let key = format!("c{}", fastrand::u64(..));
        let statuses = [(); 10].map(|()| send(&key).status());
        let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
        assert!(count(200) <= 5, "{statuses:?}");
        (count(200), count(429)) == (5, 5)
    });
}
