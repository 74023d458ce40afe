//! Which endpoints an upstream has: the addresses of its servers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::health_state::HealthState;
use super::spec::UpstreamSpec;

/// A weight of 1, as a share: a name's addresses divide its weight, and a share that grows has steps.
const WEIGHT: u32 = 1_000;
/// The most addresses of one name that are used.
const MAX_ADDRESSES: usize = 256;

/// An endpoint of an upstream.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub endpoint: Arc<Endpoint>,
    /// What it would get of the requests if all were in.
    pub weight: u32,
    /// Where else to connect if that fails: of a name's addresses of two families maybe only one works from here.
    pub fallback: Option<SocketAddr>,
}

impl Member {
    /// Its address, and the one to fall back to.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        [Some(self.endpoint.address), self.fallback].into_iter().flatten().map(|address| address.ip())
    }
}

/// The members of an upstream when one of its servers has these addresses, in the order of its servers; none if it
/// has no addresses. Endpoints that were there before stay what they are.
pub(super) fn with_addresses(
    members: &[Member],
    spec: &UpstreamSpec,
    server: usize,
    addresses: &[IpAddr],
    now: Instant,
) -> Option<Vec<Member>> {
    let named = spec.servers.get(server)?;
    let (own, mut all): (Vec<Member>, Vec<Member>) =
        members.iter().cloned().partition(|member| member.endpoint.server == server);
    let found = paired(addresses, named.port);
    let count = u32::try_from(found.len()).unwrap_or(WEIGHT);
    let weight = (named.weight * WEIGHT).checked_div(count)?.max(1);
    for (address, fallback) in found {
        let known = own.iter().find(|member| member.endpoint.address == address);
        let endpoint = known.map_or_else(
            || {
                let endpoint = Endpoint::new(server, &named.url(), address, spec.max_connections);
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

/// Whether these are the same endpoints.
pub(super) fn are_same(some: &[Member], others: &[Member]) -> bool {
    let endpoint = |member: &Member| Arc::as_ptr(&member.endpoint);
    some.iter().map(endpoint).eq(others.iter().map(endpoint))
}

/// Addresses as endpoints: those of IPv4, and of IPv6 only where there are no others, each with one of the other
/// family to fall back to.
fn paired(addresses: &[IpAddr], port: u16) -> Vec<(SocketAddr, Option<SocketAddr>)> {
    let at = |address: &IpAddr| SocketAddr::new(address.to_canonical(), port);
    let mut all: Vec<SocketAddr> = addresses.iter().map(at).collect();
    all.sort_unstable();
    all.dedup();
    let (old, new): (Vec<SocketAddr>, Vec<SocketAddr>) = all.into_iter().partition(SocketAddr::is_ipv4);
    let (first, second) = if old.is_empty() { (new, old) } else { (old, new) };
    let fallbacks: Vec<Option<SocketAddr>> = second.into_iter().map(Some).collect();
    let fallbacks = if fallbacks.is_empty() { vec![None] } else { fallbacks };
    first.into_iter().zip(fallbacks.into_iter().cycle()).take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_families_one_is_used_and_the_other_stands_by() {
        let found = |list: &[&str]| {
            let addresses: Vec<IpAddr> = list.iter().map(|text| text.parse().unwrap()).collect();
            let pairs = paired(&addresses, 80).into_iter();
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
