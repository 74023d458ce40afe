//! Limits under requests at full speed.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::limits::setup::routes;
use crate::support::{
    Client, Process, RedisServer, Tidegate, Upstream, Wire, command, connect_from, curl, get, patience, timed,
};

/// The address of a client beside a flood from another one.
const HONEST: &str = "127.0.0.2";
/// The rate of the attacker's address in the limit `each`.
const ATTACKER_RATE: f64 = 100.0;

const CASES: &[Case] = &[
    Case {
        name: "an address far over its limit",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let (start, counts) = (Instant::now(), Counts::default());
            let is_over = || start.elapsed() >= Duration::from_secs(1) && counts.denied() > 100;
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let request = |_| "GET /good HTTP/1.1\r\nHost: a\r\n\r\n".into();
                        pipeline(setup, &counts, request, is_over);
                    });
                }
            });
            // The burst, and the units that refill meanwhile.
            let most = 101.0 + ATTACKER_RATE * start.elapsed().as_secs_f64();
            let (allowed, denied) = (counts.allowed(), counts.denied());
            assert!(f64::from(allowed) <= most, "{allowed} were allowed, {denied} were denied");
        },
    },
    Case {
        name: "a key made up for each request",
        listener: "",
        max_growth: 8 * 1024,
        accepts_clients: true,
        attack: |setup| {
            let spend = || get(setup.plain, "/key", &["X-Key: honest"]).status();
            assert_eq!([0; 7].map(|_| spend()), [200, 200, 200, 200, 200, 429, 429]);
            let made_up = |number| format!("GET /key HTTP/1.1\r\nHost: a\r\nX-Key: {number}\r\n\r\n");
            let (start, counts) = (Instant::now(), Counts::default());
            let many = 2 * u32::try_from(MAX_KEYS).unwrap();
            let is_over = || start.elapsed() >= Duration::from_secs(1) && counts.allowed() > many;
            pipeline(setup, &counts, made_up, is_over);
            // A key that is denied is not evicted for keys that are not.
            assert_eq!(spend(), 429);
            let keys = setup.proxy.metric("tidegate_memory_keys");
            assert!(keys <= u64::try_from(MAX_KEYS).unwrap(), "{keys}");
        },
    },
];

/// Three limits with strict state, and one whose keys live longer, for a store of 2,000 keys.
const STRICT: &str = r#"listen = "127.0.0.1:0"
    [admin]
    listen = "127.0.0.1:0"
    [store]
    max_keys = 2_000
    [limits.strict]
    rate = "2/hour"
    key = "header:x-key"
    [limits.banning]
    rate = "2/hour"
    key = "header:x-key"
    ban = { after = 1, within = "1m", for = "1h" }
    [limits.busy]
    algorithm = "concurrency"
    max_in_flight = 1
    key = "header:x-key"
    [limits.flooded]
    rate = "5/day"
    key = "header:x-key"
    [[routes]]
    path = "/busy"
    limits = ["busy"]
"#;

#[test]
fn made_up_keys_of_another_limit_evict_no_strict_state() {
    let (sender, forwarded) = std::sync::mpsc::channel();
    let silent = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            sender.send(()).unwrap();
        }
    });
    let limited: [(&str, &[&str]); 3] =
        [("/strict", &["strict"]), ("/banning", &["banning"]), ("/flooded", &["flooded"])];
    let proxy = Tidegate::start(&format!("{STRICT}upstream = \"{}\"\n{}", silent.url(), routes(&limited)));
    let status = |path: &str, key: &str| get(proxy.addr(), path, &[&format!("X-Key: {key}")]).status();
    assert_eq!([0; 3].map(|_| status("/strict", "denied")), [200, 200, 429]);
    assert_eq!([0; 3].map(|_| status("/banning", "banned")), [200, 200, 429]);
    let block = format!("http://{}/v1/keys/block", proxy.admin());
    let body = r#"{"limit": "strict", "key": "blocked", "for": "1h"}"#;
    assert_eq!(curl(&["-H", "Content-Type: application/json", "-d", body, &block]).0, 200);
    let holder = Wire::over(connect_from("127.0.0.1", proxy.addr()).unwrap());
    holder.stream().write_all(b"GET /busy HTTP/1.1\r\nHost: a\r\nX-Key: holder\r\n\r\n").unwrap();
    forwarded.recv_timeout(patience()).unwrap();
    assert_eq!(status("/busy", "holder"), 429);

    let mut wire = Wire::over(connect_from("127.0.0.1", proxy.addr()).unwrap());
    for parcel in 0..100 {
        let request = |n| format!("GET /flooded HTTP/1.1\r\nHost: a\r\nX-Key: {parcel}-{n}\r\n\r\n");
        wire.stream().write_all((0..100).map(request).collect::<String>().as_bytes()).unwrap();
        for _ in 0..100 {
            assert_eq!(wire.read_response("GET").unwrap().status(), 200);
        }
    }
    let strict = [("/strict", "denied"), ("/banning", "banned"), ("/strict", "blocked"), ("/busy", "holder")];
    assert_eq!(strict.map(|(path, key)| status(path, key)), [429, 429, 403, 429]);
    let evictions = proxy.metric("tidegate_memory_evictions_total");
    assert!((8_000..8_100).contains(&evictions), "{evictions}");
}

/// The responses to pipelined requests.
#[derive(Default)]
struct Counts {
    allowed: AtomicU32,
    denied: AtomicU32,
}

impl Counts {
    fn allowed(&self) -> u32 {
        self.allowed.load(Ordering::SeqCst)
    }

    fn denied(&self) -> u32 {
        self.denied.load(Ordering::SeqCst)
    }
}

/// Sends batches of a hundred pipelined requests until `is_over`, which must be within [`patience`].
fn pipeline(setup: &Setup, counts: &Counts, request: impl Fn(u32) -> String, is_over: impl Fn() -> bool) {
    let start = Instant::now();
    let mut wire = Wire::over(setup.connect());
    let mut sent = 0;
    while !is_over() {
        assert!(start.elapsed() < patience(), "{} allowed, {} denied", counts.allowed(), counts.denied());
        let batch: String = (sent..sent + 100).map(&request).collect();
        wire.stream().write_all(batch.as_bytes()).unwrap();
        for _ in 0..100 {
            let count = match wire.read_response("GET").unwrap().status() {
                200 => &counts.allowed,
                429 => &counts.denied,
                other => panic!("{other}"),
            };
            count.fetch_add(1, Ordering::SeqCst);
        }
        sent += 100;
    }
}

/// Starts a denied client that sends requests at full speed: 100 at once on each of 40 connections over HTTP/2.
fn flood(proxy: &Tidegate) -> Process {
    Process::start_silent(command("h2load").args(["-c", "40", "-m", "100", "-D", "1000", &proxy.url("/")]))
}

/// A proxy with one worker whose limit is in this Redis. The address from which the flood comes is denied from its second
/// request on.
fn limited_in(redis: &RedisServer) -> Tidegate {
    let proxy = Tidegate::start_with(
        redis,
        &format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [limits.each]\nrate = \"1/hour\"\nkey = \"client_ip\"\non_store_failure = \"deny\"\n\
             overrides = {{ \"{HONEST}\" = {{ rate = \"1000/s\" }} }}\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = {{ status = 200 }}\n"
        ),
    );
    proxy.wait_ready();
    proxy
}

#[test]
fn a_denied_client_delays_no_reply_of_redis_beyond_its_deadline() {
    let redis = RedisServer::start();
    let proxy = limited_in(&redis);
    let mut honest = Client::connect_from(HONEST, proxy.addr());
    let _flood = flood(&proxy);
    let denied = || proxy.decisions("each", "denied");
    let (start, mut outcomes) = (Instant::now(), Vec::new());
    // Denials are cached for a second, so that the flood reaches Redis several times.
    while denied() < 3_000 || start.elapsed() < Duration::from_secs(3) {
        outcomes.extend((0..10).map(|_| timed(|| honest.get("/", &[]).status())));
        assert!(start.elapsed() < 3 * patience(), "{} were denied", denied());
    }
    outcomes.sort_by_key(|(_, took)| *took);
    let (count, served) = (outcomes.len(), outcomes.iter().filter(|(status, _)| *status == 200).count());
    let (median, slowest) = (outcomes[count / 2].1, outcomes[count - 1].1);
    let missed = proxy.metric("tidegate_store_requests_total{outcome=\"timeout\"}");
    let openings = proxy.metric("tidegate_store_breaker_openings_total");
    eprintln!("{served} of {count} served, p50 {median:?}, slowest {slowest:?}, {} denied", denied());
    assert_eq!((count - served, missed, openings), (0, 0, 0));
}

#[test]
fn a_silent_redis_is_noticed_beside_a_denied_client() {
    let redis = RedisServer::start();
    let proxy = limited_in(&redis);
    let mut honest = Client::connect_from(HONEST, proxy.addr());
    let _flood = flood(&proxy);
    eventually("the flood is denied", || proxy.decisions("each", "denied") > 1_000);
    redis.pause();
    let ((), took) = timed(|| drop(proxy.wait_log("the store is unavailable")));
    assert_eq!(honest.get("/", &[]).status(), 503);
    redis.resume();
    eprintln!("noticed after {took:?}");
    eventually("Redis decides again", || honest.get("/", &[]).status() == 200);
}

#[test]
fn limits_hold_under_attack() {
    run(CASES);
}
