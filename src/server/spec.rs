//! The settings of a listener: its address, protocols, timeouts and limits.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use crate::http1::title_case;
use crate::proxy::{ClientTimeouts, ForwardAuth, Redirect};
use crate::tls::ServerTls;

/// A listener: where and how clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Its name, by which routes select it.
    pub name: Option<Arc<str>>,
    /// Address and port; with port 0 the system selects a free port.
    pub address: SocketAddr,
    /// The redirect of all requests to HTTPS, if there is one.
    pub redirect: Option<Arc<Redirect>>,
    /// What clients find there.
    pub service: Service,
    /// The versions of HTTP.
    pub protocols: Protocols,
    /// The TLS settings; none for plain connections.
    pub tls: Option<ServerTls>,
    /// Whether each connection comes from a trusted proxy and starts with a PROXY header.
    pub proxy_protocol: bool,
    /// How decisions are returned, if all requests are authorization requests.
    pub forward_auth: Option<ForwardAuth>,
    /// The most open connections, over all workers.
    pub max_connections: usize,
    /// The most open connections of one client, if that is limited.
    pub max_connections_per_client: Option<NonZeroUsize>,
    /// The timeout of the PROXY header and the TLS handshake together.
    pub handshake_timeout: Duration,
    /// The timeout from the first byte of a request head to its last.
    pub header_timeout: Duration,
    /// The timeout between two reads of a request body.
    pub body_timeout: Duration,
    /// The minimum rate of request bodies and responses in bytes per second, if there is one.
    pub min_body_rate: Option<NonZeroU32>,
    /// The timeout between requests (keep-alive), and of each write.
    pub idle_timeout: Duration,
    /// The timeout of a tunnel in which neither side sends anything.
    pub tunnel_timeout: Duration,
    /// The largest request head, in bytes.
    pub max_header_bytes: usize,
    /// The most header lines of a request.
    pub max_headers: usize,
    /// How names of headers are written over HTTP/1.1.
    pub header_case: HeaderCase,
}

/// How the names of response headers are written over HTTP/1.1; over HTTP/2 they are in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderCase {
    /// `content-type`.
    Lower,
    /// `Content-Type`.
    Title,
}

impl HeaderCase {
    /// Changes the names in heads that were written in lower case.
    pub(super) fn apply(self, heads: &mut [u8]) {
        if self == Self::Title {
            title_case(heads);
        }
    }
}

/// What clients of a listener find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The routes.
    Proxy,
    /// The rate-limit service of Envoy.
    EnvoyRatelimit,
}

/// Versions of HTTP, at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.0 and HTTP/1.1.
    pub h1: bool,
    /// HTTP/2; without TLS only with prior knowledge (RFC 9113 §3.3).
    pub h2: bool,
}

impl Protocols {
    /// The ALPN protocol names (RFC 7301), the preferred one first.
    #[must_use]
    pub fn by_alpn(self) -> Vec<&'static [u8]> {
        let names: [(bool, &'static [u8]); 2] = [(self.h2, b"h2"), (self.h1, b"http/1.1")];
        names.into_iter().filter(|(is_spoken, _)| *is_spoken).map(|(_, name)| name).collect()
    }
}

impl ListenerSpec {
    /// The timeouts that the proxy applies to a client.
    pub(super) fn client_timeouts(&self) -> ClientTimeouts {
        ClientTimeouts {
            body: self.body_timeout,
            tunnel: self.tunnel_timeout,
            min_body_rate: self.min_body_rate,
        }
    }
}
