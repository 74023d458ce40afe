//! Listeners, connections, workers and their end.

use std::net::SocketAddr;
use std::time::Duration;

/// A place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Address and port.
    pub address: SocketAddr,
    /// Connections at once, over all workers.
    pub max_connections: usize,
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// Between two reads of a request body.
    pub body_timeout: Duration,
    /// Keep-alive, between requests.
    pub idle_timeout: Duration,
    /// The largest head.
    pub max_header_bytes: usize,
    /// The most headers.
    pub max_headers: usize,
}

impl ListenerSpec {
    /// A listener with the default bounds.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_header_bytes: 32 * 1024,
            max_headers: 100,
        }
    }
}
