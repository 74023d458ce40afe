//! Faults of Redis under steady load. docs/redis.md has a table of measurements: `cargo test faults:: -- --nocapture`
//! prints its figures.
//!
//! [`Trial::end`] asserts what must hold in every fault. How slow the machine itself is at the time is measured with
//! canaries: requests for a route without limits.

mod error_replies;
mod failover;
mod load;
mod network;
mod stopped;

use std::time::{Duration, Instant};

use self::load::{Load, Sample};
use crate::support::{PATIENCE, RedisServer, Tidegate, eventually, get};

/// The default of `timeout` in `[store]`.
const DEADLINE: Duration = Duration::from_millis(50);
/// The units of each key; a test spends fewer.
const PLENTY: u64 = 100_000;
/// How many requests may wait for the deadline before the breakers of both workers are open.
const MOST_WAITS: usize = 100;
/// For how long a missed deadline may keep a worker from using Redis: its breaker opens, and Redis is probed after half a
/// second.
const REOPENED: Duration = Duration::from_millis(600);
/// By how much the memory of the proxy may grow during a fault, in KiB.
const MOST_MEMORY: u64 = 24 * 1024;
/// Rounds of the load before and after a fault.
const CALM_ROUNDS: usize = 30;
/// Rounds of the load while the breakers are open: they take more than a second, in which two probes of each worker fail.
const OUTAGE_ROUNDS: usize = 100;

/// A route for each value of `on_store_failure`, and `/all` with two limits.
const ROUTES: &str = r#"
    listen = "127.0.0.1:0"
    workers = 2
    [admin]
    listen = "127.0.0.1:0"
    [limits.local]
    rate = "1/day"
    burst = 100000
    key = "route"
    [limits.allow]
    rate = "1/day"
    burst = 100000
    key = "route"
    on_store_failure = "allow"
    [limits.deny]
    rate = "1/day"
    burst = 100000
    key = "route"
    on_store_failure = "deny"
    [limits.first]
    algorithm = "gcra"
    rate = "1/day"
    burst = 99999
    key = "route"
    on_store_failure = "deny"
    [limits.second]
    algorithm = "sliding_window"
    rate = "100000/day"
    key = "route"
    [limits.exact]
    rate = "1/day"
    burst = 5
    key = "header:x-key"
    on_store_failure = "deny"
    [[routes]]
    name = "local"
    path = "/local"
    limits = ["local"]
    respond = { status = 200 }
    [[routes]]
    name = "allow"
    path = "/allow"
    limits = ["allow"]
    respond = { status = 200 }
    [[routes]]
    name = "deny"
    path = "/deny"
    limits = ["deny"]
    respond = { status = 200 }
    [[routes]]
    name = "all"
    path = "/all"
    limits = ["first", "second"]
    respond = { status = 200 }
    [[routes]]
    path = "/exact"
    limits = ["exact"]
    respond = { status = 200 }
    [[routes]]
    path = "/free"
    respond = { status = 200 }
"#;

/// The limits and their routes.
const LIMITS: [(&str, &str); 5] =
    [("local", "/local"), ("allow", "/allow"), ("deny", "/deny"), ("first", "/all"), ("second", "/all")];

/// A proxy under load.
struct Trial {
    name: &'static str,
    proxy: Tidegate,
    load: Load,
    /// Lines of the log before the fault.
    lines: usize,
    /// The memory of the proxy before the fault, in KiB.
    memory: u64,
}

/// The expected effects of a fault.
struct Expected<'a> {
    /// The reasons that the log may give for an unavailable store; empty if the fault must not be noticed at all.
    reasons: &'a [&'a str],
    /// Whether Redis keeps its data.
    keeps: bool,
}

/// A key that was not used before.
fn fresh_key() -> String {
    format!("X-Key: {}", fastrand::u64(..))
}

impl Trial {
    /// Starts a proxy with these lines in `[store]`, and the load, and waits until requests are counted in Redis.
    #[track_caller]
    fn start(name: &'static str, store: &str) -> Self {
        let (keys, tables) = ROUTES.split_once("[admin]").unwrap();
        let proxy = Tidegate::start(&format!("{keys}\n[store]\n{store}\n[admin]{tables}"));
        let started = Instant::now();
        while !is_exact(&proxy) {
            assert!(started.elapsed() < PATIENCE, "the limits are not exact at the start");
        }
        let load = Load::start(proxy.addr());
        load.wait_rounds(CALM_ROUNDS);
        eventually("no breaker is open", || get(proxy.admin(), "/ready", &[]).text().ends_with(": up\n"));
        let (lines, memory) = (proxy.lines().len(), proxy.memory());
        Self { name, proxy, load, lines, memory }
    }

    /// The same with a single Redis server.
    #[track_caller]
    fn with_server(name: &'static str, redis: &RedisServer) -> Self {
        Self::start(name, &format!("url = \"{}\"", redis.url()))
    }

    /// Waits until the breakers of both workers are open, and until the clients have sent many requests meanwhile.
    #[track_caller]
    fn run_outage(&self) {
        let open = || self.proxy.metric("tidegate_store_breakers_open");
        eventually("the breakers of both workers are open", || open() == 2);
        self.load.wait_rounds(OUTAGE_ROUNDS);
    }

    /// Asserts what must hold after the fault is repaired, which it is now.
    #[track_caller]
    fn end(mut self, expected: &Expected) {
        let mended = Instant::now();
        while !is_exact(&self.proxy) {
            assert!(mended.elapsed() < PATIENCE, "limits are not exact again");
        }
        let exact = mended.elapsed();
        self.load.wait_rounds(CALM_ROUNDS);
        let growth = self.proxy.memory().saturating_sub(self.memory);
        let (samples, canaries) = self.load.stop();
        // On a slow machine a breaker may have opened again; the next replies close it.
        eventually("no breaker is open", || {
            is_exact(&self.proxy) && self.proxy.metric("tidegate_store_breakers_open") == 0
        });
        let lines = self.proxy.lines().split_off(self.lines);
        let canary = slowest(&canaries);
        let without = samples.iter().filter(|sample| !sample.is_counted && sample.path != "/local").count();
        let denied = samples.iter().filter(|sample| sample.status == 503).count();
        let disturbed = disturbed(&canaries, mended, exact);
        println!(
            "{}: {} requests, {without} without Redis, {denied} denied, {} waited; slowest {:.0?}, canary {canary:.0?}; \
             exact after {exact:.1?}, of which the machine was slow for {disturbed:.1?}; {growth} KiB more\n    {}",
            self.name,
            samples.len(),
            waits(&samples, &canaries),
            slowest(&samples),
            lines.join("\n    "),
        );

        // The status that the policy of each limit demands.
        for sample in &samples {
            let is_right = match (sample.path, sample.is_counted) {
                ("/deny" | "/all", false) => sample.status == 503,
                _ => sample.status == 200,
            };
            assert!(is_right, "{sample:?}");
        }
        assert!(canaries.iter().all(|sample| sample.status == 200));
        assert_waits(&samples, &canaries);
        // Two seconds after, without the time in which the machine was so slow that Redis itself misses its deadline; as much
        // longer as the machine is slow.
        assert!(
            exact.saturating_sub(disturbed) <= Duration::from_secs(2) + canary * 4,
            "{exact:?}, of which the machine was slow for {disturbed:?}, and the slowest canary {canary:?}"
        );
        assert!(growth <= MOST_MEMORY, "{growth} KiB more");
        self.assert_charges(&samples, expected);
        assert_log(&lines, expected, canary);
    }

    /// Asserts that each counted request was charged in Redis exactly once, unless Redis has lost its data. Calls without a
    /// reply may have charged more, and requests admitted without the store may be charged later.
    #[track_caller]
    fn assert_charges(&self, samples: &[Sample], expected: &Expected) {
        let calls =
            |outcome| self.proxy.metric(&format!("tidegate_store_requests_total{{outcome=\"{outcome}\"}}"));
        let unknown: u64 = ["timeout", "connection_lost", "malformed"].map(calls).iter().sum();
        let unknown = usize::try_from(unknown).unwrap();
        for (limit, path) in LIMITS {
            let of_limit = || samples.iter().filter(|sample| sample.path == path);
            let counted = of_limit().filter(|sample| sample.is_counted).count();
            let charged = self.charged(limit, path);
            let least = if expected.keeps { counted } else { 0 };
            let most = if path == "/local" { of_limit().count() } else { counted + unknown };
            assert!(
                (least..=most).contains(&charged),
                "{limit}: {charged} charged, {counted} counted, at most {most}"
            );
        }
        if expected.keeps {
            assert_eq!(self.charged("first", "/all"), self.charged("second", "/all"), "all or none");
        }
    }

    /// How many units Redis has charged.
    #[track_caller]
    fn charged(&self, limit: &str, path: &str) -> usize {
        let target = format!("/v1/keys/peek?limit={limit}&key={}", path.trim_start_matches('/'));
        let mut remaining = None;
        // On a machine that is busy with other tests, Redis may miss the deadline of single calls.
        eventually("Redis reports the remaining units", || {
            let response = get(self.proxy.admin(), &target, &[]);
            let status: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            remaining = status["keys"][0]["remaining"].as_u64();
            remaining.is_some()
        });
        usize::try_from(PLENTY - remaining.unwrap()).unwrap()
    }
}

fn slowest(samples: &[Sample]) -> Duration {
    samples.iter().map(|sample| sample.took).max().unwrap()
}

/// For how long of the time `length` from `start` a worker may have been without Redis because the machine was slow: where a
/// canary took half a deadline, a call to Redis, which wakes up two more processes, may have missed all of it.
fn disturbed(canaries: &[Sample], start: Instant, length: Duration) -> Duration {
    let mut slow: Vec<(Duration, Duration)> = canaries
        .iter()
        .filter(|sample| sample.took >= DEADLINE / 2 && sample.at + sample.took + REOPENED > start)
        .map(|sample| {
            let begins = sample.at.saturating_duration_since(start);
            (begins, (sample.at + sample.took + REOPENED - start).min(length))
        })
        .collect();
    slow.sort_unstable();
    let mut counted = Duration::ZERO;
    let mut sum = Duration::ZERO;
    for (begins, ends) in slow {
        sum += ends.saturating_sub(begins.max(counted));
        counted = counted.max(ends);
    }
    sum
}

/// How many requests took about as long as the deadline while the machine was not slow: where a canary took half a deadline
/// shortly before or after, the machine may have delayed the call to Redis as well.
fn waits(samples: &[Sample], canaries: &[Sample]) -> usize {
    let mut slow: Vec<Instant> =
        canaries.iter().filter(|canary| canary.took >= DEADLINE / 2).map(|canary| canary.at).collect();
    slow.sort_unstable();
    let is_disturbed = |sample: &Sample| {
        let next = slow.partition_point(|at| *at + REOPENED < sample.at);
        slow.get(next).is_some_and(|at| *at <= sample.at + sample.took + REOPENED)
    };
    samples.iter().filter(|sample| sample.took >= DEADLINE * 9 / 10 && !is_disturbed(sample)).count()
}

/// Asserts that no request waits for longer than the deadline, and that only the requests before the breakers open wait at
/// all. The canaries measure what the machine adds; a mistake would add seconds, or a deadline to every request.
#[track_caller]
fn assert_waits(samples: &[Sample], canaries: &[Sample]) {
    let (slowest, canary) = (slowest(samples), slowest(canaries));
    let most = DEADLINE + canary.max(Duration::from_millis(100)) * 4;
    assert!(slowest <= most, "{slowest:?}, and the slowest canary {canary:?}");
    let waits = waits(samples, canaries);
    assert!(waits <= MOST_WAITS, "{waits} of {} requests waited for Redis", samples.len());
}

/// Asserts that there is one line for each change, with its reason. Where even a canary took half a deadline, the slow
/// machine may have been a fault of its own.
#[track_caller]
fn assert_log(lines: &[String], expected: &Expected, canary: Duration) {
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    let (down, up) = (count("the store is unavailable: "), count("the store is available again"));
    let partly = count("some calls to the store fail: ");
    assert_eq!(down + up + partly, lines.len(), "{lines:#?}");
    assert!(down == up && partly <= 1, "{lines:#?}");
    let has_reason =
        |line: &str, reasons: &[&str]| reasons.iter().any(|reason| line.contains(&format!(": {reason}")));
    // A missed deadline counts as the first failure, and the next error of Redis as the one that opens the breaker.
    let slow_machine = ["no reply within the deadline", "the connection closed before the reply"];
    let is_slow = |line: &str| canary >= DEADLINE / 2 && has_reason(line, &slow_machine);
    let warnings = || lines.iter().filter(|line| line.contains(" WARN "));
    for line in warnings() {
        assert!(has_reason(line, expected.reasons) || is_slow(line), "{line}");
    }
    let (least, most) = if expected.reasons.is_empty() { (0, 0) } else { (1, 3) };
    let without_slow = warnings().filter(|line| !is_slow(line)).count();
    assert!(warnings().count() >= least && without_slow <= most, "{lines:#?}");
}

/// Whether a key with five units gets five of them and no more: both workers count in Redis.
#[track_caller]
fn is_exact(proxy: &Tidegate) -> bool {
    let key = fresh_key();
    // Connections go to workers at random; it is unlikely that one worker gets all of them.
    let statuses: Vec<u16> = (0..16).map(|_| get(proxy.addr(), "/exact", &[&key]).status()).collect();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert!(count(200) <= 5, "{statuses:?}");
    (count(200), count(429)) == (5, 11)
}
