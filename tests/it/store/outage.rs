//! What a proxy admits while Redis is away, and what it pays when Redis is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::limit::{Charge, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::Target;
use tidegate::store::{Redis, RedisSpec, StoreError};
use tidegate::time::Micros;

use crate::support::{Client, PATIENCE, RedisServer, Tidegate, Upstream, eventually, get};

/// A limit of 20 units of each algorithm, none of which come back while a test runs, on a route of its own.
const ALGORITHMS: [(&str, &str); 7] = [
    ("bucket", "rate = \"1/day\"\nburst = 20"),
    ("intervals", "rate = \"20/day\"\nrefill = \"interval\""),
    ("gcra", "algorithm = \"gcra\"\nrate = \"1/day\"\nburst = 19"),
    ("calendar", "algorithm = \"fixed_window\"\nrate = \"20/year\""),
    ("first", "algorithm = \"fixed_window\"\nrate = \"20/day\"\nalign = \"first_request\""),
    ("log", "algorithm = \"sliding_log\"\nrate = \"20/day\""),
    ("parts", "algorithm = \"sliding_window\"\nrate = \"20/365d\""),
];

fn config(redis: &RedisServer, instances: u64, limits: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nworkers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [store]\nurl = \"{}\"\ntimeout = \"5s\"\ninstances = {instances}\n{limits}",
        redis.url()
    )
}

/// The limits and routes of [`ALGORITHMS`].
fn routes() -> String {
    let of = |(name, numbers): &(&str, &str)| {
        format!(
            "[limits.{name}]\n{numbers}\nkey = \"header:x-key\"\n\
             [[routes]]\npath = \"/{name}\"\nlimits = [\"{name}\"]\nrespond = {{ status = 200 }}\n"
        )
    };
    ALGORITHMS.iter().map(of).collect()
}

/// The value of a metric.
fn metric(proxy: &Tidegate, name: &str) -> u64 {
    let metrics = get(proxy.admin(), "/metrics", &[]);
    let line = metrics.text().lines().find(|line| line.starts_with(&format!("{name} "))).map(str::to_owned);
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

fn wait_away(proxy: &Tidegate) {
    eventually("both workers have noticed", || metric(proxy, "tidegate_store_breakers_open") == 2);
}

/// Waits until Redis is asked again, and nothing is owed to it.
fn wait_paid(proxy: &Tidegate) {
    eventually("both workers ask Redis again", || metric(proxy, "tidegate_store_breakers_open") == 0);
    eventually("all is paid", || metric(proxy, "tidegate_owed_keys") == 0);
}

/// How many of so many requests pass.
fn passing(proxy: &Tidegate, name: &str, key: &str, requests: u64) -> u64 {
    let mut client = Client::connect(proxy.addr());
    let header = format!("X-Key: {key}");
    let ask = |_: &u64| match client.get(&format!("/{name}"), &[&header]).status() {
        200 => true,
        429 => false,
        status => panic!("{status} for {name}"),
    };
    u64::try_from((0..requests).filter(ask).count()).unwrap()
}

/// One proxy: what it knew of a key holds, and what it admitted is charged. Redis comes back with what it had.
#[test]
fn an_outage_hands_out_nothing() {
    let mut redis = RedisServer::start_as(|_| {
        ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned).to_vec()
    });
    let config = config(&redis, 1, &routes());
    let proxy = Tidegate::start(&config);
    for (name, _) in ALGORITHMS {
        eventually("Redis decides", || passing(&proxy, name, "warm", 1) == 1);
        assert_eq!(passing(&proxy, name, "used", 5), 5, "{name}");
        assert_eq!(passing(&proxy, name, "spent", 21), 20, "{name}");
    }
    redis.kill();
    // The first to notice is a request, or a probe.
    wait_away(&proxy);
    for (name, _) in ALGORITHMS {
        assert_eq!(passing(&proxy, name, "used", 10), 10, "{name}");
        assert_eq!(passing(&proxy, name, "spent", 5), 0, "{name}");
        assert_eq!(passing(&proxy, name, "new", 25), 20, "{name}");
    }
    let owed = metric(&proxy, "tidegate_charge_back_units_total{outcome=\"owed\"}");
    assert_eq!((owed, metric(&proxy, "tidegate_owed_keys")), (7 * 30, 7 * 2));
    redis.restart();
    wait_paid(&proxy);
    assert_eq!(metric(&proxy, "tidegate_charge_back_units_total{outcome=\"paid\"}"), owed);
    // Another proxy sees the same: it is in Redis.
    let other = Tidegate::start(&config);
    eventually("Redis decides", || metric(&other, "tidegate_store_breakers_open") == 0);
    for (name, _) in ALGORITHMS {
        let first = get(other.addr(), &format!("/{name}"), &["X-Key: used"]);
        assert_eq!(first.header("x-ratelimit-remaining"), Some("4"), "{name}");
        assert_eq!(passing(&proxy, name, "used", 9), 4, "{name}");
        assert_eq!(passing(&other, name, "spent", 1), 0, "{name}");
        assert_eq!(passing(&other, name, "new", 1), 0, "{name}");
    }
}

/// Two proxies, each with its share of what was left; Redis comes back without anything.
#[test]
fn each_of_two_proxies_has_its_share_and_pays_for_it() {
    let mut redis = RedisServer::start();
    let config = config(&redis, 2, &routes());
    let proxies = [Tidegate::start(&config), Tidegate::start(&config)];
    for proxy in &proxies {
        for (name, _) in ALGORITHMS {
            eventually("Redis decides", || passing(proxy, name, "warm", 1) == 1);
            assert_eq!(passing(proxy, name, "spent", 10), 10, "{name}");
        }
    }
    // The first one has last heard of the key when half of it was left.
    redis.kill();
    proxies.iter().for_each(wait_away);
    for (name, _) in ALGORITHMS {
        let passing =
            |key: &str, requests: u64| proxies.each_ref().map(|proxy| passing(proxy, name, key, requests));
        assert_eq!(passing("spent", 9), [5, 0], "{name}");
        assert_eq!(passing("new", 15), [10, 10], "{name}");
    }
    redis.restart();
    proxies.iter().for_each(wait_paid);
    for (name, _) in ALGORITHMS {
        assert_eq!(passing(&proxies[0], name, "new", 1), 0, "{name}");
        // All that Redis has heard of is what was admitted without it.
        let left = get(proxies[1].addr(), &format!("/{name}"), &["X-Key: spent"]);
        assert_eq!(left.header("x-ratelimit-remaining"), Some("14"), "{name}");
    }
}

/// Asks for these keys all the time, over two connections to each proxy, until `disturb` has returned; how many requests
/// passed for each key.
fn under_load(proxies: &[Tidegate; 2], keys: &[String], disturb: impl FnOnce()) -> Vec<u64> {
    let is_over = AtomicBool::new(false);
    let ask = |proxy: &Tidegate| {
        let mut client = Client::connect(proxy.addr());
        let mut passed = vec![0; keys.len()];
        while !is_over.load(Ordering::Relaxed) {
            let key = fastrand::usize(..keys.len());
            passed[key] += u64::from(client.get("/", &[&format!("X-Key: {}", keys[key])]).status() == 200);
            // The load is steady, whatever the time that a response takes.
            std::thread::sleep(Duration::from_millis(3));
        }
        passed
    };
    std::thread::scope(|scope| {
        let all = proxies.iter().chain(proxies);
        let clients: Vec<_> = all.map(|proxy| scope.spawn(move || ask(proxy))).collect();
        disturb();
        is_over.store(true, Ordering::Relaxed);
        let passed = clients.into_iter().map(|client| client.join().unwrap());
        passed.reduce(|sum, more| sum.iter().zip(more).map(|(one, two)| one + two).collect()).unwrap()
    })
}

/// Two proxies notice at different times that Redis is away, and that it is back. What both admitted meanwhile and
/// afterwards is no more than the limit; the keys are in use all the time, and used up when all is over.
#[test]
fn two_proxies_admit_the_limit_through_outages() {
    let mut redis = RedisServer::start_as(|_| {
        ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned).to_vec()
    });
    let limits = "[limits.a]\nrate = \"50/day\"\nkey = \"header:x-key\"\n\
                  [[routes]]\npath = \"/\"\nlimits = [\"a\"]\nrespond = { status = 200 }\n";
    let config = config(&redis, 2, limits).replace("timeout = \"5s\"", "timeout = \"50ms\"");
    let proxies = [Tidegate::start(&config), Tidegate::start(&config)];
    proxies.iter().for_each(wait_paid);
    let unanswered = || -> u64 {
        let of =
            |proxy, outcome| metric(proxy, &format!("tidegate_store_calls_total{{outcome=\"{outcome}\"}}"));
        proxies.iter().flat_map(|proxy| ["lost", "deadline"].map(|outcome| of(proxy, outcome))).sum()
    };
    for cycle in 0..3 {
        let keys: Vec<String> = (0..10).map(|key| format!("{cycle}-{key}")).collect();
        let before = unanswered();
        let is_stop = cycle != 1;
        let passed = under_load(&proxies, &keys, || {
            if is_stop {
                redis.pause();
            } else {
                redis.kill();
            }
            proxies.iter().for_each(wait_away);
            // Not long enough to use up the shares.
            std::thread::sleep(Duration::from_millis(100));
            if is_stop {
                redis.resume();
            } else {
                redis.restart();
            }
            proxies.iter().for_each(wait_paid);
            eventually("all keys are used up", || {
                let spent =
                    |key: &String| get(proxies[0].addr(), "/", &[&format!("X-Key: {key}")]).status() == 429;
                keys.iter().all(spent)
            });
        });
        // A Redis that was stopped gets everything that was sent to it in the end; one that was killed does not.
        let most = if is_stop { 50 } else { 50 + unanswered() - before };
        assert!(passed.iter().all(|count| *count <= most), "{passed:?}, at most {most}");
    }
}

/// A store at a URL that gives up after `timeout`.
fn store(redis: &RedisServer, timeout: Duration) -> Redis {
    let target = Target::parse(&redis.url()).unwrap();
    Redis::connect(&RedisSpec { target, timeout, prefix: "t".into(), client_clock: false })
}

/// A request whose deadline passes while it waits for the calls before it was not sent, and is not taken for one that may
/// have been charged.
#[test]
fn a_request_that_was_not_sent_is_known_not_to_be_charged() {
    let redis = RedisServer::start();
    let day = Rate::new(1, Micros(86_400_000_000)).unwrap();
    let policies = Arc::<[Policy]>::from(vec![Policy::new("a", Quota::token_bucket(day, 10).unwrap())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let redis_store = store(&redis, Duration::from_millis(250));
        redis_store.wait_connected(PATIENCE).await.unwrap();
        let charges = |tag: u8, count: u16| -> Vec<Charge> {
            (0..count)
                .map(|number| {
                    let [high, low] = number.to_be_bytes();
                    let mut key = [tag; 16];
                    (key[1], key[2]) = (high, low);
                    Charge::take(PolicyId(0), Key(key), 1)
                })
                .collect()
        };
        let (first, second, third) = (charges(1, 1), charges(2, 300), charges(3, 300));
        // The script is known, so that each call is one command.
        let _ = redis_store.take(&policies, &charges(4, 1)).await.unwrap();
        redis.pause();
        let later = async |charges: &[Charge]| {
            // While the first call is under way.
            tokio::time::sleep(Duration::from_millis(20)).await;
            redis_store.take(&policies, charges).await
        };
        let (first_said, second_said, third_said) =
            tokio::join!(redis_store.take(&policies, &first), later(&second), later(&third));
        redis.resume();
        assert!(matches!(first_said, Err(StoreError::Deadline)), "{first_said:?}");
        assert!(matches!(second_said, Err(StoreError::Deadline)), "{second_said:?}");
        // One call does not hold both.
        assert!(matches!(third_said, Err(StoreError::Unsent)), "{third_said:?}");
        assert!(third_said.unwrap_err().is_uncharged());
        let is_charged = |charge: &Charge| {
            let tag = format!("{{{}}}", charge.key);
            redis.keys().iter().any(|key| key.contains(&tag))
        };
        eventually("Redis has run what was sent", || is_charged(&second[0]));
        assert!(!is_charged(&third[0]));
    });
}

/// Another `[store]` in the middle of an outage hands out nothing either.
#[test]
fn what_is_owed_outlives_another_store() {
    let mut redis = RedisServer::start();
    let config = config(&redis, 1, &routes());
    let proxy = Tidegate::start(&config);
    eventually("Redis decides", || metric(&proxy, "tidegate_store_breakers_open") == 0);
    redis.kill();
    wait_away(&proxy);
    assert_eq!(passing(&proxy, "bucket", "new", 25), 20);
    proxy.reload(&config.replace("instances = 1", "instances = 1\nclock = \"client\""));
    assert_eq!(metric(&proxy, "tidegate_owed_keys"), 1);
    redis.restart();
    wait_paid(&proxy);
    assert_eq!(passing(&proxy, "bucket", "new", 1), 0);
}

/// A server that begins each answer at once, and ends it with the test.
fn held_back() -> (Upstream, Sender<()>) {
    let (release, wait) = channel();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe");
            if wait.lock().unwrap().recv().is_err() || caller.try_send("ld").is_err() {
                return;
            }
        }
    });
    (upstream, release)
}

/// A client whose request is in flight, if it is admitted.
fn in_flight(proxy: &Tidegate) -> Option<Client> {
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    (client.read_head().unwrap().unwrap().status() == 200).then_some(client)
}

/// Slots that Redis has count while it is away, and those that were taken meanwhile count when it is back.
#[test]
fn slots_are_held_through_an_outage() {
    let mut redis = RedisServer::start();
    let (upstream, release) = held_back();
    let limits = format!(
        "[limits.flight]\nalgorithm = \"concurrency\"\nmax_in_flight = 2\nkey = \"global\"\n\
         [[routes]]\npath = \"/\"\nlimits = [\"flight\"]\nupstream = \"{}\"",
        upstream.url()
    );
    let config = config(&redis, 1, &limits);
    let proxy = Tidegate::start(&config);
    eventually("Redis decides", || metric(&proxy, "tidegate_store_breakers_open") == 0);
    let _first = in_flight(&proxy).expect("there are two slots");
    redis.kill();
    wait_away(&proxy);
    let second = in_flight(&proxy).expect("there is one more");
    assert!(in_flight(&proxy).is_none());
    redis.restart();
    wait_paid(&proxy);
    let other = Tidegate::start(&config);
    eventually("Redis decides", || metric(&other, "tidegate_store_breakers_open") == 0);
    assert!(in_flight(&other).is_none());
    // A slot comes back when the server has finished, also if the client disconnects before.
    drop(second);
    assert!(in_flight(&other).is_none());
    for _ in 0..2 {
        release.send(()).unwrap();
    }
    eventually("it has come back", || in_flight(&other).is_some());
}
