//! Limits while somebody asks as much as can be.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::*;
use crate::support::{Tidegate, Upstream, Wire, connect_from, curl, eventually, get};

const CASES: &[Case] = &[
    Case {
        name: "an address far over its limit",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let (start, work) =
                (Instant::now(), || pipeline(ground, |_| "GET /good HTTP/1.1\r\nHost: a\r\n\r\n".into()));
            let (passed, denied) = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
            });
            // What there is at first, and what comes meanwhile.
            let most = 101.0 + 700.0 * start.elapsed().as_secs_f64();
            assert!(denied > 100 && f64::from(passed) <= most, "{passed} passed, {denied} were denied");
        },
    },
    Case {
        name: "a key made up for each request",
        listener: "",
        grows: 8 * 1024,
        welcomes: true,
        abuse: |ground| {
            let spend = || get(ground.plain, "/key", &["X-Key: honest"]).status();
            assert_eq!([0; 7].map(|_| spend()), [200, 200, 200, 200, 200, 429, 429]);
            let made_up = |number| format!("GET /key HTTP/1.1\r\nHost: a\r\nX-Key: {number}\r\n\r\n");
            let (passed, _) = pipeline(ground, made_up);
            assert!(passed > 2 * u32::try_from(MAX_KEYS).unwrap(), "{passed}");
            // Whoever is held back by a limit is not forgotten for those who are not.
            assert_eq!(spend(), 429);
            let keys: usize = ground.metric("tidegate_local_keys ").parse().unwrap();
            assert!(keys <= MAX_KEYS, "{keys}");
        },
    },
];

/// Three limits with strict state, and one whose keys last longer, for a store of 2,000 keys.
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
    path = "/strict"
    limits = ["strict"]
    respond = { status = 200 }
    [[routes]]
    path = "/banning"
    limits = ["banning"]
    respond = { status = 200 }
    [[routes]]
    path = "/flooded"
    limits = ["flooded"]
    respond = { status = 200 }
    [[routes]]
    path = "/busy"
    limits = ["busy"]
"#;

#[test]
fn made_up_keys_of_another_limit_evict_no_strict_state() {
    let silent = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
    let proxy = Tidegate::start(&format!("{STRICT}upstream = \"{}\"\n", silent.url()));
    let ask = |path: &str, key: &str| get(proxy.addr(), path, &[&format!("X-Key: {key}")]).status();
    assert_eq!([0; 3].map(|_| ask("/strict", "denied")), [200, 200, 429]);
    assert_eq!([0; 3].map(|_| ask("/banning", "banned")), [200, 200, 429]);
    let block = format!("http://{}/keys/block", proxy.admin());
    let body = r#"{"limit": "strict", "key": "blocked", "for": "1h"}"#;
    assert_eq!(curl(&["-H", "Content-Type: application/json", "-d", body, &block]).0, 200);
    let holder = Wire::over(connect_from("127.0.0.1", proxy.addr()).unwrap());
    holder.stream().write_all(b"GET /busy HTTP/1.1\r\nHost: a\r\nX-Key: holder\r\n\r\n").unwrap();
    eventually("the slot is taken", || ask("/busy", "holder") == 429);

    let mut wire = Wire::over(connect_from("127.0.0.1", proxy.addr()).unwrap());
    for parcel in 0..100 {
        let request = |n| format!("GET /flooded HTTP/1.1\r\nHost: a\r\nX-Key: {parcel}-{n}\r\n\r\n");
        wire.stream().write_all((0..100).map(request).collect::<String>().as_bytes()).unwrap();
        for _ in 0..100 {
            assert_eq!(wire.read_response("GET").unwrap().status(), 200);
        }
    }
    let strict = [("/strict", "denied"), ("/banning", "banned"), ("/strict", "blocked"), ("/busy", "holder")];
    assert_eq!(strict.map(|(path, key)| ask(path, key)), [429, 429, 403, 429]);
    let metrics = get(proxy.admin(), "/metrics", &[]);
    let evictions =
        metrics.text().lines().find_map(|line| line.strip_prefix("tidegate_store_evictions_total "));
    let evictions: usize = evictions.unwrap().parse().unwrap();
    assert!((8_000..8_100).contains(&evictions), "{evictions}");
}

/// Sends requests in parcels of a hundred for a second; how many have passed, and how many were denied.
fn pipeline(ground: &Ground, request: impl Fn(u32) -> String) -> (u32, u32) {
    let until = Instant::now() + Duration::from_secs(1);
    let mut wire = Wire::over(ground.connect());
    let (mut passed, mut denied) = (0, 0);
    while Instant::now() < until {
        let asked = passed + denied;
        let parcel: String = (asked..asked + 100).map(&request).collect();
        wire.stream().write_all(parcel.as_bytes()).unwrap();
        for _ in 0..100 {
            match wire.read_response("GET").unwrap().status() {
                200 => passed += 1,
                429 => denied += 1,
                other => panic!("{other}"),
            }
        }
    }
    (passed, denied)
}

#[test]
fn limits_hold_and_spare_others() {
    stage(CASES);
}
