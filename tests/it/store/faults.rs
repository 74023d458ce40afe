//! Faults of Redis under steady load. docs/redis.md has a table of measurements: `cargo test faults:: -- --nocapture`
//! prints its figures.
//!
//! [`Trial::end`] asserts what must hold in every fault. How slow the machine itself is at the time is measured with
//! canaries: requests for a route without limits. Each fault is tried with limits of which Redis decides every request, and with
//! limits that have `ahead`, so that the proxy holds units when Redis fails.

mod checks;
mod error_replies;
mod failover;
mod load;
mod network;
mod routes;
mod stopped;

use std::time::{Duration, Instant};

use self::checks::{assert_log, assert_waits, disturbed, slowest, waits};
use self::load::{Load, Sample};
use self::routes::{Ahead, routes};
use crate::support::{Cluster, RedisServer, Tidegate, eventually, get, patience, scaled};

/// The default of `timeout` in `[store]`.
const DEADLINE: Duration = Duration::from_millis(50);
/// The units of each key; a test spends fewer.
const PLENTY: u64 = 100_000;
/// By how much the memory of the proxy may grow during a fault, in KiB.
const MOST_MEMORY: u64 = 24 * 1024;
/// Rounds of the load before and after a fault.
const CALM_ROUNDS: usize = 30;
/// Rounds of the load while the breakers are open: they take more than a second, in which two probes of each worker fail.
const OUTAGE_ROUNDS: usize = 100;

/// The most units of a grant: more than the clients can send requests for a key in that time.
const MOST_GRANTED: usize = 250;

/// The limits and their routes.
const LIMITS: [(&str, &str); 5] =
    [("local", "/local"), ("allow", "/allow"), ("deny", "/deny"), ("first", "/all"), ("second", "/all")];

/// A proxy under load.
struct Trial {
    name: &'static str,
    ahead: Ahead,
    proxy: Tidegate,
    load: Load,
    /// The `timeout` of calls.
    timeout: Duration,
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

/// Runs a fault with both kinds of limits.
#[track_caller]
fn try_fault(fault: impl Fn(Ahead)) {
    fault(Ahead::Off);
    fault(Ahead::On);
}

/// A key that was not used before.
fn fresh_key() -> String {
    format!("X-Key: {}", fastrand::u64(..))
}

impl Trial {
    /// Starts a proxy with these lines in `[store]`, and the load, and waits until requests are counted in Redis.
    #[track_caller]
    fn start(name: &'static str, ahead: Ahead, store: &str) -> Self {
        let timeout = Self::timeout(DEADLINE);
        Self::start_with(name, ahead, &format!("{store}\ntimeout = \"{timeout:?}\""), timeout)
    }

    /// The same with a cluster, and a longer `timeout`: single calls must not miss it, also on a busy machine.
    #[track_caller]
    fn with_cluster(name: &'static str, ahead: Ahead, cluster: &Cluster) -> Self {
        let timeout = Self::timeout(DEADLINE * 5);
        let store = format!("url = \"{}\"\ntimeout = \"{timeout:?}\"", cluster.url());
        Self::start_with(name, ahead, &store, timeout)
    }

    /// A time for calls that suffices on this machine, in whole milliseconds.
    fn timeout(time: Duration) -> Duration {
        Duration::from_millis(u64::try_from(scaled(time).as_millis()).unwrap())
    }

    #[track_caller]
    fn start_with(name: &'static str, ahead: Ahead, store: &str, timeout: Duration) -> Self {
        let routes = routes(ahead);
        let (keys, tables) = routes.split_once("[admin]").unwrap();
        let proxy = Tidegate::start(&format!("{keys}\n[store]\n{store}\n[admin]{tables}"));
        let started = Instant::now();
        while !is_exact(&proxy) {
            assert!(started.elapsed() < patience(), "the limits are not exact at the start");
        }
        let load = Load::start(proxy.addr());
        load.wait_rounds(ahead.rounds(CALM_ROUNDS));
        eventually("no breaker is open", || get(proxy.admin(), "/ready", &[]).text().ends_with(": up\n"));
        let (lines, memory) = (proxy.lines().len(), proxy.memory());
        let trial = Self { name, ahead, proxy, load, timeout, lines, memory };
        trial.wait_held();
        trial
    }

    /// Waits for so many rounds of the load, or fewer with `ahead`.
    #[track_caller]
    fn run(&self, rounds: usize) {
        self.load.wait_rounds(self.ahead.rounds(rounds));
    }

    /// Waits until units of every limit with `ahead` are held.
    #[track_caller]
    fn wait_held(&self) {
        if self.ahead == Ahead::On {
            let held = |limit| self.proxy.metric(&format!("tidegate_ahead_units_held{{limit=\"{limit}\"}}"));
            eventually("units are held", || LIMITS.iter().all(|(limit, _)| held(limit) > 0));
        }
    }

    /// The same with a single Redis server.
    #[track_caller]
    fn with_server(name: &'static str, ahead: Ahead, redis: &RedisServer) -> Self {
        Self::start(name, ahead, &format!("url = \"{}\"", redis.url()))
    }

    /// Waits until the breakers of both workers are open, and until the clients have sent many requests meanwhile.
    #[track_caller]
    fn run_outage(&self) {
        let open = || self.proxy.metric("tidegate_store_breakers_open");
        eventually("the breakers of both workers are open", || open() == 2);
        self.run(OUTAGE_ROUNDS);
    }

    /// Asserts what must hold after the fault is repaired, which it is now.
    #[track_caller]
    fn end(mut self, expected: &Expected) {
        let mended = Instant::now();
        while !is_exact(&self.proxy) {
            assert!(mended.elapsed() < patience(), "limits are not exact again");
        }
        let exact = mended.elapsed();
        self.run(CALM_ROUNDS);
        self.wait_held();
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
            "{}, ahead {:?}: {} requests, {without} without Redis, {denied} denied, {} waited; slowest {:.0?}, canary {canary:.0?}; \
             exact after {exact:.1?}, of which the machine was slow for {disturbed:.1?}; {growth} KiB more\n    {}",
            self.name,
            self.ahead,
            samples.len(),
            waits(&samples, &canaries, self.timeout),
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
        assert_waits(&samples, &canaries, self.timeout);
        // Two seconds after, without the time in which the machine was so slow that Redis itself misses its deadline; as much
        // longer as the machine is slow.
        assert!(
            exact.saturating_sub(disturbed) <= scaled(Duration::from_secs(2)) + canary * 4,
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
        let unknown = self.calls(&["timeout", "connection_lost", "malformed"]);
        for (limit, path) in LIMITS {
            let of_limit = || samples.iter().filter(|sample| sample.path == path);
            let counted = of_limit().filter(|sample| sample.is_counted).count();
            let least = if expected.keeps { counted } else { 0 };
            let most = if path == "/local" { of_limit().count() } else { counted + unknown };
            let most = most + self.lapsed(limit);
            // At any time as much as was admitted.
            let charged = self.charged(limit, path);
            assert!(charged >= least, "{limit}: {charged} charged, {counted} counted");
            let mut charged = charged;
            eventually("units that are not spent are not charged", || {
                charged = self.charged(limit, path);
                charged <= most
            });
            assert!(charged >= least, "{limit}: {charged} charged, {counted} counted");
        }
        if expected.keeps && self.ahead == Ahead::Off {
            assert_eq!(self.charged("first", "/all"), self.charged("second", "/all"), "all or none");
        }
    }

    /// How many calls to Redis had these outcomes.
    fn calls(&self, outcomes: &[&str]) -> usize {
        let calls = |outcome: &&str| {
            self.proxy.metric(&format!("tidegate_store_requests_total{{outcome=\"{outcome}\"}}"))
        };
        usize::try_from(outcomes.iter().map(calls).sum::<u64>()).unwrap()
    }

    /// How many granted units Redis may have charged that no request has spent.
    fn lapsed(&self, limit: &str) -> usize {
        if self.ahead == Ahead::Off {
            return 0;
        }
        let units = |event| {
            let series = format!("tidegate_ahead_units_total{{limit=\"{limit}\",event=\"{event}\"}}");
            usize::try_from(self.proxy.metric(&series)).unwrap()
        };
        let failed = ["not_connected", "not_sent", "connection_lost", "timeout", "malformed", "error"];
        if self.calls(&failed) == 0 {
            return units("lapsed");
        }
        // Any grant may have lost its report, and so may any call its grant.
        let unknown = self.calls(&["timeout", "connection_lost", "malformed"]);
        units("granted") - units("spent") + unknown * MOST_GRANTED
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
