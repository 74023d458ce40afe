//! Benchmarks of the library: the time of a check, with either store: one after the other on one thread and on several, each with a
//! client of its own, and many at once. Prints a table. Starts its own redis-server.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::Request;
use tidegate::limits::Limiter;

/// Checks for each line of the table.
const CHECKS: u32 = 200_000;
/// Checks that are in flight at a time, where they are concurrent.
const AT_ONCE: u32 = 64;

struct Server(Child, tempfile::TempDir);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(directory.path().join("redis.sock"))
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        while !directory.path().join("redis.sock").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self(process, directory)
    }

    fn store(&self) -> String {
        format!("[store]\nurl = \"unix://{}/redis.sock\"\n", self.1.path().display())
    }
}

fn main() {
    let server = Server::start();
    let plain = "rate = \"1000000000/s\"";
    let cases = [
        ("in-process", String::new(), plain),
        ("in-process, charge_on", String::new(), "rate = \"1000000000/s\"\ncharge_on = [200]"),
        ("in-process, concurrency", String::new(), "algorithm = \"concurrency\"\nmax_in_flight = 10_000"),
        ("Redis", server.store(), plain),
        ("Redis, interval", server.store(), "rate = \"1000000000/s\"\nrefill = \"interval\""),
        ("Redis, concurrency", server.store(), "algorithm = \"concurrency\"\nmax_in_flight = 10_000"),
        ("Redis, ahead", server.store(), "rate = \"1000000/s\"\nahead = \"auto\""),
    ];
    let threads =
        std::thread::available_parallelism().map_or(1, |count| u8::try_from(count.get()).unwrap_or(8));
    let each = format!("each of {threads} threads");
    println!(
        "{:24} {:>16} {each:>20} {:>16} {:>22}",
        "store", "one by one", "64 at once", "CPU time, 64 at once"
    );
    for (name, store, limit) in cases {
        let text = format!("default_limits = [\"one\"]\n[limits.one]\n{limit}\n{store}");
        let limiter = Limiter::from_toml(&text).expect("a valid file");
        let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
        runtime.block_on(check(limiter.clone(), 7, 1_000));
        let is_local = matches!(name, "in-process" | "in-process, charge_on");
        let checks = if is_local { CHECKS } else { CHECKS / 10 };
        let start = Instant::now();
        runtime.block_on(check(limiter.clone(), 7, checks));
        let serial = start.elapsed() / checks;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..threads {
                let limiter = limiter.clone();
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                    runtime.block_on(check(limiter, client, checks));
                });
            }
        });
        let of_each_thread = start.elapsed() / checks;
        let (start, cpu) = (Instant::now(), cpu_time());
        runtime.block_on(async {
            let tasks = (0..AT_ONCE).map(|_| tokio::spawn(check(limiter.clone(), 7, CHECKS / AT_ONCE)));
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
        });
        let (parallel, cpu) = (start.elapsed() / CHECKS, cpu_time().saturating_sub(cpu) / CHECKS);
        println!("{name:24} {serial:>16.2?} {of_each_thread:>20.2?} {parallel:>16.2?} {cpu:>22.2?}");
    }
}

/// Checks requests of a client one after the other.
async fn check(limiter: Limiter, client: u8, times: u32) {
    let request =
        Request::get("http://api.example/users").header("host", "api.example").body(()).expect("a request");
    let peer = IpAddr::from([192, 0, 2, client]);
    for _ in 0..times {
        assert!(limiter.check(&request, peer).await.is_allowed());
    }
}

/// The CPU time of this process so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u32 = fields[11..13].iter().filter_map(|field| field.parse::<u32>().ok()).sum();
    Duration::from_millis(10) * ticks
}
