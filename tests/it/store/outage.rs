//! What a proxy admits while Redis is away, and what it pays when Redis is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tidegate::limit::{Charge, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::RedisTarget;
use tidegate::store::{Redis, RedisSpec, StoreError};
use tidegate::time::Micros;

use crate::limits::setup::{held_back, in_flight, wait_in_flight};
use crate::support::{Client, RedisServer, Tidegate, eventually, eventually_async, get, patience};

/// A limit of 20 units of each algorithm, on a route of its own; no units refill while a test runs.
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

fn wait_open(proxy: &Tidegate) {
    eventually("the breakers of both workers are open", || proxy.metric("tidegate_store_breakers_open") == 2);
}

/// Waits until Redis decides.
fn wait_closed(proxy: &Tidegate) {
    eventually("all breakers are closed", || proxy.metric("tidegate_store_breakers_open") == 0);
}

/// Waits until Redis decides and no units are owed to it.
fn wait_paid(proxy: &Tidegate) {
    wait_closed(proxy);
    eventually("all debts are paid", || proxy.metric("tidegate_owed_keys") == 0);
}

/// How many of `requests` are allowed.
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

/// One proxy: it counts on from the last state that it knew, and charges its admissions to Redis afterwards. Redis keeps its
/// data.
#[test]
fn limits_hold_through_an_outage() {
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
    wait_open(&proxy);
    for (name, _) in ALGORITHMS {
        assert_eq!(passing(&proxy, name, "used", 10), 10, "{name}");
        assert_eq!(passing(&proxy, name, "spent", 5), 0, "{name}");
        assert_eq!(passing(&proxy, name, "new", 25), 20, "{name}");
    }
    let owed = proxy.metric("tidegate_charge_back_units_total{outcome=\"owed\"}");
    assert_eq!((owed, proxy.metric("tidegate_owed_keys")), (7 * 30, 7 * 2));
    redis.restart();
    wait_paid(&proxy);
    assert_eq!(proxy.metric("tidegate_charge_back_units_total{outcome=\"paid\"}"), owed);
    // Another proxy reads the same counts from Redis, as soon as its only worker is connected.
    let other = Tidegate::start(&config.replace("workers = 2", "workers = 1"));
    eventually("Redis decides", || {
        let replies = |proxy: &Tidegate| proxy.metric("tidegate_store_requests_total{outcome=\"ok\"}");
        let before = replies(&other);
        passing(&other, ALGORITHMS[0].0, "other", 1) == 1 && replies(&other) > before
    });
    for (name, _) in ALGORITHMS {
        let first = get(other.addr(), &format!("/{name}"), &["X-Key: used"]);
        assert_eq!(first.header("x-ratelimit-remaining"), Some("4"), "{name}");
        assert_eq!(passing(&proxy, name, "used", 9), 4, "{name}");
        assert_eq!(passing(&other, name, "spent", 1), 0, "{name}");
        assert_eq!(passing(&other, name, "new", 1), 0, "{name}");
    }
}

/// Two proxies, each with its share of the remaining units. Redis has lost its data when it is restarted.
#[test]
fn each_of_two_proxies_admits_its_share_and_charges_it_later() {
    let mut redis = RedisServer::start();
    let config = config(&redis, 2, &routes());
    let proxies = [Tidegate::start(&config), Tidegate::start(&config)];
    for proxy in &proxies {
        for (name, _) in ALGORITHMS {
            eventually("Redis decides", || passing(proxy, name, "warm", 1) == 1);
            assert_eq!(passing(proxy, name, "spent", 10), 10, "{name}");
        }
    }
    // The first proxy has last seen the key with half of its units, the second with none.
    redis.kill();
    proxies.iter().for_each(wait_open);
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
        // Redis has only the units that were admitted without it.
        let left = get(proxies[1].addr(), &format!("/{name}"), &["X-Key: spent"]);
        assert_eq!(left.header("x-ratelimit-remaining"), Some("14"), "{name}");
    }
}

/// How often a key is used before the outage begins, and how often until it is noticed at most, so that units are left for it.
const TURNS: [usize; 2] = [4, 30];

/// Four clients that use the same keys through two proxies.
struct Load<'a> {
    proxies: &'a [Tidegate; 2],
    keys: Vec<String>,
    /// How many requests with each key were allowed.
    passed: Vec<AtomicU64>,
    /// How many clients have used each of their keys.
    ready: AtomicUsize,
    /// Whether both proxies have noticed the outage.
    is_noticed: AtomicBool,
}

impl<'a> Load<'a> {
    fn new(proxies: &'a [Tidegate; 2], keys: Vec<String>) -> Self {
        let passed = keys.iter().map(|_| AtomicU64::new(0)).collect();
        Self { proxies, keys, passed, ready: AtomicUsize::new(0), is_noticed: AtomicBool::new(false) }
    }

    /// Sends a request; returns whether it was allowed.
    fn request(&self, client: &mut Client, key: usize) -> bool {
        let is_allowed = client.get("/", &[&format!("X-Key: {}", self.keys[key])]).status() == 200;
        self.passed[key].fetch_add(u64::from(is_allowed), Ordering::Relaxed);
        is_allowed
    }

    /// Sends requests until `disturb` has returned; it is called when both proxies know all keys.
    fn run(&self, disturb: impl FnOnce()) {
        std::thread::scope(|scope| {
            // Dropped also if `disturb` panics.
            let running = Arc::new(());
            for number in 0..4 {
                let running = Arc::downgrade(&running);
                let _ = scope.spawn(move || self.client(number, &|| running.strong_count() > 0));
            }
            eventually("all keys are known", || self.ready.load(Ordering::Relaxed) == 4);
            disturb();
        });
    }

    fn client(&self, number: usize, is_running: &dyn Fn() -> bool) {
        let mut clients = self.proxies.each_ref().map(|proxy| Client::connect(proxy.addr()));
        // A steady load, whose rate does not depend on how fast the responses come.
        let pause = || std::thread::sleep(Duration::from_millis(3));
        // In an outage a proxy also admits its share of the units that it does not know others to have admitted. So until then
        // no other client uses these keys, and each is used through one proxy after the other: a proxy does not know one unit
        // at most, of which its share is none.
        let own: Vec<usize> = (0..self.keys.len()).filter(|key| key % 4 == number).collect();
        let [first, most] = TURNS.map(|turns| turns * own.len());
        for turn in 0.. {
            if turn == first {
                let _ = self.ready.fetch_add(1, Ordering::Relaxed);
            }
            if self.is_noticed.load(Ordering::Relaxed) || !is_running() {
                break;
            }
            let client = &mut clients[turn % 2];
            if turn < most {
                let _ = self.request(client, own[turn / 2 % own.len()]);
            } else {
                // Only requests that need Redis notice that it is away.
                let _ = client.get("/uncounted", &[]);
            }
            pause();
        }
        while is_running() {
            let _ = self.request(&mut clients[fastrand::usize(..2)], fastrand::usize(..self.keys.len()));
            pause();
        }
    }
}

/// Two proxies notice at different times that an outage begins and ends. Together they admit no more than the limit; the keys
/// are in use all the time, and used up in the end.
#[test]
fn two_proxies_share_a_limit_through_outages() {
    let mut redis = RedisServer::start_as(|_| {
        ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned).to_vec()
    });
    let limits = "[limits.a]\nrate = \"50/day\"\nkey = \"header:x-key\"\n\
                  [limits.uncounted]\nrate = \"1000000/day\"\non_store_failure = \"allow\"\n\
                  [[routes]]\npath = \"/\"\nlimits = [\"a\"]\nrespond = { status = 200 }\n\
                  [[routes]]\npath = \"/uncounted\"\nlimits = [\"uncounted\"]\nrespond = { status = 200 }\n";
    // No call of a slow machine may miss its deadline: that would be a further outage, of one proxy alone.
    let config = config(&redis, 2, limits).replace("timeout = \"5s\"", "timeout = \"2s\"");
    let proxies = [Tidegate::start(&config), Tidegate::start(&config)];
    proxies.iter().for_each(wait_paid);
    // Units that Redis may have been charged.
    let unknown = || -> u64 {
        let series = [
            "tidegate_store_requests_total{outcome=\"connection_lost\"}",
            "tidegate_store_requests_total{outcome=\"timeout\"}",
            "tidegate_charge_back_units_total{outcome=\"lost\"}",
        ];
        proxies.iter().flat_map(|proxy| series.map(|series| proxy.metric(series))).sum()
    };
    for cycle in 0..3 {
        let load = Load::new(&proxies, (0..10).map(|key| format!("{cycle}-{key}")).collect());
        let before = unknown();
        let is_stop = cycle != 1;
        load.run(|| {
            if is_stop {
                redis.pause();
            } else {
                redis.kill();
            }
            proxies.iter().for_each(wait_open);
            load.is_noticed.store(true, Ordering::Relaxed);
            // So much that the proxies owe more than Redis has left for the one that notices its end first.
            eventually("both proxies admit most of their shares", || {
                load.passed.iter().all(|count| count.load(Ordering::Relaxed) >= 40)
                    && proxies.iter().all(|proxy| proxy.metric("tidegate_owed_keys") > 0)
            });
            if is_stop {
                redis.resume();
            } else {
                redis.restart();
            }
            proxies.iter().for_each(wait_paid);
            let mut client = Client::connect(proxies[0].addr());
            for key in 0..load.keys.len() {
                eventually("the key is used up", || !load.request(&mut client, key));
            }
        });
        let passed: Vec<u64> = load.passed.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let excess: u64 = passed.iter().map(|count| count.saturating_sub(50)).sum();
        // A stopped Redis runs every call in the end; a killed one may have run a call without a reply or not.
        let most = if is_stop { 0 } else { unknown() - before };
        assert!(excess <= most, "{passed:?} are {excess} too many, of {most} that may be uncharged");
    }
}

/// A store with this timeout.
fn store(redis: &RedisServer, timeout: Duration) -> Redis {
    let target = RedisTarget::parse(&redis.url()).unwrap();
    Redis::connect(&RedisSpec { target, timeout, prefix: "t".into(), client_clock: false })
}

/// A request that waits for a call without a reply was not sent, so its error proves that it was not charged.
#[test]
fn a_request_that_was_not_sent_was_not_charged() {
    let redis = RedisServer::start();
    let day = Rate::new(1, Micros(86_400_000_000)).unwrap();
    let policies = Arc::<[Policy]>::from(vec![Policy::new("a", Quota::token_bucket(day, 10).unwrap())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let redis_store = store(&redis, Duration::from_secs(4));
        redis_store.wait_connected(patience()).await.unwrap();
        let take = async |tag: u8| {
            redis_store.take(&policies, &[Charge::take(PolicyId(0), Key([tag; 16]), 1)]).await
        };
        // Redis knows the script afterwards, so that each call is one command.
        let _ = take(1).await.unwrap();
        redis.pause();
        // The deadlines pass in their order, however slow the machine is: time advances when no task is ready.
        tokio::time::pause();
        let later = async || {
            // The first call is overdue: round trips take less than half of this.
            tokio::time::sleep(Duration::from_secs(2)).await;
            take(3).await
        };
        let (first, second) = tokio::join!(take(2), later());
        tokio::time::resume();
        assert!(matches!(first, Err(StoreError::Deadline)), "{first:?}");
        assert!(matches!(second, Err(StoreError::Unsent)), "{second:?}");
        assert!(second.unwrap_err().is_uncharged());
        // From then on no request waits, until Redis replies.
        for _ in 0..3 {
            let third = take(4).now_or_never();
            assert!(matches!(third, Some(Err(StoreError::Unsent))), "{third:?}");
        }
        redis.resume();
        eventually_async("Redis decides again", async || take(5).await.is_ok()).await;
        let is_charged = |tag: u8| {
            let tag = format!("{{{}}}", Key([tag; 16]));
            redis.keys().iter().any(|key| key.contains(&tag))
        };
        assert_eq!([1, 2, 3, 4, 5].map(is_charged), [true, true, false, false, true]);
    });
}

/// A reload with another `[store]` during an outage keeps the debts.
#[test]
fn debts_survive_a_reload_of_the_store() {
    let mut redis = RedisServer::start();
    let config = config(&redis, 1, &routes());
    let proxy = Tidegate::start(&config);
    wait_closed(&proxy);
    redis.kill();
    wait_open(&proxy);
    assert_eq!(passing(&proxy, "bucket", "new", 25), 20);
    proxy.reload(&config.replace("instances = 1", "instances = 1\nclock = \"client\""));
    assert_eq!(proxy.metric("tidegate_owed_keys"), 1);
    redis.restart();
    wait_paid(&proxy);
    assert_eq!(passing(&proxy, "bucket", "new", 1), 0);
}

/// Slots in Redis count during an outage, and slots that are acquired meanwhile count in Redis afterwards.
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
    wait_closed(&proxy);
    let _first = in_flight(proxy.addr()).expect("a free slot");
    redis.kill();
    wait_open(&proxy);
    let second = in_flight(proxy.addr()).expect("a second free slot");
    assert!(in_flight(proxy.addr()).is_none());
    redis.restart();
    wait_paid(&proxy);
    let other = Tidegate::start(&config);
    wait_closed(&other);
    assert!(in_flight(other.addr()).is_none());
    // A slot is released when the server has finished, also if the client disconnects before.
    drop(second);
    assert!(in_flight(other.addr()).is_none());
    for _ in 0..2 {
        release.send(()).unwrap();
    }
    let _ = wait_in_flight(other.addr());
}
