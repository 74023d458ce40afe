//! Processes that end with their test, and sockets with timeouts.

mod authority;
mod browser;
mod client;
mod cluster;
mod collector;
mod devtools;
pub mod frames;
mod grpc;
pub mod http2;
mod issuer;
mod json_schema;
mod log;
mod message;
pub mod mmdb;
#[cfg(feature = "acme")]
mod pebble;
mod picture;
mod problem;
mod prometheus;
mod publisher;
mod redis;
mod relay;
mod sample_api;
mod sentinel;
mod tidegate;
mod tls;
pub mod trace;
mod upstream;
mod web_server;
mod wire;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use authority::Authority;
pub use browser::Page;
pub use client::{Client, connect_from, curl, get};
pub use cluster::Cluster;
pub use collector::{Collector, attribute};
pub use devtools::Browser;
pub use frames::{Frames, block};
pub use grpc::{GrpcClient, GrpcServer, Heard};
pub use http2::{Asked, Http2, Http2Server};
pub use issuer::{Issuer, jwks};
pub use json_schema::schema_problems;
pub use message::Message;
#[cfg(feature = "acme")]
pub use pebble::Pebble;
pub use picture::keep_picture;
pub use problem::assert_problem;
pub use prometheus::{Prometheus, Sample};
pub use publisher::{Publisher, publish_over_tls};
pub use redis::{Monitor, RedisServer, free_address};
pub use relay::{Flow, Relay};
pub use sample_api::SampleApi;
pub use sentinel::Watched;
pub use tidegate::{Tidegate, over_both_stores, timed};
pub use tls::TlsClient;
pub use upstream::{Caller, Upstream};
pub use web_server::{WebServer, ZONE};
pub use wire::Wire;

/// The longest that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until a condition holds.
pub fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not so after {PATIENCE:?}: {condition}");
        // Without a pause, polling would take the processor from the process that it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits in a task until a condition is true, and lets other tasks run meanwhile.
pub async fn eventually_async(condition: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "still not so after {PATIENCE:?}: {condition}");
        // A pause between two attempts, as in `eventually`.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a counter stops, and returns its value.
pub fn settled(count: &AtomicUsize) -> usize {
    steady(|| count.load(Ordering::SeqCst))
}

/// Waits until a value no longer changes, and returns it.
pub fn steady<T: Default + PartialEq>(mut read: impl FnMut() -> T) -> T {
    let mut last = T::default();
    let mut unchanged = 0;
    eventually("the value no longer changes", || {
        let now = read();
        unchanged = if now == last && now != T::default() { unchanged + 1 } else { 0 };
        last = now;
        // `eventually` polls every few milliseconds: this is half a second without a change.
        unchanged >= 100
    });
    last
}

/// Whether one of several attempts takes less than `bound`. A busy machine delays some of them.
pub fn is_within(bound: Duration, mut attempt: impl FnMut() -> Duration) -> bool {
    (0..6).any(|_| attempt() < bound)
}

/// Sends a signal, named without SIG, to a process of ours.
pub fn signal(pid: u32, name: &str) {
    // The shell's own `kill` is everywhere; to send a signal from here would need unsafe code.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success(), "can't send {name} to {pid}");
}

/// Asserts that a header's number of seconds is `expected` or a little less, since time has passed since the count
/// began.
#[track_caller]
pub fn assert_seconds(actual: Option<&str>, expected: u64) {
    let seconds: u64 = actual.expect("a number of seconds").parse().unwrap();
    assert!((expected.saturating_sub(20)..=expected).contains(&seconds), "{seconds} is not about {expected}");
}
