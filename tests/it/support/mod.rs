//! What the tests are made of: processes that end with the test, and sockets that never wait for ever.

mod authority;
mod client;
mod cluster;
pub mod frames;
mod grpc;
pub mod http2;
mod issuer;
mod message;
mod problem;
mod publisher;
mod redis;
mod relay;
mod sentinel;
mod tidegate;
mod tls;
mod upstream;
mod wire;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use authority::Authority;
pub use client::{Client, connect_from, curl, get};
pub use cluster::Cluster;
pub use frames::{Frames, block};
pub use grpc::{GrpcClient, GrpcServer};
pub use http2::{Asked, Http2, Http2Server};
pub use issuer::{Issuer, jwks};
pub use message::Message;
pub use problem::assert_problem;
pub use publisher::{Publisher, publish_over_tls};
pub use redis::{Monitor, RedisServer, free_address};
pub use relay::Relay;
pub use sentinel::Watched;
pub use tidegate::{Tidegate, over_both_stores, timed};
pub use tls::TlsClient;
pub use upstream::{Caller, Upstream};
pub use wire::Wire;

/// The longest that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until something is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not so after {PATIENCE:?}: {what}");
        // A pause between two looks, so that polling does not take the processor from what it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits in a task until a condition is true, and lets other tasks run meanwhile.
pub async fn eventually_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "still not so after {PATIENCE:?}: {what}");
        // A pause between two attempts, as in `eventually`.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nothing more is counted for a while, and says how much was.
pub fn settled(count: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    let mut same = 0;
    eventually("the flow stops", || {
        let now = count.load(Ordering::SeqCst);
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
        // `eventually` looks every few milliseconds: this is half a second of silence.
        same >= 100
    });
    last
}

/// Sends a signal, named without SIG, to a process of ours.
pub fn signal(pid: u32, name: &str) {
    // The shell's own `kill` is everywhere; to send a signal from here would need unsafe code.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success(), "can't send {name} to {pid}");
}

/// Asserts that a number of seconds, as a header has it, is `expected` or a little less: some time has gone by
/// since the count began.
#[track_caller]
pub fn assert_seconds(actual: Option<&str>, expected: u64) {
    let seconds: u64 = actual.expect("a number of seconds").parse().unwrap();
    assert!((expected.saturating_sub(20)..=expected).contains(&seconds), "{seconds} is not about {expected}");
}
