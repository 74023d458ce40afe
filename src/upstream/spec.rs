//! What an upstream is.

use std::time::Duration;

use http::HeaderValue;

use crate::tls::ClientTls;

/// The place of an upstream in the list of all upstreams of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamId(pub u32);

/// A group of servers that serve the same.
#[derive(Clone, Debug)]
pub struct UpstreamSpec {
    /// Its name, or the URL that a route gives.
    pub name: Box<str>,
    /// Its servers; at least one.
    pub servers: Vec<ServerSpec>,
    /// How connections to those servers are encrypted that want it.
    pub tls: Option<ClientTls>,
    /// Whether HTTP/2 is spoken with them, and HTTP/1.1 otherwise.
    pub is_http2: bool,
    /// The longest that a connection may take.
    pub connect_timeout: Duration,
    /// The longest from the end of a request to the response's head.
    pub response_timeout: Duration,
    /// The longest between two reads of a response's body, and that a write may take.
    pub stall_timeout: Duration,
    /// How often a request that got no answer may be sent again, where that is safe.
    pub retries: u32,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Whether it is reached over TLS.
    pub is_tls: bool,
    /// A name or an address; an IPv6 address without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// Comes before the path of every request: empty, or `/base` without a slash at its end.
    pub base_path: Box<str>,
    /// Its share of the requests, relative to the others.
    pub weight: u32,
}

/// The Host header that goes upstream.
#[derive(Clone, Debug, Default)]
pub enum HostRule {
    /// The client's own.
    #[default]
    Client,
    /// The server's name and port.
    Upstream,
    /// This name.
    Named(HeaderValue),
}

impl UpstreamSpec {
    /// An upstream of these servers, with the default times.
    #[must_use]
    pub fn new(name: &str, servers: Vec<ServerSpec>) -> Self {
        Self {
            name: name.into(),
            servers,
            tls: None,
            is_http2: false,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_mins(1),
            stall_timeout: Duration::from_mins(1),
            retries: 1,
        }
    }
}

impl ServerSpec {
    /// How its URLs begin.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// `host:port` as it stands in a Host header and in messages; the scheme's own port goes without saying.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        let usual = if self.is_tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}
