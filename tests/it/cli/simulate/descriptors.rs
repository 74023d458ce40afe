//! Arrivals of a descriptor of the rate-limit service.

use serde_json::Value;

use super::{Finished, simulate};
use crate::support::RedisServer;

const FILE: &str = r#"
[[listeners]]
address = "127.0.0.1:8081"
serve = "envoy-ratelimit"
[limits.tiered]
algorithm = "fixed_window"
rate = "1/minute"
key = ["descriptor:plan", "client_ip"]
tiers = { by = "descriptor:plan", pro = { rate = "2/minute" } }
block = ["198.51.100.0/24"]
allow = ["192.0.2.1"]
[limits.all]
algorithm = "fixed_window"
rate = "4/minute"
key = "global"
[[descriptors]]
domain = "edge"
match = ["generic_key=checkout", "plan", "remote_address"]
limits = ["tiered", "all"]
[[descriptors]]
domain = "edge"
match = ["generic_key=checkout", "plan=other", "remote_address"]
limits = ["tiered"]
[[descriptors]]
domain = "edge"
match = ["free"]
[[descriptors]]
domain = "edge"
match = ["closed"]
block = true
[[descriptors]]
domain = "edge"
match = ["tokens"]
limits = ["all"]
charge_late = true
"#;

fn play(entries: &str, arrivals: &str, args: &[&str]) -> Finished {
    simulate(FILE, arrivals, &[&["--descriptor", "edge", entries], args].concat())
}

/// For each arrival: whether it is admitted, the limit that is shown, and its remaining units.
#[track_caller]
fn decisions(entries: &str, arrivals: &str, args: &[&str]) -> Vec<(bool, String, u64)> {
    let Finished { status, stdout, stderr } =
        play(entries, arrivals, &[&["--format", "jsonl"], args].concat());
    assert_eq!((status, stderr.as_str()), (0, ""));
    let decision = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let limit = line["limit"].as_str().unwrap().to_owned();
        (line["allowed"].as_bool().unwrap(), limit, line["remaining"].as_u64().unwrap())
    };
    stdout.lines().map(decision).collect()
}

fn expected(decisions: &[(bool, &str, u64)]) -> Vec<(bool, String, u64)> {
    decisions.iter().map(|(allowed, limit, left)| (*allowed, (*limit).to_owned(), *left)).collect()
}

const ARRIVALS: &str = "0 pro,203.0.113.9\n0 pro,203.0.113.9\n0 pro,203.0.113.9\n0 free,203.0.113.9\n\
                        0 pro,203.0.113.7 2\n0 pro,198.51.100.7\n0 pro,192.0.2.1\n0 pro,192.0.2.1\n";

#[test]
fn a_descriptor_is_charged_by_all_limits_of_its_rule() {
    let redis = RedisServer::start();
    let store = redis.url();
    for args in [&[][..], &["--store", &store]] {
        // The tier, the key of two parts and the lists are those that the service would use.
        assert_eq!(
            decisions("generic_key=checkout,plan,remote_address", ARRIVALS, args),
            expected(&[
                (true, "tiered.pro", 1),
                (true, "tiered.pro", 0),
                (false, "tiered.pro", 0),
                (true, "tiered", 0),
                (false, "all", 1),
                (false, "tiered", 0),
                (true, "all", 0),
                (false, "all", 0),
            ])
        );
    }
}

#[test]
fn values_of_the_command_line_need_none_in_arrivals() {
    let entries = "generic_key=checkout,plan=pro,remote_address=203.0.113.9";
    let all = decisions(entries, "0\n1\n2\n60\n", &[]);
    assert_eq!(all.iter().map(|(allowed, ..)| *allowed).collect::<Vec<_>>(), [true, true, false, true]);
    let alone = play(entries, "0\n0\n0\n", &["--compare"]).stdout;
    assert!(alone.contains("tiered") && alone.contains("all"), "{alone}");
    // With one open entry a value may have commas.
    let open = decisions("generic_key=checkout,plan,remote_address=203.0.113.9", "0 a,b\n0 a,b\n", &[]);
    assert_eq!(open.iter().map(|(allowed, ..)| *allowed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn arrivals_that_do_not_fit_the_descriptor_are_errors() {
    let entries = "generic_key=checkout,plan,remote_address";
    for (entries, arrivals, text) in [
        ("=a", "0\n", "error: `=a` is no entry of a descriptor\nhelp: write KEY=VALUE, or KEY alone"),
        (entries, "", "error: there are no arrivals, so no rule can be found\nhelp: "),
        (
            entries,
            "0.5 pro\n",
            "error: the arrival at 0.5 s: the key `pro` does not have 2 values\nhelp: KEY has the values of",
        ),
        (
            "plan=a",
            "0 b\n",
            "error: the arrival at 0 s: the key `b` does not have 0 values\nhelp: every entry",
        ),
        (
            "plan",
            "0\n",
            "error: the arrival at 0 s: the key `-` does not have 1 value\nhelp: KEY is the value",
        ),
        (
            entries,
            "0 a,unknown\n",
            "error: the arrival at 0 s: `generic_key=checkout,plan=a,remote_address=unknown`: the value of the entry",
        ),
        (
            entries,
            "0 a,192.0.2.9\n1 other,192.0.2.9\n",
            "error: the arrival at 1 s: `generic_key=checkout,plan=other,",
        ),
        (
            "nothing=1",
            "0\n",
            "error: the arrival at 0 s: `nothing=1` has no rule, and is unlimited\nhelp: see `tidegate explain",
        ),
        ("free=1", "0\n", "error: the arrival at 0 s: `free=1` has a rule without limits, and is unlimited"),
        (
            "closed=1",
            "0\n",
            "error: the arrival at 0 s: `closed=1` has a rule with `block`, and is always over",
        ),
        ("tokens=1", "0\n", "error: the arrival at 0 s: `tokens=1` has a rule with `charge_late`"),
        (entries, "0 a,192.0.2.9 0\n", "error: the arrival at 0 s: zero hits charge nothing\nhelp: leave"),
    ] {
        let output = play(entries, arrivals, &[]);
        assert_eq!((output.status, output.stdout.as_str()), (2, ""), "{entries} {arrivals}");
        assert!(output.stderr.starts_with(text), "{entries} {arrivals}: {}", output.stderr);
    }
    assert_eq!(play("plan=a", "0\n", &["--limit", "all"]).status, 2);
}
