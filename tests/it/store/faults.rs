//! Redis on its worst day, under steady load. docs/redis.md has the table of what was measured here:
//! `cargo test faults:: -- --nocapture` prints its figures.
//!
//! What has to hold whatever happens is asserted in one place, [`Trial::end`]. How slow the machine itself is at the
//! time is told by canaries: requests for a route without limits.

mod error_replies;
mod failover;
mod load;
mod network;
mod stopped;

use std::time::{Duration, Instant};

use self::load::{Asked, Load};
use crate::support::{PATIENCE, RedisServer, Tidegate, eventually, get};

/// What `[store]` has by default.
const DEADLINE: Duration = Duration::from_millis(50);
/// So many units no key spends while a test runs.
const PLENTY: u64 = 100_000;
/// More may be asked before it is known that nobody answers: by two workers, each with some connections.
const MOST_WAITS: usize = 100;
/// For how long a deadline that is missed may keep a worker from Redis: its breaker opens, and Redis is probed after half a
/// second.
const REOPENED: Duration = Duration::from_millis(600);
/// What the proxy may need more, in KiB, before and after.
const MOST_MEMORY: u64 = 24 * 1024;

/// Each route has a limit of its own, by what it does without the store, and `/all` a stack of two.
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

/// The limits, and the routes on which they are.
const LIMITS: [(&str, &str); 5] =
    [("local", "/local"), ("allow", "/allow"), ("deny", "/deny"), ("first", "/all"), ("second", "/all")];

/// A proxy under load.
struct Trial {
    name: &'static str,
    proxy: Tidegate,
    load: Load,
    /// Lines of the log before the fault.
    said: usize,
    /// What it needed before the fault.
    memory: u64,
}

/// What is to be expected of a fault.
struct Expected<'a> {
    /// What the log may say of why the store is unavailable; nothing means that it is not noticed at all.
    reasons: &'a [&'a str],
    /// Whether Redis still has after it what it had before.
    keeps: bool,
}

/// A key that nobody has asked for.
fn fresh() -> String {
    format!("X-Key: {}", fastrand::u64(..))
}

impl Trial {
    /// Starts a proxy with this in `[store]`, and the load, and lets it go for a moment.
    #[track_caller]
    fn of(name: &'static str, store: &str) -> Self {
        let (keys, tables) = ROUTES.split_once("[admin]").unwrap();
        let proxy = Tidegate::start(&format!("{keys}\n[store]\n{store}\n[admin]{tables}"));
        let started = Instant::now();
        while !is_exact(&proxy) {
            assert!(started.elapsed() < PATIENCE, "it does not begin");
        }
        let load = Load::on(proxy.addr());
        // The steady load before the fault.
        std::thread::sleep(Duration::from_millis(300));
        eventually("no breaker is open", || get(proxy.admin(), "/ready", &[]).text().ends_with(": up\n"));
        let (said, memory) = (proxy.lines().len(), proxy.memory());
        Self { name, proxy, load, said, memory }
    }

    /// The same over one server.
    #[track_caller]
    fn over(name: &'static str, redis: &RedisServer) -> Self {
        Self::of(name, &format!("url = \"{}\"", redis.url()))
    }

    /// What has to hold after the fault is mended, which is now.
    #[track_caller]
    fn end(mut self, expected: &Expected) {
        let mended = Instant::now();
        while !is_exact(&self.proxy) {
            assert!(mended.elapsed() < PATIENCE, "limits are not exact again");
        }
        let exact = mended.elapsed();
        // The steady load after the fault.
        std::thread::sleep(Duration::from_millis(300));
        let more = self.proxy.memory().saturating_sub(self.memory);
        let (asked, canaries) = self.load.end();
        let lines = self.proxy.lines().split_off(self.said);
        let canary = slowest(&canaries);
        let alone = asked.iter().filter(|one| !one.is_counted && one.path != "/local").count();
        let refused = asked.iter().filter(|one| one.status == 503).count();
        let disturbed = disturbed(&canaries, mended, exact);
        println!(
            "{}: {} asked, {alone} without Redis, {refused} refused, {} waited; slowest {:.0?}, canary {canary:.0?}; \
             exact after {exact:.1?}, of which the machine was slow for {disturbed:.1?}; {more} KiB more\n    {}",
            self.name,
            asked.len(),
            waits(&asked),
            slowest(&asked),
            lines.join("\n    "),
        );

        // What each policy asks for, and nothing else.
        for one in &asked {
            let is_right = match (one.path, one.is_counted) {
                ("/deny" | "/all", false) => one.status == 503,
                _ => one.status == 200,
            };
            assert!(is_right, "{one:?}");
        }
        assert!(canaries.iter().all(|one| one.status == 200));
        assert_waits(&asked, &canaries);
        // Two seconds after, without the time in which the machine was so slow that Redis itself misses its deadline; as much
        // longer as the machine is slow.
        assert!(
            exact.saturating_sub(disturbed) <= Duration::from_secs(2) + canary * 4,
            "{exact:?}, of which the machine was slow for {disturbed:?}, and the slowest canary {canary:?}"
        );
        assert!(more <= MOST_MEMORY, "{more} KiB more");
        self.assert_charges(&asked, expected);
        assert_log(&lines, expected, canary);
    }

    /// What was counted in Redis is there, if it has kept it; and once only. More can have been charged by calls whose
    /// answer did not come, and what was admitted alone may be charged later.
    #[track_caller]
    fn assert_charges(&self, asked: &[Asked], expected: &Expected) {
        let unknown: usize = ["deadline", "lost", "garbled"].map(|outcome| self.calls(outcome)).iter().sum();
        for (limit, path) in LIMITS {
            let of_limit = || asked.iter().filter(|one| one.path == path);
            let counted = of_limit().filter(|one| one.is_counted).count();
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

    /// How many calls to Redis ended so.
    #[track_caller]
    fn calls(&self, outcome: &str) -> usize {
        let metrics = get(self.proxy.admin(), "/metrics", &[]);
        let name = format!("tidegate_store_calls_total{{outcome=\"{outcome}\"}} ");
        metrics.text().lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    /// What Redis has charged.
    #[track_caller]
    fn charged(&self, limit: &str, path: &str) -> usize {
        let target = format!("/keys/peek?limit={limit}&key={}", path.trim_start_matches('/'));
        let mut remaining = None;
        // A machine that is busy with other tests may not answer within the deadline each time.
        eventually("Redis says what is left", || {
            let answer = get(self.proxy.admin(), &target, &[]);
            let standing: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            remaining = standing["keys"][0]["remaining"].as_u64();
            remaining.is_some()
        });
        usize::try_from(PLENTY - remaining.unwrap()).unwrap()
    }
}

fn slowest(asked: &[Asked]) -> Duration {
    asked.iter().map(|one| one.took).max().unwrap()
}

/// For how long of the time `length` from `start` a worker may have been without Redis because the machine was slow: where a
/// canary took half a deadline, a call to Redis, which wakes up two processes more, may have missed all of it.
fn disturbed(canaries: &[Asked], start: Instant, length: Duration) -> Duration {
    let mut slow: Vec<(Duration, Duration)> = canaries
        .iter()
        .filter(|one| one.took >= DEADLINE / 2 && one.at + one.took + REOPENED > start)
        .map(|one| {
            let begins = one.at.saturating_duration_since(start);
            (begins, (one.at + one.took + REOPENED - start).min(length))
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

/// How many waited as if for the deadline.
fn waits(asked: &[Asked]) -> usize {
    asked.iter().filter(|one| one.took >= DEADLINE * 9 / 10).count()
}

/// Nobody waits longer than the deadline, and so long only until it is known that nobody answers. What else takes
/// time is the machine's, of which the canaries know; a mistake would cost seconds, or everybody a deadline.
#[track_caller]
fn assert_waits(asked: &[Asked], canaries: &[Asked]) {
    let (slowest, canary) = (slowest(asked), slowest(canaries));
    let most = DEADLINE + canary.max(Duration::from_millis(100)) * 4;
    assert!(slowest <= most, "{slowest:?}, and the slowest canary {canary:?}");
    let (waits, slow) = (waits(asked), waits(canaries));
    assert!(waits <= MOST_WAITS + 5 * slow, "{waits} waited, and {slow} canaries of {}", canaries.len());
}

/// One line for each change, with its reason. Where even a canary took half a deadline, the machine may have been a fault
/// of its own.
#[track_caller]
fn assert_log(lines: &[String], expected: &Expected, canary: Duration) {
    let saying = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    let (gone, back) = (saying("the store is unavailable: "), saying("the store is available again"));
    let partly = saying("the store refuses some calls: ");
    assert_eq!(gone + back + partly, lines.len(), "{lines:#?}");
    let is_slow = canary >= DEADLINE / 2;
    let most = if expected.reasons.is_empty() && !is_slow { 0 } else { 3 };
    let least = usize::from(!expected.reasons.is_empty());
    assert!((least..=most).contains(&(gone + partly)) && gone == back && partly <= 1, "{lines:#?}");
    for line in lines.iter().filter(|line| line.contains(" WARN ")) {
        let is_known = |reason: &str| line.contains(&format!(": {reason}"));
        let is_expected = expected.reasons.iter().any(|reason| is_known(reason));
        // A deadline that is missed counts as the first failure, and what Redis does then as the one that opens the breaker.
        let machines = ["no reply within the deadline", "the connection closed before the reply"];
        assert!(is_expected || is_slow && machines.into_iter().any(is_known), "{line}");
    }
}

/// Whether a key that has five units gets five of them, and no more: whichever worker is asked, it counts in Redis.
#[track_caller]
fn is_exact(proxy: &Tidegate) -> bool {
    let key = fresh();
    // Connections go to workers at random: hardly all of so many to one.
    let statuses: Vec<u16> = (0..16).map(|_| get(proxy.addr(), "/exact", &[&key]).status()).collect();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert!(count(200) <= 5, "{statuses:?}");
    (count(200), count(429)) == (5, 11)
}
