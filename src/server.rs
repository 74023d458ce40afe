//! Listeners, connections, workers and their end.
//!
//! One thread per worker, each with its own runtime, its own listening socket on every address, and its own
//! connections to servers and to the store: on the way of a request no lock is contended and no task changes
//! core.

mod connection;
mod drain;
mod inherit;
mod listen;
mod proxy_protocol;
mod transport;
mod worker;

use std::net::SocketAddr;
use std::time::Duration;

pub use drain::{Draining, drain_signal};
pub use inherit::Inherited;
pub use listen::{ListenError, Listener, ListenerHandle, listen};
pub use worker::{Order, Worker};

use crate::tls::ServerTls;

/// A place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// How connections are encrypted, if they are.
    pub tls: Option<ServerTls>,
    /// Whether each connection comes from a trusted proxy, and begins with who the client is (PROXY protocol).
    pub proxy_protocol: bool,
    /// Connections at once, over all workers.
    pub max_connections: usize,
    /// For all that comes before the first request: the PROXY header, and the handshake of TLS.
    pub handshake_timeout: Duration,
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
            tls: None,
            proxy_protocol: false,
            max_connections: 10_000,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_header_bytes: 32 * 1024,
            max_headers: 100,
        }
    }
}
