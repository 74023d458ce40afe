//! The members of an upstream: the addresses of its servers.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::ring::Ring;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::health::HealthState;
use crate::upstream::spec::{ServerSpec, UpstreamSpec};

/// The share of weight 1: fine enough to divide a weight between the addresses of a name, and to grow during slow start.
const WEIGHT_UNIT: u32 = 1_000;
/// The most addresses of one name that are used.
const MAX_ADDRESSES: usize = 256;

/// An endpoint of an upstream.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Member {
    pub endpoint: Arc<Endpoint>,
    /// Its share of the requests if all endpoints are available.
    pub weight: u32,
    /// The address to connect to if the endpoint's fails: this machine may reach only one of IPv4 and IPv6.
    pub fallback: Option<SocketAddr>,
}

/// The endpoints of an upstream at one time, in the order of the servers.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Members {
    all: Vec<Member>,
    /// Made when it is first needed, for all workers.
    ring: OnceLock<Ring>,
}

impl Members {
    pub fn new(all: Vec<Member>) -> Self {
        Self { all, ring: OnceLock::new() }
    }

    /// The members whose servers have an address instead of a name.
    pub fn literal(spec: &UpstreamSpec, now: Instant) -> Self {
        let literal =
            |(server, one): (usize, &ServerSpec)| with_addresses(&[], spec, server, &[one.literal()?], now);
        Self::new(spec.servers.iter().enumerate().filter_map(literal).flatten().collect())
    }

    /// The points of all endpoints for consistent hashing.
    pub(super) fn ring(&self) -> &Ring {
        let endpoints = self.all.iter().map(|member| (member.endpoint.id, member.weight));
        self.ring.get_or_init(|| Ring::new(endpoints))
    }
}

impl Deref for Members {
    type Target = [Member];

    fn deref(&self) -> &[Member] {
        &self.all
    }
}

impl Member {
    /// Its address and its fallback.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        [Some(self.endpoint.address), self.fallback].into_iter().flatten().map(|address| address.ip())
    }
}

/// The members of an upstream after one of its servers got these addresses, in the order of the servers; none if there
/// are no addresses. Endpoints that existed before keep their state.
pub(in crate::upstream) fn with_addresses(
    members: &[Member],
    spec: &UpstreamSpec,
    server: usize,
    addresses: &[IpAddr],
    now: Instant,
) -> Option<Vec<Member>> {
    let server_spec = spec.servers.get(server)?;
    let (own, mut all): (Vec<Member>, Vec<Member>) =
        members.iter().cloned().partition(|member| member.endpoint.server == server);
    let found = with_fallbacks(addresses, server_spec.port);
    #[expect(clippy::cast_possible_truncation, reason = "at most `MAX_ADDRESSES`")]
    let count = found.len() as u32;
    let weight = (server_spec.weight * WEIGHT_UNIT).checked_div(count)?.max(1);
    for (address, fallback) in found {
        let known = own.iter().find(|member| member.endpoint.address == address);
        let endpoint = known.map_or_else(
            || {
                let endpoint = Endpoint::new(server, &server_spec.url(), address, spec.max_connections);
                if !own.is_empty() {
                    *endpoint.health.lock() = HealthState::new(now);
                }
                Arc::new(endpoint)
            },
            |known| Arc::clone(&known.endpoint),
        );
        all.push(Member { endpoint, weight, fallback });
    }
    all.sort_by_key(|member| member.endpoint.server);
    Some(all)
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.endpoint, &other.endpoint)
            && (self.weight, self.fallback) == (other.weight, other.fallback)
    }
}

/// Whether both lists have the same endpoints in the same order.
pub(in crate::upstream) fn are_same(some: &[Member], others: &[Member]) -> bool {
    let endpoint = |member: &Member| Arc::as_ptr(&member.endpoint);
    some.iter().map(endpoint).eq(others.iter().map(endpoint))
}

/// The addresses to use, each with one of the other family as its fallback: those of IPv4, or those of IPv6 if there are
/// no others.
fn with_fallbacks(addresses: &[IpAddr], port: u16) -> Vec<(SocketAddr, Option<SocketAddr>)> {
    let at = |address: &IpAddr| SocketAddr::new(address.to_canonical(), port);
    let mut all: Vec<SocketAddr> = addresses.iter().map(at).collect();
    all.sort_unstable();
    all.dedup();
    let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) = all.into_iter().partition(SocketAddr::is_ipv4);
    let (first, second) = if v4.is_empty() { (v6, v4) } else { (v4, v6) };
    let fallbacks: Vec<Option<SocketAddr>> = second.into_iter().map(Some).collect();
    let fallbacks = if fallbacks.is_empty() { vec![None] } else { fallbacks };
    first.into_iter().zip(fallbacks.into_iter().cycle()).take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_preferred_and_ipv6_is_the_fallback() {
        let found = |list: &[&str]| {
            let addresses: Vec<IpAddr> = list.iter().map(|text| text.parse().unwrap()).collect();
            let pairs = with_fallbacks(&addresses, 80).into_iter();
            pairs.map(|(one, other)| format!("{one} {other:?}")).collect::<Vec<_>>()
        };
        assert_eq!(found(&["::1", "127.0.0.1"]), ["127.0.0.1:80 Some([::1]:80)"]);
        assert_eq!(found(&["::2", "::1"]), ["[::1]:80 None", "[::2]:80 None"]);
        assert_eq!(found(&["::ffff:10.0.0.1"]), ["10.0.0.1:80 None"]);
        assert_eq!(
            found(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "::2"]),
            ["10.0.0.1:80 Some([::1]:80)", "10.0.0.2:80 Some([::2]:80)", "10.0.0.3:80 Some([::1]:80)"]
        );
    }
}
