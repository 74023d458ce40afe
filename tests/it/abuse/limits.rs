//! Limits while somebody asks as much as can be.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::*;
use crate::support::{Wire, get};

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
