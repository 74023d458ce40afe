//! Several proxies that share limits with `ahead`: every admission is judged by the times at which clients sent their requests
//! and received the responses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{Client, RedisServer, Tidegate};

/// How many requests each client sends as fast as possible, in each round.
const FAST: usize = 600;
/// How many requests one client of each proxy sends before that, with [`PAUSE`] before each: few enough that the store has
/// units to grant.
const SLOW: usize = 30;
const PAUSE: Duration = Duration::from_millis(50);
/// After how many rounds a test fails that has not seen what it waits for.
const MOST_ROUNDS: usize = 20;
/// How many units of each limit must be spent without Redis.
const WITHOUT_REDIS: u64 = 25;
/// The units of each limit that come back in a second, and those of a request: few requests, so that a slow machine exceeds the
/// limits too, with many units each, so that grants are worth it.
const UNITS: u64 = 200;
const COST: u64 = 10;
const SECOND: u64 = 1_000_000;
const LIMITS: [(&str, &str); 6] = [
    ("bucket", "rate = \"200/s\""),
    ("gcra", "algorithm = \"gcra\"\nrate = \"200/s\"\nburst = 199"),
    ("interval", "rate = \"200/s\"\nrefill = \"interval\""),
    ("fixed", "algorithm = \"fixed_window\"\nrate = \"200/s\""),
    ("log", "algorithm = \"sliding_log\"\nrate = \"200/s\""),
    ("window", "algorithm = \"sliding_window\"\nrate = \"200/s\"\nbuckets = 10"),
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
            "[limits.{name}]\n{numbers}\nkey = \"global\"\nahead = \"500ms\"\nahead_share = 4\ncost = 10\n\
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

/// What clients have seen of a limit.
#[derive(Clone, Default)]
struct Seen {
    admitted: Vec<Admission>,
    denied: usize,
}

/// Sends requests for each limit in turn, with a pause before each.
fn send(proxy: &Tidegate, requests: usize, pause: Duration) -> [Seen; 6] {
    let mut client = Client::connect(proxy.addr());
    let mut seen: [Seen; 6] = Default::default();
    for number in 0..requests {
        std::thread::sleep(pause);
        let limit = number % LIMITS.len();
        let sent = now();
        match client.get(&format!("/{}", LIMITS[limit].0), &[]).status() {
            200 => seen[limit].admitted.push(Admission { sent, received: now() }),
            _ => seen[limit].denied += 1,
        }
    }
    seen
}

/// Adds what the clients of all proxies see in one round: one client for each that sends slowly, then two that send as fast as
/// possible.
fn send_all(proxies: &[Tidegate], all: &mut [Seen; 6]) {
    for (clients, requests, pause) in [(1, SLOW, PAUSE), (2, FAST, Duration::ZERO)] {
        std::thread::scope(|scope| {
            let clients: Vec<_> = proxies
                .iter()
                .flat_map(|proxy| std::iter::repeat_n(proxy, clients))
                .map(|proxy| scope.spawn(move || send(proxy, requests, pause)))
                .collect();
            for client in clients {
                for (all, seen) in all.iter_mut().zip(client.join().unwrap()) {
                    all.admitted.extend(seen.admitted);
                    all.denied += seen.denied;
                }
            }
        });
    }
}

/// How many units of a limit were spent without Redis.
fn spent(proxies: &[Tidegate], limit: &str) -> u64 {
    let metric = format!("tidegate_ahead_units_total{{limit=\"{limit}\",event=\"spent\"}}");
    proxies.iter().map(|proxy| proxy.metric(&metric)).sum()
}

/// Asserts that no time has more units admitted than `most` allows for its length in microseconds.
#[track_caller]
fn assert_any(name: &str, admissions: &[Admission], most: impl Fn(u64) -> u64) {
    for first in admissions {
        let mut ends: Vec<u64> =
            admissions.iter().filter(|other| other.sent >= first.sent).map(|other| other.received).collect();
        ends.sort_unstable();
        for (count, end) in (1..).zip(ends) {
            let units = count * COST;
            // A thousandth for clocks that differ in speed.
            let length = (end - first.sent) * 1_001 / 1_000;
            assert!(units <= most(length), "{name}: {units} units in {length} µs");
        }
    }
}

/// Asserts that no second that begins at a multiple of `width` has more units admitted than a limit has units.
#[track_caller]
fn assert_aligned(name: &str, admissions: &[Admission], width: u64) {
    let starts = admissions.iter().map(|admission| admission.sent / width * width);
    for start in starts {
        let is_within =
            |admission: &&Admission| admission.sent >= start && admission.received < start + SECOND;
        let units = admissions.iter().filter(is_within).count() as u64 * COST;
        assert!(units <= UNITS, "{name}: {units} units in the second from {start} µs");
    }
}

#[track_caller]
fn assert_never_over(proxies: usize) {
    let redis = RedisServer::start();
    let proxies: Vec<Tidegate> = (0..proxies).map(|_| Tidegate::start_with(&redis, &config())).collect();
    let mut all: [Seen; 6] = Default::default();
    // How many requests that takes depends on the speed of the machine.
    let shows_all = |all: &[Seen; 6]| {
        let spent_enough = LIMITS.iter().all(|(name, _)| spent(&proxies, name) >= WITHOUT_REDIS);
        spent_enough && all.iter().all(|seen| seen.denied > 0)
    };
    for _ in 0..MOST_ROUNDS {
        send_all(&proxies, &mut all);
        if shows_all(&all) {
            break;
        }
    }
    for ((name, _), Seen { admitted, denied }) in LIMITS.iter().zip(&all) {
        println!(
            "{name}: {} admitted, {denied} denied, {} units spent without Redis",
            admitted.len(),
            spent(&proxies, name)
        );
    }
    assert!(shows_all(&all), "a limit denies nothing, or too few of its units are spent without Redis");
    for ((name, _), Seen { admitted, .. }) in LIMITS.iter().zip(&all) {
        match *name {
            "bucket" | "gcra" => {
                assert_any(name, admitted, |length| UNITS + UNITS * length / SECOND + 1);
            }
            "interval" => assert_any(name, admitted, |length| UNITS + UNITS * length.div_ceil(SECOND)),
            "log" => assert_any(name, admitted, |length| UNITS * (length / SECOND + 1)),
            "fixed" => assert_aligned(name, admitted, SECOND),
            _ => assert_aligned(name, admitted, SECOND / 10),
        }
    }
}

#[test]
fn two_proxies_never_exceed_a_limit() {
    assert_never_over(2);
}

#[test]
fn four_proxies_never_exceed_a_limit() {
    assert_never_over(4);
}
