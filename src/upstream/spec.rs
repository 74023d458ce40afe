//! The configuration of an upstream.

use std::num::NonZeroUsize;
use std::time::Duration;

use http::HeaderValue;

use super::server::ServerSpec;
use crate::id_vec::Id;
use crate::overload::OverloadSpec;
use crate::tls::ClientTls;

/// The index of an upstream in the list of all upstreams of a configuration.
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

/// A group of interchangeable servers.
#[derive(Clone, Debug)]
pub struct UpstreamSpec {
    /// Its name, or its URL if a route names one directly.
    pub name: Box<str>,
    /// Its servers; at least one.
    pub servers: Vec<ServerSpec>,
    /// TLS for servers with `https://`.
    pub tls: Option<ClientTls>,
    /// Whether the servers speak HTTP/2; otherwise HTTP/1.1.
    pub is_http2: bool,
    /// The timeout for a new connection, including TLS.
    pub connect_timeout: Duration,
    /// How long a request waits for a connection while all are in use.
    pub pending_timeout: Duration,
    /// The timeout from the end of a request to the head of its response.
    pub response_timeout: Duration,
    /// The timeout between two reads of a response's body, and of each write.
    pub stall_timeout: Duration,
    /// The timeout from the choice of a server to the last byte of the response, if there is one.
    pub total_timeout: Option<Duration>,
    /// The load-balancing algorithm.
    pub balance: Balance,
    /// The most requests in flight at an address that a hash selects, as a multiple of its share of all, if that is bounded.
    pub hash_balance_factor: Option<f64>,
    /// The most retries of a request without a response, if it is safe to send it again.
    pub retries: u32,
    /// The share of requests that may be retried, from 0 to 1.
    pub retry_budget: f64,
    /// How long a request that is safe to send again waits while no server answers, if it does.
    pub retry_for: Option<Duration>,
    /// The most connections to one address, over all workers.
    pub max_connections: usize,
    /// The most requests that wait for a connection, over all workers.
    pub max_pending: usize,
    /// The most concurrent requests of one client, over all workers, if that is limited.
    pub max_requests_per_client: Option<NonZeroUsize>,
    /// The most open tunnels of one client, over all workers, if that is limited.
    pub max_tunnels_per_client: Option<NonZeroUsize>,
    /// The admission of requests under overload, if there is one.
    pub overload: Option<OverloadSpec>,
    /// Health checks, if there are any.
    pub health: Option<HealthSpec>,
    /// Outlier ejection, if it is on.
    pub eject: Option<EjectSpec>,
    /// If less than this share of the addresses is available, from 0 to 1, all get requests.
    pub panic_threshold: f64,
    /// How long the share of a new or recovered address takes to grow to its full size.
    pub slow_start: Duration,
}

/// How long a forwarded request may take, and how often it is sent again: the values of its route, or else of its upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardPolicy {
    /// The timeout from the end of a request to the head of its response.
    pub response_timeout: Duration,
    /// The timeout between two reads of a response's body, and of each write.
    pub stall_timeout: Duration,
    /// The timeout from the choice of a server to the last byte of the response, if there is one.
    pub total_timeout: Option<Duration>,
    /// The most retries of a request without a response, if it is safe to send it again.
    pub retries: u32,
}

/// A load-balancing algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Weighted round robin; the turns of a server are spread evenly.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in flight relative to its weight, of up to eight.
    LeastRequests,
    /// Of two servers drawn at random by weight, the one with fewer requests in flight relative to its weight.
    PowerOfTwo,
    /// Consistent hashing of a key of the request, by weight.
    Hash,
}

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// The path of the GET request, after the server's base path.
    pub path: Box<str>,
    /// The time between two checks.
    pub interval: Duration,
    /// The timeout of a check.
    pub timeout: Duration,
    /// After so many consecutive successes an address is healthy.
    pub healthy_after: u32,
    /// After so many consecutive failures an address is unhealthy.
    pub unhealthy_after: u32,
}

/// Outlier ejection: an address at which requests fail gets no requests for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectSpec {
    /// The number of consecutive failures.
    pub after: u32,
    /// How long the first ejection lasts; each consecutive one lasts this much longer.
    pub lasts: Duration,
}

/// The Host header for the server.
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
    /// Whether the requests or the tunnels of a client are bounded.
    #[must_use]
    #[inline]
    pub fn bounds_clients(&self) -> bool {
        self.max_requests_per_client.is_some() || self.max_tunnels_per_client.is_some()
    }

    /// The upstream's name in logs and metrics: its name, or its URL without the path, which may be a secret.
    #[must_use]
    pub fn label(&self) -> &str {
        let path = match self.name.find("://") {
            Some(scheme) => {
                let host = scheme + "://".len();
                self.name[host..].find('/').map(|at| host + at)
            }
            None => self.name.strip_prefix("unix:").and_then(|_| self.name.rfind(":/").filter(|at| *at > 4)),
        };
        &self.name[..path.unwrap_or(self.name.len())]
    }

    /// The timeouts and retries of routes that have none of their own.
    #[must_use]
    pub fn forward_policy(&self) -> ForwardPolicy {
        ForwardPolicy {
            response_timeout: self.response_timeout,
            stall_timeout: self.stall_timeout,
            total_timeout: self.total_timeout,
            retries: self.retries,
        }
    }

    /// Whether load balancing depends on the requests in flight.
    pub(super) fn counts_in_flight(&self) -> bool {
        match self.balance {
            Balance::LeastRequests | Balance::PowerOfTwo => true,
            Balance::Hash => self.hash_balance_factor.is_some(),
            Balance::RoundRobin => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config;

    #[test]
    fn labels_have_no_paths() {
        let label = |name: &str| config::defaults::upstream(name, Vec::new()).label().to_owned();
        assert_eq!(label("api"), "api");
        assert_eq!(label("api/v1"), "api/v1");
        assert_eq!(label("http://10.0.0.7:8080/hush/a"), "http://10.0.0.7:8080");
        assert_eq!(label("https://[::1]"), "https://[::1]");
        assert_eq!(label("unix:/run/a.sock:/hush"), "unix:/run/a.sock");
    }
}
