//! Several proxies that share limits with `ahead`: every admission is judged by the times at which clients sent their requests
//! and received the responses.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{Client, RedisServer, Tidegate};

/// How many requests the clients of a proxy send.
const REQUESTS: usize = 1_500;
/// The units of each limit that come back in a second.
const UNITS: u64 = 40;
const SECOND: u64 = 1_000_000;
const LIMITS: [(&str, &str); 6] = [
    ("bucket", "rate = \"40/s\""),
    ("gcra", "algorithm = \"gcra\"\nrate = \"40/s\"\nburst = 39"),
    ("interval", "rate = \"40/s\"\nrefill = \"interval\""),
    ("fixed", "algorithm = \"fixed_window\"\nrate = \"40/s\""),
    ("log", "algorithm = \"sliding_log\"\nrate = \"40/s\""),
    ("window", "algorithm = \"sliding_window\"\nrate = \"40/s\"\nbuckets = 10"),
];

/// An admitted request: it was admitted between these times, in microseconds of the clock that Redis has too.
#[derive(Clone, Copy, Debug)]
struct Admission {
    sent: u64,
    received: u64,
}

fn config() -> String {
    let limits = LIMITS.iter().map(|(name, numbers)| {
        format!(
            "[limits.{name}]\n{numbers}\nkey = \"global\"\nahead = \"500ms\"\nahead_share = 4\n\
             [[routes]]\npath = \"/{name}\"\nlimits = [\"{name}\"]\nrespond = {{ status = 200 }}\n"
        )
    });
    limits.fold("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n".to_owned(), |all, limit| {
        all + &limit
    })
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// Sends requests for each limit in turn, as fast as possible; the admissions of each limit.
fn send(proxy: &Tidegate, requests: usize) -> [Vec<Admission>; 6] {
    let mut client = Client::connect(proxy.addr());
    let mut admitted = [const { Vec::new() }; 6];
    for number in 0..requests {
        let limit = number % LIMITS.len();
        let sent = now();
        if client.get(&format!("/{}", LIMITS[limit].0), &[]).status() == 200 {
            admitted[limit].push(Admission { sent, received: now() });
        }
    }
    admitted
}

/// The admissions of each limit through all proxies, two clients for each.
fn send_all(proxies: &[Tidegate]) -> [Vec<Admission>; 6] {
    let requests = REQUESTS / 2;
    let mut all = [const { Vec::new() }; 6];
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            proxies.iter().chain(proxies).map(|proxy| scope.spawn(move || send(proxy, requests))).collect();
        for client in clients {
            let admitted = client.join().unwrap();
            all.iter_mut().zip(admitted).for_each(|(all, some)| all.extend(some));
        }
    });
    all
}

/// Asserts that no time has more admissions than `most` allows for its length in microseconds.
#[track_caller]
fn assert_any(name: &str, admissions: &[Admission], most: impl Fn(u64) -> u64) {
    for first in admissions {
        let mut ends: Vec<u64> =
            admissions.iter().filter(|other| other.sent >= first.sent).map(|other| other.received).collect();
        ends.sort_unstable();
        for (count, end) in (1..).zip(ends) {
            // A thousandth for clocks that differ in speed.
            let length = (end - first.sent) * 1_001 / 1_000;
            assert!(count <= most(length), "{name}: {count} admissions in {length} µs");
        }
    }
}

/// Asserts that no second that begins at a multiple of `width` has more admissions than a limit has units.
#[track_caller]
fn assert_aligned(name: &str, admissions: &[Admission], width: u64) {
    let starts = admissions.iter().map(|admission| admission.sent / width * width);
    for start in starts {
        let is_within =
            |admission: &&Admission| admission.sent >= start && admission.received < start + SECOND;
        let count = admissions.iter().filter(is_within).count();
        assert!(count as u64 <= UNITS, "{name}: {count} admissions in the second from {start} µs");
    }
}

#[track_caller]
fn assert_never_over(proxies: usize) {
    let redis = RedisServer::start();
    let proxies: Vec<Tidegate> = (0..proxies).map(|_| Tidegate::start_with(&redis, &config())).collect();
    let (all, mut without_redis) = (send_all(&proxies), 0);
    for ((name, _), admissions) in LIMITS.iter().zip(&all) {
        let spent: u64 = proxies
            .iter()
            .map(|proxy| {
                proxy.metric(&format!("tidegate_ahead_units_total{{limit=\"{name}\",event=\"spent\"}}"))
            })
            .sum();
        println!("{name}: {} admitted, {spent} of them without Redis", admissions.len());
        without_redis += spent;
        assert!(admissions.len() < REQUESTS * proxies.len() / LIMITS.len(), "{name} denies nothing");
        match *name {
            "bucket" | "gcra" => {
                assert_any(name, admissions, |length| UNITS + UNITS * length / SECOND + 1);
            }
            "interval" => assert_any(name, admissions, |length| UNITS + UNITS * length.div_ceil(SECOND)),
            "log" => assert_any(name, admissions, |length| UNITS * (length / SECOND + 1)),
            "fixed" => assert_aligned(name, admissions, SECOND),
            _ => assert_aligned(name, admissions, SECOND / 10),
        }
    }
    assert!(without_redis > 20, "{without_redis} admitted without Redis");
}

#[test]
fn two_proxies_never_exceed_a_limit() {
    assert_never_over(2);
}

#[test]
fn four_proxies_never_exceed_a_limit() {
    assert_never_over(4);
}
