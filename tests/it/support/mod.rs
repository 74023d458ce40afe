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
mod patience;
#[cfg(feature = "acme")]
mod pebble;
mod picture;
mod port;
mod problem;
mod process;
mod prometheus;
mod publisher;
mod redis;
mod relay;
mod sample_api;
mod sentinel;
mod tests;
mod tidegate;
mod tls;
pub mod trace;
mod upstream;
mod web_server;
mod wire;

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
pub use patience::{eventually, eventually_async, is_between, is_within, patience, scaled, settled, steady};
#[cfg(feature = "acme")]
pub use pebble::Pebble;
pub use picture::keep_picture;
pub use port::{free_address, free_ports};
pub use problem::assert_problem;
pub use process::{Process, TIDEGATE, TOOLS, command, output_with_input, signal};
pub use prometheus::{Prometheus, Sample};
pub use publisher::{Publisher, publish_over_tls};
pub use redis::{Monitor, RedisServer};
pub use relay::{Flow, Relay};
pub use sample_api::SampleApi;
pub use sentinel::Watched;
pub use tidegate::{Tidegate, over_both_stores, timed};
pub use tls::TlsClient;
pub use upstream::{Caller, Upstream};
pub use web_server::{WebServer, ZONE};
pub use wire::Wire;

/// Asserts that a header's number of seconds is `expected` or a little less, since time has passed since the count
/// began.
#[track_caller]
pub fn assert_seconds(actual: Option<&str>, expected: u64) {
    let seconds: u64 = actual.expect("a number of seconds").parse().unwrap();
    assert!((expected.saturating_sub(20)..=expected).contains(&seconds), "{seconds} is not about {expected}");
}
