//! Benchmarks the cost of each algorithm in its store: the CPU time of Redis for a check, and the memory of a key in Redis
//! and in this process. Starts its own redis-server and prints tables. CPU time is reported by Redis: other load on the
//! machine affects it less than wall time.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidegate::limit::{Align, Charge, Holder, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::RedisTarget;
use tidegate::store::{Memory, Redis, RedisSpec};
use tidegate::time::{Clock, Micros, Timestamp};

const START: u64 = 1_790_000_000_000_000;
const MINUTE: Micros = Micros(60_000_000);
/// The number of checks for a mean.
const CHECKS: u64 = 60_000;
const REDIS_KEYS: u64 = 20_000;
/// The number of keys that sliding logs should hold in less than 80 MB, with 60 entries each.
const LOG_KEYS: u64 = 100_000;
const PROCESS_KEYS: u64 = 1_000_000;
/// The environment variable that selects the measurement of a child process.
const CHILD: &str = "STORES_BENCH_CHILD";

/// A Redis server; stopped on drop.
struct Server {
    process: Child,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("redis.sock");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self { process, socket, _directory: directory }
    }

    fn cli(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli").arg("-s").arg(&self.socket).args(words).output();
        String::from_utf8_lossy(&output.expect("redis-cli is installed").stdout).into_owned()
    }

    fn number(&self, section: &str, field: &str) -> f64 {
        let info = self.cli(&["info", section]);
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).expect("a number")
    }

    /// Seconds of CPU time so far.
    fn cpu(&self) -> f64 {
        self.number("cpu", "used_cpu_user") + self.number("cpu", "used_cpu_sys")
    }

    fn memory(&self) -> f64 {
        self.number("memory", "used_memory")
    }

    async fn connect(&self, clock: &Arc<Clock>) -> Redis {
        let url = format!("unix://{}", self.socket.display());
        let spec = RedisSpec {
            target: RedisTarget::parse(&url).expect("a URL"),
            timeout: Duration::from_secs(20),
            prefix: "tidegate".into(),
            client_clock: false,
        };
        let redis = Redis::connect_at(&spec, Arc::clone(clock));
        redis.wait_connected(Duration::from_secs(10)).await.expect("Redis is reachable");
        redis
    }
}

fn quotas() -> Vec<(&'static str, Quota)> {
    let rate = |units| Rate::new(units, MINUTE).expect("not zero");
    let fits = "it fits";
    vec![
        ("token_bucket", Quota::token_bucket(rate(600), 600).expect(fits)),
        ("token_bucket, interval", Quota::interval_bucket(rate(600), 600).expect(fits)),
        ("gcra", Quota::gcra(rate(600), 600).expect(fits)),
        ("fixed_window", Quota::fixed_window(rate(600), Align::Clock).expect(fits)),
        ("sliding_log, 60 a minute", Quota::sliding_log(&[rate(60)]).expect(fits)),
        ("sliding_window, 1 part", Quota::sliding_window(rate(600), 1).expect(fits)),
        ("sliding_window, 60 parts", Quota::sliding_window(rate(600), 60).expect(fits)),
        ("leaky_bucket", Quota::leaky_bucket(rate(600), 600).expect(fits)),
        ("concurrency, 20", Quota::concurrency(20, MINUTE).expect(fits)),
    ]
}

/// A key as real requests have: a hash.
fn key(number: u64) -> Key {
    Key(blake3::hash(&number.to_le_bytes()).as_bytes()[..16].try_into().expect("16 bytes"))
}

fn charge(policy: u32, number: u64, keys: u64) -> Charge {
    Charge { holder: Holder(number + 1), ..Charge::take(PolicyId(policy), key(number % keys), 1) }
}

/// µs of Redis' CPU time per request that is charged on the first `stack` policies, with so many requests `at_once`:
/// waiting requests are batched into one call.
async fn cpu_per_request(server: &Server, policies: &Arc<[Policy]>, stack: u32, at_once: u64) -> f64 {
    const KEYS: u64 = 1_000;
    server.cli(&["flushall"]);
    let clock = Arc::new(Clock::manual(Timestamp(START)));
    let redis = server.connect(&clock).await;
    // Warm up to the states of a running system: 60 requests a key, a second apart.
    for second in 0..60 {
        clock.set(Timestamp(START + second * 1_000_000));
        let all: Vec<Charge> = (0..KEYS).flat_map(|n| (0..stack).map(move |p| charge(p, n, KEYS))).collect();
        redis.apply(policies, &all).await.expect("Redis responds");
    }
    clock.set(Timestamp(START + 61_000_000));
    let requests = CHECKS / if at_once == 1 { 4 } else { 1 };
    let before = server.cpu();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..at_once {
        let (redis, policies) = (redis.clone(), Arc::clone(policies));
        tasks.spawn(async move {
            for n in (task..requests).step_by(usize::try_from(at_once).expect("small")) {
                let charges: Vec<Charge> = (0..stack).map(|p| charge(p, n, KEYS)).collect();
                redis.take(&policies, &charges).await.expect("Redis responds");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    #[allow(clippy::cast_precision_loss)]
    let per_request = (server.cpu() - before) * 1e6 / requests as f64;
    per_request
}

/// Bytes of Redis' memory per key after 60 requests each, a second apart.
#[allow(clippy::cast_precision_loss)]
async fn redis_bytes(server: &Server, policies: &Arc<[Policy]>, keys: u64) -> f64 {
    server.cli(&["flushall"]);
    let clock = Arc::new(Clock::manual(Timestamp(START)));
    let redis = server.connect(&clock).await;
    redis.apply(policies, &[charge(0, 0, 1)]).await.expect("Redis responds");
    let before = server.memory();
    for second in 0..60 {
        clock.set(Timestamp(START + second * 1_000_000));
        let all: Vec<Charge> = (0..keys).map(|n| charge(0, n, keys)).collect();
        // The limit of 20 concurrent requests is reached: the others are denied.
        redis.apply(policies, &all).await.expect("Redis responds");
    }
    (server.memory() - before) / keys as f64
}

/// Bytes of this process per key after one request each.
#[allow(clippy::cast_precision_loss)]
fn process_bytes(policies: &[Policy], requests: u64, keys: u64) -> f64 {
    let clock = Clock::manual(Timestamp(START));
    let before = resident();
    let memory = Memory::new(usize::try_from(keys).expect("small"), clock);
    for second in 0..requests {
        memory.clock().set(Timestamp(START + second * 1_000_000));
        for n in 0..keys {
            let _ = memory.take(policies, &[charge(0, n, keys)]);
        }
    }
    (resident() - before) / memory.len() as f64
}

/// Bytes of memory that this process has.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096.0
}

fn policy(name: &str, quota: &Quota) -> Policy {
    Policy::new(name, quota.clone())
}

async fn redis_tables(server: &Server) {
    println!("\nRedis, CPU µs per request     | one at a time | 64 at once |");
    println!("----------------------------- | ------------: | ---------: |");
    for (name, quota) in quotas() {
        let policies: Arc<[Policy]> = vec![policy("per-key", &quota)].into();
        let alone = cpu_per_request(server, &policies, 1, 1).await;
        let gathered = cpu_per_request(server, &policies, 1, 64).await;
        println!("{name:<29} | {alone:13.2} | {gathered:10.2} |");
    }
    let stack: Arc<[Policy]> = quotas().iter().map(|(name, quota)| policy(name, quota)).take(4).collect();
    let alone = cpu_per_request(server, &stack, 4, 1).await;
    let gathered = cpu_per_request(server, &stack, 4, 64).await;
    println!("{:<29} | {alone:13.2} | {gathered:10.2} |", "the first four on one request");
    println!("\nRedis, bytes a key            | 60 requests each, {REDIS_KEYS} keys |");
    println!("----------------------------- | ---------------------------: |");
    for (name, quota) in quotas() {
        let policies: Arc<[Policy]> = vec![policy("per-key", &quota)].into();
        let bytes = redis_bytes(server, &policies, REDIS_KEYS).await;
        println!("{name:<29} | {bytes:28.0} |");
    }
    let policies: Arc<[Policy]> = vec![policy("per-key", &log())].into();
    let bytes = redis_bytes(server, &policies, LOG_KEYS).await;
    #[allow(clippy::cast_precision_loss)]
    let all = bytes * LOG_KEYS as f64 / 1e6;
    println!("\n{LOG_KEYS} sliding logs of 60 entries: {all:.1} MB");
}

fn log() -> Quota {
    Quota::sliding_log(&[Rate::new(60, MINUTE).expect("not zero")]).expect("it fits")
}

fn main() {
    // Each figure is measured in its own process: an allocator does not always return freed memory to the system.
    if let Some(place) = std::env::var(CHILD).ok().and_then(|place| place.parse::<usize>().ok()) {
        let bytes = match quotas().get(place) {
            Some((_, quota)) => process_bytes(&[policy("per-key", quota)], 1, PROCESS_KEYS),
            None => process_bytes(&[policy("per-key", &log())], 60, 50_000),
        };
        println!("{bytes:.0}");
        return;
    }
    println!("\nThis process, bytes a key     | {PROCESS_KEYS} keys |");
    println!("----------------------------- | -----------: |");
    let names = quotas().into_iter().map(|(name, _)| name).chain(["sliding_log with 60 entries"]);
    for (place, name) in names.enumerate() {
        let own = std::env::current_exe().expect("its own name");
        let child = Command::new(own).env(CHILD, place.to_string()).output().expect("it starts");
        println!("{name:<29} | {:>12} |", String::from_utf8_lossy(&child.stdout).trim());
    }
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(redis_tables(&server));
}
