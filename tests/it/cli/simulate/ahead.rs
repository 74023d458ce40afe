//! Limits with `ahead`: proxies that hold grants, and a round trip to Redis.

use std::fmt::Write as _;

use super::{assert_simulates, simulate};
use crate::support::RedisServer;

const LIMITS: &str = r#"
listen = "127.0.0.1:8080"
[store]
url = "redis://127.0.0.1:6379"
[limits.granting]
rate = "1000/s"
key = "header:x-api-key"
on_missing = "deny"
ahead = "500ms"
block = ["key:blocked"]
[limits.window]
algorithm = "fixed_window"
rate = "2000/minute"
ahead = "auto"
[limits.exact]
rate = "1000/s"
[limits.slots]
algorithm = "concurrency"
max_in_flight = 100
ahead = "auto"
[[routes]]
path = "/*"
limits = ["granting", "window", "exact", "slots"]
respond = {}
"#;

/// Arrivals at a constant rate for this many seconds.
fn steady(per_second: u32, seconds: u32) -> String {
    let interval = f64::from(per_second).recip();
    (0..per_second * seconds).fold(String::new(), |mut text, index| {
        writeln!(text, "{:.6} k", f64::from(index) * interval).unwrap();
        text
    })
}

/// The totals at the end of a table.
#[derive(Debug)]
struct Totals {
    calls_per_arrival: f64,
    admitted: u64,
    admitted_exactly: u64,
    exceeding: u64,
    /// Units: granted, spent, returned, lapsed, held at the end, and the most that were held at once.
    units: Vec<u64>,
}

fn numbers<T: std::str::FromStr>(line: &str) -> Vec<T> {
    let words = line.split([' ', ',', ';']);
    words
        .filter(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn totals(limits: &str, arrivals: &str, options: &[&str]) -> Totals {
    let output = simulate(LIMITS, arrivals, &[&["--limit", limits], options].concat());
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    let mut lines = output.stdout.lines().rev();
    let mut next = || lines.next().unwrap();
    let (ends, units, calls) = (numbers(next()), numbers(next()), numbers::<f64>(next()));
    let [admitted, admitted_exactly, exceeding] = ends[..] else { panic!("{ends:?}") };
    Totals { calls_per_arrival: *calls.last().unwrap(), admitted, admitted_exactly, exceeding, units }
}

#[test]
fn proxies_seldom_call_for_a_busy_key_and_admit_what_the_limit_allows() {
    for (proxies, most_calls) in [("1", 0.02), ("4", 0.08)] {
        let totals = totals("granting", &steady(500, 10), &["--proxies", proxies]);
        assert!(totals.calls_per_arrival <= most_calls, "{totals:?}");
        assert_eq!((totals.admitted, totals.admitted_exactly, totals.exceeding), (5_000, 5_000, 0));
        let [granted, spent, returned, lapsed, held, most_held] = totals.units[..] else {
            panic!("{totals:?}")
        };
        assert_eq!(granted, spent + returned + lapsed + held);
        assert!(spent > 4_500 && most_held >= held && most_held < 500, "{totals:?}");
    }
}

#[test]
fn a_limit_is_not_exceeded_under_overload() {
    for limit in ["granting", "window"] {
        let totals = totals(limit, &steady(3_000, 3), &["--proxies", "3"]);
        let (admitted, exact) = (totals.admitted, totals.admitted_exactly);
        assert!(admitted <= exact && admitted * 100 >= exact * 97, "{limit}: {totals:?}");
        assert_eq!(totals.exceeding, 0, "{limit}");
    }
}

/// Redis decides 5 ms after a call was sent. With the first request it grants 10 units, which the proxy holds from 10 ms on.
#[test]
fn arrivals_show_the_proxy_and_what_has_decided() {
    let expected = "   time  key      cost  verdict           limit     remaining      reset in      retry in  proxy  source
    0 s  k          10  allowed           granting   990/1000        0.02 s                    1  store
0.005 s  other       1  allowed           granting   999/1000       0.001 s                    1  store
 0.03 s  k           1  allowed           granting   989/1000           0 s                    1  ahead
 0.03 s  k           1  allowed           granting   988/1000           0 s                    1  ahead
 0.03 s  blocked     1  blocked           granting     0/1000           0 s         never      1  config
 0.03 s  k        2000  denied            granting  1000/1000           0 s         never      1  config

6 arrivals in 0.03 s: 4 admitted; 2 denied
  granting  denied 2; 1 of them blocked; 1 of them cost more than the limit

1 proxy, with a round trip of 10ms: 2 calls to Redis, 0.333 for each arrival
  granting  10 units granted: 2 spent, 0 returned, 0 lapsed, 8 held at the end; at most 10 of a key held at once
  4 admitted, 4 if each were counted at once; 0 units beyond a limit
";
    let arrivals = "0 k 10\n0.005 other\n0.03 k\n0.03 k\n0.03 blocked\n0.03 k 2000\n";
    assert_simulates(LIMITS, arrivals, &["--limit", "granting", "--round-trip", "10ms"], expected);
}

/// The last arrival is decided before the one above it.
#[test]
fn results_are_in_the_order_of_the_arrivals() {
    let expected = r#"{"at":0,"key":"k","cost":10,"allowed":true,"limit":"granting","of":1000,"remaining":990,"reset_after":0.02,"retry_after":0,"delay":0,"proxy":1,"source":"store","calls":1}
{"at":0.012,"key":"other","cost":1,"allowed":true,"limit":"granting","of":1000,"remaining":999,"reset_after":0.001,"retry_after":0,"delay":0,"proxy":1,"source":"store","calls":1}
{"at":0.013,"key":"k","cost":1,"allowed":true,"limit":"granting","of":1000,"remaining":989,"reset_after":0.017,"retry_after":0,"delay":0,"proxy":1,"source":"ahead","calls":0}
"#;
    let args = ["--limit", "granting", "--round-trip", "10ms", "--format", "jsonl"];
    assert_simulates(LIMITS, "0 k 10\n0.012 other\n0.013 k\n", &args, expected);
}

#[test]
fn more_requests_wait_for_a_distant_redis() {
    let arrivals = steady(500, 5);
    let (near, far) =
        (totals("granting", &arrivals, &[]), totals("granting", &arrivals, &["--round-trip", "100ms"]));
    assert!(far.calls_per_arrival > near.calls_per_arrival, "{near:?} {far:?}");
    assert_eq!((far.admitted, far.exceeding), (2_500, 0));
}

#[test]
fn redis_grants_like_memory_and_keeps_no_keys() {
    let server = RedisServer::start();
    let (arrivals, url) = (steady(800, 3), server.url());
    for args in [
        &["--limit", "granting,exact", "--proxies", "3", "--format", "jsonl"][..],
        &["--limit", "granting,window", "--proxies", "2", "--compare"],
        &["--limit", "window", "--proxies", "2", "--format", "svg"],
    ] {
        let memory = simulate(LIMITS, &arrivals, args);
        let redis = simulate(LIMITS, &arrivals, &[args, &["--store", &url]].concat());
        assert_eq!((memory.status, redis.status, redis.stderr.as_str()), (0, 0, ""));
        assert!(memory.stdout == redis.stdout, "memory and Redis differ with {args:?}");
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

/// Each limit is played as if it were alone.
#[test]
fn limits_with_and_without_ahead_are_compared() {
    let output = simulate(LIMITS, &steady(400, 2), &["--limit", "exact,granting,slots", "--compare"]);
    assert_eq!(output.stdout.matches("0 units beyond a limit").count(), 1, "{}", output.stdout);
    assert!(output.stdout.contains("  exact     800 admitted; 0 denied\n"), "{}", output.stdout);
}

#[test]
fn options_and_arrivals_that_do_not_fit_are_errors() {
    for (limits, arrivals, options, message) in [
        (
            "exact",
            "0\n",
            &["--proxies", "2"][..],
            "error: --proxies has no effect: none of these limits has `ahead`, so each is exact over all proxies\nhelp: leave it out, or add ahead = \"auto\" to a limit; that needs `url` in [store]\n",
        ),
        (
            "granting,slots",
            "0\n",
            &[],
            "error: the slots of slots can't be played together with a limit that has `ahead`\nhelp: add --compare, to play each limit alone\n",
        ),
        (
            "granting",
            "1\n0.5\n",
            &[],
            "error: with `ahead` arrivals must be in the order of their times\nhelp: sort them, or play a limit without `ahead`\n",
        ),
    ] {
        let found = simulate(LIMITS, arrivals, &[&["--limit", limits], options].concat());
        assert_eq!((found.status, found.stdout.as_str(), found.stderr.as_str()), (2, "", message));
    }
    let found = simulate(LIMITS, "0\n", &["--limit", "granting", "--round-trip", "2m"]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.contains("at most 1 minute"), "{}", found.stderr);
}
