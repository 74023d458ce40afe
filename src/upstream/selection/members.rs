//! The members of an upstream: the addresses of its servers.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::ring::Ring;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::health::HealthState;
use crate::upstream::server::{ServerPeer, ServerSpec};
use crate::upstream::spec::UpstreamSpec;

/// The share of weight 1: fine enough to divide a weight between the addresses of a name, and to grow during slow start.
const WEIGHT_UNIT: u32 = 1_000;
/// The most addresses of one server that are used.
const MAX_ADDRESSES: usize = 256;

/// An endpoint of an upstream.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Member {
    pub endpoint: Arc<Endpoint>,
    /// Its share of the requests if all endpoints are available.
    pub weight: u32,
    /// The address to connect to if the endpoint's fails: this machine may reach only one of IPv4 and IPv6.
    pub fallback: Option<SocketAddr>,
    /// It gets requests while no endpoint of its server with a lower number is available.
    pub priority: u16,
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
    pub fn fixed(spec: &UpstreamSpec, now: Instant) -> Self {
        let fixed =
            |(server, one): (usize, &ServerSpec)| with_peers(&[], spec, server, &ServerPeer::fixed(one), now);
        Self::new(spec.servers.iter().enumerate().filter_map(fixed).flatten().collect())
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
    /// Its address and its share, for a server that keeps them over a reload.
    pub fn peer(&self) -> ServerPeer {
        let Self { ref endpoint, weight, fallback, priority } = *self;
        ServerPeer { address: endpoint.address.clone(), fallback, weight, priority }
    }
}

/// The members of an upstream after one of its servers got these addresses, in the order of the servers; none if there
/// are no addresses. Endpoints that existed before keep their state.
pub(in crate::upstream) fn with_peers(
    members: &[Member],
    spec: &UpstreamSpec,
    server: usize,
    peers: &[ServerPeer],
    now: Instant,
) -> Option<Vec<Member>> {
    let server_spec = spec.servers.get(server)?;
    let (own, mut all): (Vec<Member>, Vec<Member>) =
        members.iter().cloned().partition(|member| member.endpoint.server == server);
    let peers = &peers[..peers.len().min(MAX_ADDRESSES)];
    peers.first()?;
    for peer in peers {
        let known = own.iter().find(|member| member.endpoint.address == peer.address);
        let endpoint = known.map_or_else(
            || {
                let endpoint = Endpoint::new(server, server_spec, peer.address.clone(), spec.max_connections);
                if !own.is_empty() {
                    *endpoint.health.lock() = HealthState::new(now);
                }
                Arc::new(endpoint)
            },
            |known| Arc::clone(&known.endpoint),
        );
        let weight = share_of(peer, peers, server_spec.weight);
        all.push(Member { endpoint, weight, fallback: peer.fallback, priority: peer.priority });
    }
    all.sort_by_key(|member| member.endpoint.server);
    Some(all)
}

/// The share of an address in the weight of its server, among the addresses of the same priority. One with the weight 0 has a
/// very small chance beside others (RFC 2782).
fn share_of(peer: &ServerPeer, peers: &[ServerPeer], server_weight: u32) -> u32 {
    let equals = peers.iter().filter(|other| other.priority == peer.priority);
    let sum: u64 = equals.map(|other| u64::from(other.weight)).sum();
    let share = u64::from(server_weight * WEIGHT_UNIT) * u64::from(peer.weight) / sum.max(1);
    u32::try_from(share).unwrap_or(u32::MAX).max(1)
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.endpoint, &other.endpoint)
            && (self.weight, self.fallback, self.priority) == (other.weight, other.fallback, other.priority)
    }
}

/// Which endpoints get requests by the priorities of their servers: of each server those with the lowest number that has an
/// available endpoint, or else with the lowest one.
pub(in crate::upstream) fn in_use(members: &[Member], is_available: &[bool]) -> Vec<bool> {
    let priority_of = |server: usize| {
        let own = members.iter().zip(is_available).filter(|(member, _)| member.endpoint.server == server);
        own.map(|(member, is_available)| (!is_available, member.priority)).min().map(|(_, priority)| priority)
    };
    let mut priorities: Vec<Option<u16>> = Vec::new();
    for member in members {
        // Members are in the order of the servers.
        while priorities.len() <= member.endpoint.server {
            priorities.push(priority_of(priorities.len()));
        }
    }
    members.iter().map(|member| priorities[member.endpoint.server] == Some(member.priority)).collect()
}

/// Whether both lists have the same endpoints in the same order.
pub(in crate::upstream) fn are_same(some: &[Member], others: &[Member]) -> bool {
    let endpoint = |member: &Member| Arc::as_ptr(&member.endpoint);
    some.iter().map(endpoint).eq(others.iter().map(endpoint))
}
