//! What an upstream is.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use http::HeaderValue;

use crate::id_vec::Id;
use crate::tls::ClientTls;

/// The place of an upstream in the list of all upstreams of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamId(pub u32);

impl Id for UpstreamId {
    fn new(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

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
    /// The longest that a request waits for a connection while all are in use.
    pub pending_timeout: Duration,
    /// The longest from the end of a request to the response's head.
    pub response_timeout: Duration,
    /// The longest between two reads of a response's body, and that a write may take.
    pub stall_timeout: Duration,
    /// The longest from the choice of a server to the response's last byte, if that is bounded.
    pub total_timeout: Option<Duration>,
    /// How a request finds its server.
    pub balance: Balance,
    /// How often a request that got no answer may be sent again, where that is safe.
    pub retries: u32,
    /// The share of the requests that may be sent again, from 0 to 1.
    pub retry_budget: f64,
    /// The most connections to one address of a server, over all workers.
    pub max_connections: usize,
    /// The most requests that wait for one, over all workers.
    pub max_pending: usize,
    /// The most requests of one client at once, over all workers, if that is bounded.
    pub max_requests_per_client: Option<NonZeroUsize>,
    /// How servers are asked whether they are well; none if they are not.
    pub health: Option<HealthSpec>,
    /// When failures of requests put a server out; none if they never do.
    pub eject: Option<EjectSpec>,
    /// If less than this share of the servers is in, from 0 to 1, all are used.
    pub panic_threshold: f64,
    /// How long a server that comes, or comes back, takes to get its full share.
    pub slow_start: Duration,
}

/// How a request finds its server among several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn, as its weight says.
    #[default]
    RoundRobin,
    /// The one that has the fewest requests in flight for its weight.
    LeastRequests,
    /// Of two that are drawn by weight the one that has fewer requests in flight for its weight.
    PowerOfTwo,
    /// The one that a key of the request always finds.
    Hash,
}

/// Checks: how a server is asked whether it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// What is asked for, with GET; it comes after the server's own path.
    pub path: Box<str>,
    /// From one check to the next.
    pub interval: Duration,
    /// The longest that a check may take.
    pub timeout: Duration,
    /// So many good ones in a row make a server healthy.
    pub healthy_after: u32,
    /// So many bad ones in a row make it unhealthy.
    pub unhealthy_after: u32,
}

/// Ejection: when a server is put out because requests fail there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectSpec {
    /// So many failures in a row.
    pub after: u32,
    /// For so long the first time; each further time in a row adds as much.
    pub lasts: Duration,
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
            // The kernel sends a lost SYN again after 1 s, and after 2 s more.
            connect_timeout: Duration::from_secs(5),
            pending_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_mins(1),
            stall_timeout: Duration::from_mins(1),
            total_timeout: None,
            balance: Balance::RoundRobin,
            retries: 1,
            retry_budget: 0.2,
            max_connections: 1024,
            max_pending: 1024,
            max_requests_per_client: None,
            health: None,
            eject: Some(EjectSpec::default()),
            panic_threshold: 0.5,
            slow_start: Duration::ZERO,
        }
    }
}

impl UpstreamSpec {
    /// What logs and metrics call it: its name, or the URL that a route gives without its path, which may be a secret.
    #[must_use]
    pub fn label(&self) -> &str {
        let Some(scheme) = self.name.find("://") else { return &self.name };
        let host = scheme + "://".len();
        let path = self.name[host..].find('/').map_or(self.name.len(), |at| host + at);
        &self.name[..path]
    }
}

impl Default for EjectSpec {
    fn default() -> Self {
        Self { after: 5, lasts: Duration::from_secs(30) }
    }
}

impl ServerSpec {
    /// How its URLs begin.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Its address, if it is no name.
    #[must_use]
    pub fn literal(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Its URL, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.base_path)
    }

    /// What logs and metrics call it: its URL without its path, which may be a secret.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}://{}", self.scheme(), self.authority())
    }

    /// `host:port` as it stands in a Host header and in messages; the scheme's own port goes without saying.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        let usual = if self.is_tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_no_paths() {
        let label = |name: &str| UpstreamSpec::new(name, Vec::new()).label().to_owned();
        assert_eq!(label("api"), "api");
        assert_eq!(label("api/v1"), "api/v1");
        assert_eq!(label("http://10.0.0.7:8080/hush/a"), "http://10.0.0.7:8080");
        assert_eq!(label("https://[::1]"), "https://[::1]");
        let server =
            ServerSpec { is_tls: true, host: "::1".into(), port: 443, base_path: "/hush".into(), weight: 1 };
        assert_eq!(server.label(), "https://[::1]");
    }
}
