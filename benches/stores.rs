//! What each algorithm costs its store: Redis' CPU time for a check, and the memory of a key in Redis and in
//! this process. Starts a redis-server of its own; prints tables. CPU time is Redis' own account of it, which
//! other load on the machine disturbs less than wall time.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidegate::limit::{Align, Charge, Holder, Key, Manner, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::Target;
use tidegate::store::{Memory, Redis, RedisSpec};
use tidegate::time::{Clock, Micros, Timestamp};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const START: u64 = 1_790_000_000_000_000;
const MINUTE: Micros = Micros(60_000_000);
/// Checks that a figure is the mean of.
const CHECKS: u64 = 60_000;
/// Calls that are under way at once.
const AT_ONCE: u64 = 64;
const REDIS_KEYS: u64 = 20_000;
/// What a sliding log is asked to carry in less than 80 MB, with 60 entries each.
const LOG_KEYS: u64 = 100_000;
const PROCESS_KEYS: u64 = 1_000_000;

/// A server that lives as long as this does.
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
            target: Target::parse(&url).expect("a URL"),
            timeout: Duration::from_secs(20),
            prefix: "tidegate".into(),
            client_clock: false,
        };
        let redis = Redis::connect_at(&spec, Arc::clone(clock));
        redis.reach(Duration::from_secs(10)).await.expect("it is there");
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

fn key(number: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    Key(key)
}

fn charge(policy: u32, number: u64, keys: u64) -> Charge {
    Charge { holder: Holder(number + 1), ..Charge::take(PolicyId(policy), key(number % keys), 1) }
}

/// µs of Redis' CPU time per check, where each check is a call of its own, and where 64 go in one.
async fn cpu_per_check(server: &Server, policies: &Arc<[Policy]>, stack: u32, keys: u64) -> (f64, f64) {
    server.cli(&["flushall"]);
    let clock = Arc::new(Clock::manual(Timestamp(START)));
    let redis = server.connect(&clock).await;
    // First the states that a living system has: 60 requests a key, a second apart.
    for second in 0..60 {
        clock.set(Timestamp(START + second * 1_000_000));
        let all: Vec<Charge> = (0..keys).flat_map(|n| (0..stack).map(move |p| charge(p, n, keys))).collect();
        redis.settle(policies, &all).await.expect("it answers");
    }
    clock.set(Timestamp(START + 61_000_000));
    let before = server.cpu();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..AT_ONCE {
        let (redis, policies) = (redis.clone(), Arc::clone(policies));
        tasks.spawn(async move {
            for n in (task..CHECKS).step_by(usize::try_from(AT_ONCE).expect("small")) {
                let charges: Vec<Charge> = (0..stack).map(|p| charge(p, n, keys)).collect();
                redis.take(&policies, &charges).await.expect("it answers");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let single = server.cpu() - before;
    clock.set(Timestamp(START + 121_000_000));
    let before = server.cpu();
    for from in (0..CHECKS).step_by(64) {
        let some: Vec<Charge> = (from..from + 64).map(|n| charge(0, n, keys)).collect();
        redis.settle(policies, &some).await.expect("it answers");
    }
    let gathered = server.cpu() - before;
    #[allow(clippy::cast_precision_loss)]
    let per_check = |seconds: f64| seconds * 1e6 / CHECKS as f64;
    (per_check(single), per_check(gathered))
}

/// Bytes of Redis' memory per key after 60 requests each, a second apart.
#[allow(clippy::cast_precision_loss)]
async fn redis_bytes(server: &Server, policies: &Arc<[Policy]>, keys: u64) -> f64 {
    server.cli(&["flushall"]);
    let clock = Arc::new(Clock::manual(Timestamp(START)));
    let redis = server.connect(&clock).await;
    redis.settle(policies, &[charge(0, 0, 1)]).await.expect("it answers");
    let before = server.memory();
    for second in 0..60 {
        clock.set(Timestamp(START + second * 1_000_000));
        let all: Vec<Charge> = (0..keys).map(|n| charge(0, n, keys)).collect();
        // Twenty in flight are all that there are: the others are refused.
        redis.settle(policies, &all).await.expect("it answers");
    }
    (server.memory() - before) / keys as f64
}

/// Bytes of this process per key after one request each.
#[allow(clippy::cast_precision_loss)]
fn process_bytes(policies: &[Policy], requests: u64, keys: u64) -> f64 {
    let clock = Clock::manual(Timestamp(START));
    let before = resident();
    let memory = Memory::new(usize::try_from(keys * 2).expect("small"), clock);
    for second in 0..requests {
        memory.clock().set(Timestamp(START + second * 1_000_000));
        for n in 0..keys {
            let _ = memory.take(policies, &[charge(0, n + second * 7, keys).with(Manner::Take)]);
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
    println!("\nRedis, CPU µs per check       | one a call | 64 a call |");
    println!("----------------------------- | ---------: | --------: |");
    for (name, quota) in quotas() {
        let policies: Arc<[Policy]> = vec![policy("per-key", &quota)].into();
        let (single, gathered) = cpu_per_check(server, &policies, 1, 1_000).await;
        println!("{name:<29} | {single:10.2} | {gathered:9.2} |");
    }
    let stack: Vec<Policy> = quotas().iter().map(|(name, quota)| policy(name, quota)).take(4).collect();
    let (single, _) = cpu_per_check(server, &stack.into(), 4, 1_000).await;
    println!("{:<29} | {single:10.2} |           |", "the first four on one request");
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
    println!("\nThis process, bytes a key     | {PROCESS_KEYS} keys |");
    println!("----------------------------- | -----------: |");
    for (name, quota) in quotas() {
        let bytes = process_bytes(&[policy("per-key", &quota)], 1, PROCESS_KEYS);
        println!("{name:<29} | {bytes:12.0} |");
    }
    let bytes = process_bytes(&[policy("per-key", &log())], 60, 50_000);
    println!("{:<29} | {bytes:12.0} |", "sliding_log with 60 entries");
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(redis_tables(&server));
}
