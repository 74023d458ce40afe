//! `tidegate simulate`: decisions that can be calculated by hand, and pictures of them.

mod ahead;
mod algorithms;
mod descriptors;
mod pictures;
mod settled;
mod upstream;

use std::fmt::Write as _;
use std::path::Path;

use super::Finished;
use crate::support::{RedisServer, TIDEGATE, command, output_with_input};

const LIMITS: &str = r#"
listen = "127.0.0.1:8080"
[limits.bucket]
rate = "10/s"
burst = 3
[limits.spaced]
algorithm = "gcra"
rate = "100/s"
burst = 2
[limits.slow]
rate = "1/minute"
burst = 2
cost = 2
[[routes]]
path = "/*"
limits = ["bucket", "spaced", "slow"]
respond = {}
"#;

/// Simulates `arrivals`, from standard input, with the limits of `config`.
fn simulate(config: &str, arrivals: &str, args: &[&str]) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), config).unwrap();
    run(directory.path(), arrivals, args)
}

fn run(directory: &Path, arrivals: &str, args: &[&str]) -> Finished {
    let mut command = command(TIDEGATE);
    output_with_input(command.arg("simulate").args(args).current_dir(directory), arrivals.as_bytes()).into()
}

#[track_caller]
fn assert_simulates(config: &str, arrivals: &str, args: &[&str], expected: &str) {
    let output = simulate(config, arrivals, args);
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    assert_eq!(output.stdout, expected);
}

/// A line of `--format jsonl`.
macro_rules! line {
    ($at:tt, $key:tt, $cost:tt, $allowed:tt, $limit:tt, $of:tt, $left:tt, $reset:tt, $retry:tt, $delay:tt) => {
        concat!(
            "{\"at\":",
            stringify!($at),
            ",\"key\":",
            stringify!($key),
            ",\"cost\":",
            stringify!($cost),
            ",\"allowed\":",
            stringify!($allowed),
            ",\"limit\":",
            stringify!($limit),
            ",\"of\":",
            stringify!($of),
            ",\"remaining\":",
            stringify!($left),
            ",\"reset_after\":",
            stringify!($reset),
            ",\"retry_after\":",
            stringify!($retry),
            ",\"delay\":",
            stringify!($delay),
            "}\n"
        )
    };
}

#[test]
fn a_bucket_empties_and_refills_for_each_key() {
    let expected = concat!(
        line!(0.25, "k", 1, true, "bucket", 3, 2, 0.1, 0, 0),
        line!(0.25, "k", 2, true, "bucket", 3, 0, 0.3, 0, 0),
        line!(0.25, "k", 1, false, "bucket", 3, 0, 0.3, 0.1, 0),
        line!(0.25, "other", 1, true, "bucket", 3, 2, 0.1, 0, 0),
        line!(0.349999, "k", 1, false, "bucket", 3, 0, 0.200001, 0.000001, 0),
        line!(0.35, "k", 1, true, "bucket", 3, 0, 0.3, 0, 0),
        line!(1, "-", 1, true, "bucket", 3, 2, 0.1, 0, 0)
    );
    let arrivals = "# who\n0.25 k\n0.25 k 2\n0.25 k\n0.25 other\n\n0.349999 k\n0.35 k # now\n1\n";
    assert_simulates(LIMITS, arrivals, &["--limit", "bucket", "--format", "jsonl"], expected);
}

#[test]
fn a_cost_of_zero_spends_nothing_and_an_excessive_cost_never_passes() {
    let expected = concat!(
        line!(0, "k", 0, true, "bucket", 3, 3, 0, 0, 0),
        line!(0, "k", 4, false, "bucket", 3, 3, 0, null, 0),
        line!(0, "k", 3, true, "bucket", 3, 0, 0.3, 0, 0),
        line!(0, "k", 0, true, "bucket", 3, 0, 0.3, 0, 0)
    );
    let arrivals = "0 k 0\n0 k 4\n0 k 3\n0 k 0\n";
    assert_simulates(
        LIMITS,
        arrivals,
        &["--limit", "bucket", "--format", "jsonl", "--arrivals", "-"],
        expected,
    );
}

#[test]
fn gcra_tolerates_its_burst() {
    let expected = concat!(
        line!(0, "-", 1, true, "spaced", 3, 2, 0.01, 0, 0),
        line!(0, "-", 1, true, "spaced", 3, 1, 0.02, 0, 0),
        line!(0, "-", 1, true, "spaced", 3, 0, 0.03, 0, 0),
        line!(0, "-", 1, false, "spaced", 3, 0, 0.03, 0.01, 0),
        line!(0.01, "-", 1, true, "spaced", 3, 0, 0.03, 0, 0)
    );
    assert_simulates(LIMITS, "0\n0\n0\n0\n0.01\n", &["--limit", "spaced", "--format", "jsonl"], expected);
}

/// Half a second back only the remaining times change; ten seconds back the state is moved, too.
#[test]
fn a_clock_may_step_back() {
    let expected = concat!(
        line!(20, "k", 3, true, "bucket", 3, 0, 0.3, 0, 0),
        line!(19.5, "k", 1, false, "bucket", 3, 0, 0.8, 0.6, 0),
        line!(10, "k", 1, false, "bucket", 3, 0, 0.3, 0.1, 0),
        line!(10.1, "k", 1, true, "bucket", 3, 0, 0.3, 0, 0)
    );
    let arrivals = "20 k 3\n19.5 k\n10 k\n10.1 k\n";
    assert_simulates(LIMITS, arrivals, &["--limit", "bucket", "--format", "jsonl"], expected);
}

#[test]
fn several_limits_are_charged_together_and_the_tightest_is_shown() {
    let expected = concat!(
        line!(0, "k", 1, true, "spaced", 3, 2, 0.01, 0, 0),
        line!(1, "k", 3, true, "bucket", 3, 0, 0.3, 0, 0),
        line!(1, "k", 1, false, "bucket", 3, 0, 0.3, 0.1, 0)
    );
    // At first both have 2 of 3 left, and the tie goes to the longer reset.
    let expected = expected.replacen(
        "\"spaced\",\"of\":3,\"remaining\":2,\"reset_after\":0.01",
        "\"bucket\",\"of\":3,\"remaining\":2,\"reset_after\":0.1",
        1,
    );
    assert_simulates(
        LIMITS,
        "0 k\n1 k 3\n1 k\n",
        &["--limit", "spaced,bucket", "--format", "jsonl"],
        &expected,
    );
    // A request that one limit denies is charged on none; each limit has its own cost.
    let expected = concat!(
        line!(0, "k", 2, true, "slow", 2, 0, 120, 0, 0),
        line!(0, "k", 2, false, "slow", 2, 0, 120, 120, 0),
        line!(0, "k", 1, false, "slow", 2, 0, 120, 60, 0)
    );
    assert_simulates(
        LIMITS,
        "0 k\n0 k\n0 k 1\n",
        &["--limit", "slow", "--limit", "bucket", "--format", "jsonl"],
        expected,
    );
}

#[test]
fn compared_limits_are_independent() {
    let expected = concat!(
        line!(0, "k", 1, true, "bucket", 3, 2, 0.1, 0, 0),
        line!(0, "k", 2, true, "slow", 2, 0, 120, 0, 0),
        line!(0, "k", 1, true, "bucket", 3, 1, 0.2, 0, 0),
        line!(0, "k", 2, false, "slow", 2, 0, 120, 120, 0)
    );
    assert_simulates(
        LIMITS,
        "0 k\n0 k\n",
        &["--limit", "bucket,slow,bucket", "--compare", "--format", "jsonl"],
        expected,
    );
}

#[test]
fn keys_are_free_text() {
    let output = simulate(LIMITS, "0 a\"b\\c#d|é\u{1b}\n", &["--limit", "bucket", "--format", "jsonl"]);
    assert!(output.stdout.starts_with(r#"{"at":0,"key":"a\"b\\c#d|é\u001b","cost":1,"#), "{}", output.stdout);
    let output = simulate(LIMITS, "0 a\u{1b}[2Jb\n", &["--limit", "bucket"]);
    assert!(!output.stdout.contains('\u{1b}'), "{}", output.stdout);
}

#[test]
fn a_table_has_a_line_for_each_arrival_and_a_summary() {
    let expected = "  time  key  cost  verdict           limit   remaining      reset in      retry in
   0 s  k       3  allowed           bucket        0/3         0.3 s
   0 s  k       1  denied            bucket        0/3         0.3 s         0.1 s
0.25 s  k       4  denied            bucket        2/3        0.05 s         never

3 arrivals in 0.25 s: 1 admitted; 2 denied
  bucket  denied 2, retry after at most 0.1 s; 1 of them cost more than the limit
  spaced  denied 2, retry after at most 0.01 s; 1 of them cost more than the limit
";
    assert_simulates(LIMITS, "0 k 3\n0 k 1\n0.25 k 4\n", &["--limit", "bucket,spaced"], expected);
    let expected = "\
time  key  cost  bucket                         slow
 0 s  k     own  allowed 2/3                    allowed 0/2
 0 s  k     own  allowed 1/3                    denied, retry in 120 s
 0 s  k       3  denied, retry in 0.2 s         denied, never allowed

3 arrivals in 0 s
  bucket  2 admitted; 1 denied
  slow    1 admitted; 2 denied
";
    assert_simulates(LIMITS, "0 k\n0 k\n0 k 3\n", &["--limit", "bucket,slow", "--compare"], expected);
    assert_simulates(LIMITS, "", &["--limit", "bucket", "--format", "jsonl"], "");
}

#[test]
fn errors_name_the_problem_and_its_fix() {
    for (arrivals, args, status, message) in [
        ("0\n", &["--limit", "buckt"][..], 2, "error: unknown limit `buckt`\nhelp: did you mean `bucket`?\n"),
        ("0\n", &["--limit", "x"], 2, "error: unknown limit `x`\nhelp: the file has bucket, spaced, slow\n"),
        (
            "0\n1.1234567 k\n",
            &["--limit", "bucket"],
            2,
            "error: standard input, line 2: `1.1234567` has more than six decimals\nhelp: time is counted in microseconds: leave out what follows the sixth decimal\n",
        ),
        (
            "",
            &["--limit", "bucket", "--arrivals", "none.txt"],
            2,
            "error: can't read arrivals from none.txt: No such file or directory (os error 2)\nhelp: name another file with --arrivals FILE\n",
        ),
        (
            "",
            &["--limit", "bucket", "--store", "http://h"],
            2,
            "error: --store is not a Redis URL: the scheme `http` is not one of redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster and rediss-cluster\n",
        ),
    ] {
        let found = simulate(LIMITS, arrivals, args);
        assert_eq!(
            (found.status, found.stdout.as_str(), found.stderr.as_str()),
            (status, "", message),
            "{args:?}"
        );
    }
    let too_many = simulate(LIMITS, &"0\n".repeat(5_001), &["--limit", "bucket", "--format", "svg"]);
    assert_eq!((too_many.status, too_many.stdout.as_str()), (2, ""));
    assert!(too_many.stderr.starts_with("error: a plot shows at most 5000 arrivals"), "{too_many:?}");
    let wrong_file = simulate("listen = 1\n", "0\n", &["--limit", "bucket"]);
    assert_eq!((wrong_file.status, wrong_file.stdout.as_str()), (2, ""));
}

#[test]
fn an_unreachable_redis_fails_the_run() {
    let url = RedisServer::absent().url();
    let output = simulate(LIMITS, "0\n", &["--limit", "bucket", "--store", &url]);
    assert_eq!((output.status, output.stdout.as_str()), (1, ""));
    assert!(
        output
            .stderr
            .starts_with(&format!("error: can't reach {url}: not connected: Connection refused\nhelp: ")),
        "{output:?}"
    );
}

/// Random arrivals: bursts and rests, many keys, costs from none to too much, and a clock that steps back.
fn random_arrivals(count: usize) -> String {
    let mut random = fastrand::Rng::with_seed(11);
    let mut below = |most: u64| random.u64(..most);
    let (mut text, mut at) = (String::new(), 500_000_000_u64);
    for _ in 0..count {
        at = match below(12) {
            0..5 => at,
            5..8 => at + below(20_000),
            8..10 => at + below(3_000_000),
            10 => at + below(100_000_000),
            _ => at - below(4_000_000),
        };
        let (whole, micros) = (at / 1_000_000, at % 1_000_000);
        let flight = below(5_000_000);
        let cost = [1, 1, 1, 2, 0, 5][usize::try_from(below(6)).unwrap()];
        writeln!(
            text,
            "{whole}.{micros:06} key-{} {cost} {}.{:06}",
            below(3),
            flight / 1_000_000,
            flight % 1_000_000
        )
        .unwrap();
    }
    text
}

#[test]
fn redis_decides_like_memory_and_keeps_no_keys() {
    let server = RedisServer::start();
    let arrivals = random_arrivals(600);
    let url = server.url();
    for args in [
        &["--limit", "bucket,spaced,slow", "--format", "jsonl"][..],
        &["--limit", "bucket,spaced,slow", "--format", "jsonl", "--compare"],
        &["--limit", "slow,bucket"],
        &["--limit", "spaced,bucket", "--format", "svg"],
    ] {
        let memory = simulate(LIMITS, &arrivals, args);
        let redis = simulate(LIMITS, &arrivals, &[args, &["--store", &url]].concat());
        assert_eq!((memory.status, redis.status, redis.stderr.as_str()), (0, 0, ""));
        assert!(memory.stdout == redis.stdout, "memory and Redis differ with {args:?}");
        assert!(memory.stdout.lines().count() >= 600);
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

/// Redis runs out of memory; the keys written until then are deleted.
#[test]
fn an_aborted_run_keeps_no_keys() {
    let server = RedisServer::start();
    let used = server.cli(&["info", "memory"]);
    let used: u64 =
        used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    server.cli(&["config", "set", "maxmemory", &(used + 600_000).to_string()]);
    let mut arrivals = String::new();
    for number in 0..6_000 {
        writeln!(arrivals, "0 key-{number}").unwrap();
    }
    let output =
        simulate(LIMITS, &arrivals, &["--limit", "bucket", "--format", "jsonl", "--store", &server.url()]);
    assert_eq!(output.status, 1, "{}", output.stderr);
    assert!(output.stderr.starts_with("error: the store failed: OOM "), "{}", output.stderr);
    assert!(output.stdout.lines().count() > 100, "{}", output.stdout);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), LIMITS).unwrap();
    std::fs::write(directory.path().join("many"), "0\n".repeat(50_000)).unwrap();
    let script = "\"$0\" simulate --limit bucket --arrivals many 2>&1 >/dev/null | head -n 1; \
                   \"$0\" simulate --limit bucket --arrivals many 2>&1 | head -n 2 | wc -l";
    let output = command("sh").args(["-c", script, TIDEGATE]).current_dir(directory.path()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "2");
}
