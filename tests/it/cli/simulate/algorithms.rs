//! Every algorithm and every option of a limit, simulated with both stores.

use super::{assert_simulates, random_arrivals, simulate};
use crate::support::RedisServer;

const ALL: &str = r#"
listen = "127.0.0.1:8080"
[limits.bucket]
rate = "3/s"
burst = 5
[limits.interval]
rate = "3/7s"
refill = "interval"
[limits.spaced]
algorithm = "gcra"
rate = "7/3s"
burst = 2
[limits.window]
algorithm = "fixed_window"
rate = "4/5s"
[limits.own-window]
algorithm = "fixed_window"
rate = "4/5s"
align = "first_request"
[limits.daily]
algorithm = "fixed_window"
rate = "40/day"
timezone = "Europe/Berlin"
[limits.log]
algorithm = "sliding_log"
rate = ["2/s", "9/minute"]
[limits.sliding]
algorithm = "sliding_window"
rate = "6/6s"
buckets = 3
[limits.queue]
algorithm = "leaky_bucket"
rate = "1/s"
queue = 2
[limits.slots]
algorithm = "concurrency"
max_in_flight = 1
[limits.few]
algorithm = "concurrency"
max_in_flight = 3
lease = "3s"
[limits.watched]
rate = "1/s"
mode = "shadow"
[limits.banned]
rate = "2/s"
ban = { after = 3, within = "10s", for = "20s" }
[limits.named]
rate = "1/s"
key = ["header:x-api-key", "method"]
allow = ["key:internal"]
block = ["key:stolen"]
tiers = { by = "header:x-plan", pro = { rate = "9/s" } }
overrides = { "acme" = { rate = "5/s" }, "acme|GET" = { rate = "7/s" } }
[[routes]]
path = "/*"
limits = ["bucket", "interval", "spaced", "window", "own-window", "daily", "log", "sliding", "queue", "slots", "few", "watched", "banned", "named"]
respond = {}
"#;

#[test]
fn early_requests_are_delayed() {
    let expected = "\
{\"at\":0,\"key\":\"k\",\"cost\":1,\"allowed\":true,\"limit\":\"queue\",\"of\":3,\"remaining\":2,\"reset_after\":1,\"retry_after\":0,\"delay\":0}
{\"at\":0,\"key\":\"k\",\"cost\":1,\"allowed\":true,\"limit\":\"queue\",\"of\":3,\"remaining\":1,\"reset_after\":2,\"retry_after\":0,\"delay\":1}
{\"at\":0.5,\"key\":\"k\",\"cost\":1,\"allowed\":true,\"limit\":\"queue\",\"of\":3,\"remaining\":0,\"reset_after\":2.5,\"retry_after\":0,\"delay\":1.5}
{\"at\":0.5,\"key\":\"k\",\"cost\":1,\"allowed\":false,\"limit\":\"queue\",\"of\":3,\"remaining\":0,\"reset_after\":2.5,\"retry_after\":0.5,\"delay\":0}
";
    assert_simulates(ALL, "0 k\n0 k\n0.5 k\n0.5 k\n", &["--limit", "queue", "--format", "jsonl"], expected);
}

/// The decisions in order: `+` for allowed and `-` for denied.
#[track_caller]
fn verdicts(arrivals: &str, args: &[&str]) -> String {
    let output = simulate(ALL, arrivals, &[args, &["--format", "jsonl"]].concat());
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    let verdict = |line: &str| if line.contains("\"allowed\":true") { '+' } else { '-' };
    output.stdout.lines().map(verdict).collect()
}

#[test]
fn a_slot_is_held_while_its_request_is_in_flight() {
    // A request that ends when another arrives has released its slot. The lease of 30 s is renewed.
    let arrivals = "0 k 1 2\n1.999999 k\n1 other\n2 k\n2 k 1 40\n41.9 k\n42 k 1 9\n43 k 0\n44 k\n";
    assert_eq!(verdicts(arrivals, &["--limit", "slots"]), "+-+++-++-");
    // A request stays in flight when the clock is set back.
    assert_eq!(verdicts("100 k 1 5\n50 k\n54.9 k\n55 k\n", &["--limit", "slots"]), "+--+");
    // A delayed request holds its slot.
    assert_eq!(verdicts("0 k\n0 k 1 0.5\n1.4 k\n1.5 k\n", &["--limit", "queue,slots"]), "++-+");
    // A request that another limit denies has no slot.
    assert_eq!(verdicts("0 k 6 9\n0 k 1 9\n0 k 1 9\n", &["--limit", "few,bucket"]), "-++");
}

#[test]
fn a_shadow_limit_decides_only_on_its_own() {
    assert_eq!(verdicts("0\n0\n0\n", &["--limit", "watched"]), "+--");
    assert_eq!(verdicts("0\n0\n0\n", &["--limit", "watched,bucket"]), "+++");
    assert_eq!(verdicts("0\n0\n", &["--limit", "watched,bucket", "--compare"]), "++-+");
}

#[test]
fn overrides_allow_and_block_apply_to_named_keys() {
    let output = simulate(
        ALL,
        "0 other\n0 acme|POST\n0 acme|GET\n0 acme\n0 internal 99\n0 stolen|GET 0\n",
        &["--limit", "named", "--format", "jsonl"],
    );
    let of: Vec<&str> = output.stdout.lines().filter_map(|line| line.split("\"of\":").nth(1)).collect();
    let of: Vec<&str> = of.iter().filter_map(|rest| rest.split(",\"reset").next()).collect();
    let left = |of: u64, left: u64| format!("{of},\"remaining\":{left}");
    assert_eq!(of, [left(1, 0), left(5, 4), left(7, 6), left(5, 4), left(1, 1), left(1, 0)]);
    assert!(output.stdout.lines().last().unwrap().contains("\"allowed\":false"), "{}", output.stdout);
    // A blocked request is charged by no other limit.
    let arrivals = "0 stolen\n0 stolen\n0 stolen\n0 stolen\n0 stolen\n0 stolen\n0 internal\n";
    let output = simulate(ALL, arrivals, &["--limit", "named,bucket", "--format", "jsonl"]);
    assert!(output.stdout.ends_with("\"limit\":\"bucket\",\"of\":5,\"remaining\":4,\"reset_after\":0.333334,\"retry_after\":0,\"delay\":0}\n"), "{}", output.stdout);
    assert_eq!(verdicts("0 x\n0 x\n", &["--limit", "named.pro"]), "++");
}

#[test]
fn compared_tiers_are_labelled() {
    let compared = &["--limit", "named,named.pro", "--compare"];
    let output = simulate(ALL, "0 k\n", compared);
    let lines: Vec<&str> = output.stdout.lines().map(str::trim).collect();
    assert!(lines[0].ends_with("named                          named.pro"), "{}", output.stdout);
    assert!(lines.iter().any(|line| line.starts_with("named.pro  1 admitted")), "{}", output.stdout);
    let output = simulate(ALL, "0 k\n", &[compared, &["--format", "jsonl"][..]].concat());
    assert!(output.stdout.contains("\"limit\":\"named.pro\""), "{}", output.stdout);
}

#[test]
fn blocked_requests_are_counted_apart_from_excessive_costs() {
    let output = simulate(ALL, "0 stolen|GET\n0 x|GET 99\n", &["--limit", "named"]);
    let summary = "denied 2; 1 of them blocked; 1 of them cost more than the limit\n";
    assert!(output.stdout.ends_with(summary), "{}", output.stdout);
}

#[test]
fn bans_are_shown() {
    let output = simulate(ALL, "0 k 2\n0 k\n0 k\n0 k\n9 k\n20 k\n", &["--limit", "banned"]);
    let verdicts: Vec<&str> =
        output.stdout.lines().skip(1).take(6).filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert_eq!(verdicts, ["allowed", "denied", "denied", "banned", "banned", "allowed"], "{}", output.stdout);
}

#[test]
fn redis_decides_like_memory_with_every_algorithm() {
    let server = RedisServer::start();
    let all =
        "bucket,interval,spaced,window,own-window,daily,log,sliding,queue,slots,few,watched,banned,named";
    let arrivals = random_arrivals(300);
    let url = server.url();
    for args in [
        &["--limit", all, "--compare", "--format", "jsonl"][..],
        &["--limit", all, "--compare"],
        &["--limit", "queue,few,watched,bucket,named", "--format", "jsonl"],
        &["--limit", "queue,few,log,window", "--compare", "--format", "svg"],
    ] {
        let memory = simulate(ALL, &arrivals, args);
        let redis = simulate(ALL, &arrivals, &[args, &["--store", &url]].concat());
        assert_eq!((memory.status, redis.status, redis.stderr.as_str()), (0, 0, ""), "{args:?}");
        for (memory, redis) in memory.stdout.lines().zip(redis.stdout.lines()) {
            assert_eq!(memory, redis, "{args:?}");
        }
        assert!(memory.stdout == redis.stdout);
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}
