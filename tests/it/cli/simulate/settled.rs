//! Arrivals whose responses settle their cost.

use super::{Finished, assert_simulates, simulate};
use crate::support::RedisServer;

const LIMITS: &str = r#"
listen = "127.0.0.1:8080"
[limits.tokens]
algorithm = "fixed_window"
rate = "100/minute"
cost = { reserve = 1, settle = "header:x-cost" }
cost_max = 500
[limits.requests]
rate = "10/minute"
[[routes]]
path = "/*"
limits = ["tokens", "requests"]
upstream = "http://127.0.0.1:9000"
"#;

/// The verdict and what remains of the limit, for each arrival.
#[track_caller]
fn played(arrivals: &str, args: &[&str]) -> Vec<(bool, u64)> {
    let all = [&["--limit", "tokens", "--format", "jsonl"], args].concat();
    let Finished { status, stdout, stderr } = simulate(LIMITS, arrivals, &all);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let decision = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        (line["allowed"].as_bool().unwrap(), line["remaining"].as_u64().unwrap())
    };
    stdout.lines().map(decision).collect()
}

/// At 1 s 60 units are refunded, at 4 s 150 are charged in addition: the key owes 120 more than the limit, until the next minute.
const ARRIVALS: &str = "\
    0 a cost=80 settle=20 flight=1\n0 a cost=30\n1 a cost=50 flight=3 settle=200\n2 a 20\n5 a 1\n59 b 100\n60 a 100\n";

#[test]
fn a_flight_ends_with_the_settled_cost() {
    let expected = [(true, 20), (false, 20), (true, 30), (true, 10), (false, 0), (true, 0), (true, 0)];
    assert_eq!(played(ARRIVALS, &[]), expected);
    let redis = RedisServer::start();
    assert_eq!(played(ARRIVALS, &["--store", &redis.url()]), expected);
}

#[test]
fn without_a_settled_cost_the_reserved_units_stay_charged_and_large_costs_are_cut() {
    assert_eq!(played("0 a 60\n1 a 60\n", &[]), [(true, 40), (false, 40)]);
    // 600 are cut to 500, which are gone in the next window.
    assert_eq!(played("0 a 10 settle=600\n1 a\n60 a\n", &[]), [(true, 90), (false, 0), (true, 99)]);
}

/// A process that holds granted units settles them itself, which is not simulated.
#[test]
fn settled_costs_are_not_played_with_granted_units() {
    let limits = LIMITS.replace("[limits.requests]", "[limits.requests]\nahead = \"auto\"");
    let limits = format!("{limits}[store]\nurl = \"redis://127.0.0.1/\"\n");
    let arrivals = "0 a settle=2\n";
    let output = simulate(&limits, arrivals, &["--limit", "tokens,requests"]);
    assert_eq!(output.status, 2);
    assert_eq!(
        output.stderr,
        "error: what responses cost tokens can't be played together with a limit that has `ahead`\n\
         help: leave settle= out of the arrivals, or `ahead` out of the limits\n"
    );
    assert_eq!(simulate(&limits, "0 a\n", &["--limit", "tokens,requests"]).status, 0);
    assert_eq!(simulate(&limits, arrivals, &["--limit", "tokens"]).status, 0);
}

#[test]
fn only_limits_that_settle_are_settled() {
    assert_simulates(
        LIMITS,
        "0 a 5 settle=1\n1 a 5 settle=1\n",
        &["--limit", "requests,tokens"],
        "\
time  key  cost  verdict           limit     remaining      reset in      retry in
 0 s  a       5  allowed           requests       5/10          30 s
 1 s  a       5  allowed           requests       0/10          59 s

2 arrivals in 1 s: 2 admitted; 0 denied
  requests  denied 0
  tokens    denied 0
",
    );
}
