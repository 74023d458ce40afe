//! Listeners, connections, workers and their end.
//!
//! One thread per worker, each with its own runtime, its own listening socket on every address, and its own
//! connections to servers and to the store: on the way of a request no lock is contended and no task changes
//! core.

mod connection;
mod connection_limiter;
mod drain;
mod inherit;
mod listen;
mod occupant;
mod proxy_protocol;
mod transport;
mod worker;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

pub use connection_limiter::{ConnectionLimiter, Full};
pub use drain::{Lifecycle, Stages, stages};
pub use inherit::InheritedSockets;
pub use listen::{ListenError, Listener, ListenerHandle, listen};
pub use proxy_protocol::{ProxyHeaderError, parse_proxy_header};
pub use worker::{Order, Worker};

use crate::proxy::ClientTimes;
use crate::tls::ServerTls;

/// A place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocols: Protocols,
    /// How connections are encrypted, if they are.
    pub tls: Option<ServerTls>,
    /// Whether each connection comes from a trusted proxy, and begins with who the client is (PROXY protocol).
    pub proxy_protocol: bool,
    /// Connections at once, over all workers.
    pub max_connections: usize,
    /// Of those, how many one client may have, if that is bounded.
    pub max_connections_per_client: Option<NonZeroUsize>,
    /// For all that comes before the first request: the PROXY header, and the handshake of TLS.
    pub handshake_timeout: Duration,
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// Between two reads of a request body.
    pub body_timeout: Duration,
    /// The minimum rate of request bodies and responses, in bytes per second, if there is one.
    pub min_body_rate: Option<NonZeroU32>,
    /// Keep-alive, between requests.
    pub idle_timeout: Duration,
    /// Silence of both sides, after they have switched protocols.
    pub tunnel_timeout: Duration,
    /// The largest head.
    pub max_header_bytes: usize,
    /// The most headers.
    pub max_headers: usize,
}

/// Versions of HTTP; one of them at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.0 and HTTP/1.1.
    pub h1: bool,
    /// HTTP/2; without TLS a client has to know that beforehand (RFC 9113 §3.3).
    pub h2: bool,
}

impl Protocols {
    /// Their names in the handshake of TLS (RFC 7301), the one that is preferred first.
    #[must_use]
    pub fn by_alpn(self) -> Vec<&'static [u8]> {
        let names: [(bool, &'static [u8]); 2] = [(self.h2, b"h2"), (self.h1, b"http/1.1")];
        names.into_iter().filter(|(is_spoken, _)| *is_spoken).map(|(_, name)| name).collect()
    }
}

impl ListenerSpec {
    /// What the proxy has to know of a client's times.
    fn client_times(&self) -> ClientTimes {
        ClientTimes {
            body: self.body_timeout,
            tunnel: self.tunnel_timeout,
            min_body_rate: self.min_body_rate,
        }
    }

    /// A listener with the default bounds.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            protocols: Protocols { h1: true, h2: true },
            tls: None,
            proxy_protocol: false,
            max_connections: 10_000,
            max_connections_per_client: None,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            min_body_rate: NonZeroU32::new(240),
            idle_timeout: Duration::from_secs(75),
            tunnel_timeout: Duration::from_hours(1),
            max_header_bytes: 32 * 1024,
            max_headers: 100,
        }
    }
}
