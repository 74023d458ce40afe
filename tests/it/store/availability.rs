//! A Redis that is not there, hangs or comes back, and the circuit breaker.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Client, RedisServer, Tidegate, eventually, get, timed};

/// A route for each policy, all of three requests an hour.
const POLICIES: &str = r#"
[limits.local]
rate = "3/hour"
[limits.allow]
rate = "3/hour"
on_store_failure = "allow"
[limits.deny]
rate = "3/hour"
on_store_failure = "deny"
[[routes]]
path = "/local"
limits = ["local"]
respond = { status = 200 }
[[routes]]
path = "/allow"
limits = ["allow"]
respond = { status = 200 }
[[routes]]
path = "/deny"
limits = ["deny"]
respond = { status = 200 }
[[routes]]
path = "/both"
limits = ["allow", "local"]
respond = { status = 200 }
[[routes]]
path = "/free"
respond = { status = 200 }
"#;

/// The status of a request, and what it says is left.
fn ask(proxy: &Tidegate, path: &str) -> (u16, Option<u64>) {
    let answer = get(proxy.addr(), path, &[]);
    (answer.status(), answer.header("x-ratelimit-remaining").map(|left| left.parse().unwrap()))
}

/// What each policy does while there is no store, with a local count of which `spent` are spent.
#[track_caller]
fn assert_alone(proxy: &Tidegate, spent: u64) {
    for left in (0..3 - spent).rev() {
        assert_eq!(ask(proxy, "/local"), (200, Some(left)));
    }
    assert_eq!(ask(proxy, "/local"), (429, Some(0)));
    for _ in 0..5 {
        assert_eq!(ask(proxy, "/allow"), (200, None));
        assert_eq!(ask(proxy, "/deny"), (503, None));
        assert_eq!(ask(proxy, "/free"), (200, None));
    }
    assert_eq!(ask(proxy, "/both"), (429, Some(0)));
}

#[test]
fn it_starts_without_redis_and_takes_it_up() {
    let mut redis = RedisServer::absent();
    let proxy = Tidegate::start(&format!("{POLICIES}\n[store]\nurl = \"{}\"\n", redis.url()));
    assert_alone(&proxy, 0);
    proxy.wait_log(&format!("limits are counted in {}", redis.url()));
    let line =
        proxy.wait_log("the store is unavailable: not connected: Connection refused; each limit follows ");
    assert!(line.contains("WARN"), "{line}");
    redis.restart();
    eventually("the store is taken up", || ask(&proxy, "/deny").0 == 200);
    proxy.wait_log("the store is available again");
    // A Redis that has just started is told of what was admitted without it.
    assert_eq!(ask(&proxy, "/local"), (429, Some(0)));
    assert_eq!(ask(&proxy, "/allow"), (200, Some(2)));
    assert_eq!(redis.keys().iter().filter(|key| key.contains(":local:")).count(), 1);
}

#[test]
fn it_goes_on_without_redis_and_takes_it_up_again() {
    let mut redis = RedisServer::start();
    let proxy = Tidegate::builder(POLICIES).store(&redis, "").start();
    for path in ["/local", "/allow", "/deny"] {
        assert_eq!(ask(&proxy, path), (200, Some(2)));
    }
    redis.kill();
    assert_alone(&proxy, 1);
    let away = || proxy.lines().iter().filter(|line| line.contains("the store is unavailable")).count();
    eventually("it is said", || away() == 1);
    assert_alone(&proxy, 3);
    assert_eq!(away(), 1, "it is said once a change: {:?}", proxy.lines());
    redis.restart();
    proxy.wait_ready();
    for path in ["/allow", "/deny"] {
        assert_eq!(ask(&proxy, path), (200, Some(2)));
    }
    // Redis has lost what it had, and is told of what was admitted without it; but for the first, if that was lost with
    // the connection.
    let left = (0..3).filter(|_| ask(&proxy, "/local").0 == 200).count();
    assert!((1..=2).contains(&left), "{left}");
    redis.kill();
    assert_alone(&proxy, 3);
}

#[test]
fn a_redis_that_hangs_costs_no_more_than_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(100);
    // What a busy machine may add.
    const TOLERANCE: Duration = Duration::from_millis(400);
    let redis = RedisServer::start();
    let proxy = Tidegate::builder(POLICIES).store(&redis, "timeout = \"100ms\"").start();
    assert_eq!(ask(&proxy, "/deny").0, 200);
    redis.pause();
    let mut asked = Vec::new();
    for round in 0..8 {
        for (path, expected) in
            [("/allow", 200), ("/deny", 503), ("/local", if round < 3 { 200 } else { 429 })]
        {
            let ((status, _), time) = timed(|| ask(&proxy, path));
            assert_eq!(status, expected, "{path} in round {round}");
            assert!(time < DEADLINE + TOLERANCE, "{path} took {time:?}");
            asked.push(time);
        }
    }
    // A moment is left for what has to be done after it.
    assert!(asked[0] >= DEADLINE * 9 / 10, "the first one has to wait: {asked:?}");
    redis.resume();
    proxy.wait_ready();
    // How much of what it was asked meanwhile is charged now, nobody can know; but it is asked again.
    assert_ne!(ask(&proxy, "/deny").0, 503);
}

#[test]
fn proxies_that_share_a_redis_share_their_limits_exactly() {
    const THREADS: usize = 8;
    const REQUESTS: usize = 100;
    let config = r#"
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
        [[routes]]
        path = "/bucket"
        limits = ["shared"]
        respond = { status = 200 }
        [[routes]]
        path = "/spaced"
        limits = ["spaced"]
        respond = { status = 200 }
        [[routes]]
        path = "/both"
        limits = ["spaced", "shared"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxies = [Tidegate::start_with(&redis, config), Tidegate::start_with(&redis, config)];
    for proxy in &proxies {
        // Connections go to workers at random: after so many of them each worker has shown that it is ready.
        for _ in 0..30 {
            proxy.wait_ready();
        }
    }
    for (path, admitted) in [("/bucket", 200), ("/spaced", 150), ("/both", 150)] {
        let ask_all = |address: SocketAddr| {
            let mut client = Client::connect(address);
            let statuses = (0..REQUESTS).map(|_| client.get(path, &[]).status());
            statuses.fold((0, 0, 0), |(passed, refused, other), status| match status {
                200 => (passed + 1, refused, other),
                429 => (passed, refused + 1, other),
                _ => (passed, refused, other + 1),
            })
        };
        let counts = std::thread::scope(|scope| {
            let addresses = proxies.iter().flat_map(|proxy| [proxy.addr(); THREADS]);
            let threads: Vec<_> = addresses.map(|address| scope.spawn(move || ask_all(address))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<(usize, usize, usize)>>()
        });
        let sum = counts.iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        assert_eq!(sum, (admitted, 2 * THREADS * REQUESTS - admitted, 0), "{path}");
    }
}

/// A Redis that hangs keeps some requests waiting for the deadline, and then none: the breaker is open. When it
/// answers again, limits are exact again soon.
#[test]
fn the_breaker_opens_and_closes() {
    let redis = RedisServer::start();
    let proxy = Tidegate::builder(
        r#"
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
    let ask = |key: &str| get(proxy.addr(), "/", &[&format!("X-Key: {key}")]);
    assert_eq!(ask("a").status(), 200);
    redis.pause();
    let refused = ask("a");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    for _ in 0..12 {
        assert_eq!(ask("a").status(), 503);
    }
    proxy.wait_log("the store is unavailable");
    // A hundred that each waited for the deadline would take five seconds.
    let ((), time) = timed(|| (0..100).for_each(|_| assert_eq!(ask("a").status(), 503)));
    assert!(time < Duration::from_secs(3), "{time:?}");
    redis.resume();
    eventually("it is asked again", || ask("b").status() == 200);
    proxy.wait_log("the store is available again");
    let passed = (0..10).filter(|_| ask("c").status() == 200).count();
    assert_eq!(passed, 5);
}
