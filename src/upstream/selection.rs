//! One worker's view of an upstream's endpoints at one time.

pub(super) mod balance;
pub(super) mod members;
mod ring;
mod turns;

use std::collections::{HashMap, HashSet};
use std::iter::once;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use self::balance::Balancer;
use self::members::{Member, Members};
use super::endpoint::Endpoint;
use super::error::ForwardError;
use super::pool::Pool;
use super::pool::acquire::{Acquired, acquire};
use super::pool::connection_limit::ConnectionPermit;
use super::pool::idle::IdleConnections;

/// The endpoints at one time, with this worker's connection pools at the same indices.
#[derive(Debug, Default)]
pub(super) struct EndpointSet {
    members: Arc<Members>,
    pub pools: Vec<Rc<Pool>>,
    balancer: Balancer,
}

/// The endpoint for a request, as its index.
#[derive(Debug)]
pub(super) enum Selection {
    /// This endpoint.
    At(usize),
    /// This endpoint, over a new connection for which this is the permit.
    New(usize, ConnectionPermit),
    /// All connections are in use: this endpoint, or another one that has a connection first.
    Full(usize),
}

impl EndpointSet {
    /// Whether the set was built from these members.
    pub fn was_built_from(&self, members: &Arc<Members>) -> bool {
        Arc::ptr_eq(&self.members, members)
    }

    /// A set of these members; endpoints that are in both sets keep their pools.
    pub fn updated(
        &self,
        members: Arc<Members>,
        balancer: Balancer,
        new_pool: impl Fn(&Member) -> Pool,
    ) -> Self {
        let old: HashMap<*const Endpoint, &Rc<Pool>> =
            self.pools.iter().map(|pool| (Arc::as_ptr(pool.endpoint()), pool)).collect();
        let pool = |member: &Member| {
            let old = old.get(&Arc::as_ptr(&member.endpoint));
            old.inspect(|pool| pool.set_fallback(member.fallback))
                .map_or_else(|| Rc::new(new_pool(member)), |pool| Rc::clone(pool))
        };
        Self { pools: members.iter().map(pool).collect(), balancer, members }
    }

    /// The pools that another set does not have.
    pub fn pools_without<'s>(&'s self, other: &Self) -> impl Iterator<Item = &'s Rc<Pool>> {
        let kept: HashSet<*const Pool> = other.pools.iter().map(Rc::as_ptr).collect();
        self.pools.iter().filter(move |pool| !kept.contains(&Rc::as_ptr(pool)))
    }

    /// Selects the endpoint for a request; none if there are no endpoints. If all connections of the balancer's choice
    /// are in use, another endpoint is better than a wait, unless the hash of a key has selected this one.
    pub fn select(&self, tried: &[usize], hash_key: Option<u64>) -> Option<Selection> {
        let chosen = self.balancer.pick(tried, hash_key)?;
        if self.pools.len() == 1 || hash_key.is_some() {
            return Some(Selection::At(chosen));
        }
        let mut candidates = once(chosen).chain(self.alternatives(chosen, tried));
        let available = candidates.find_map(|index| self.without_wait(index));
        let may_wait = !self.pools[chosen].is_multiplexed();
        Some(available.unwrap_or(if may_wait { Selection::Full(chosen) } else { Selection::At(chosen) }))
    }

    /// This endpoint, if a request need not wait for a connection there. A permit is acquired at once, since another
    /// worker may take the last one meanwhile.
    fn without_wait(&self, index: usize) -> Option<Selection> {
        let pool = &self.pools[index];
        let connections = pool.connections();
        if connections.has_connection() {
            return Some(Selection::At(index));
        }
        if pool.is_multiplexed() {
            return connections.connection_limit().has_free().then_some(Selection::At(index));
        }
        connections.connection_limit().try_acquire().map(|permit| Selection::New(index, permit))
    }

    /// Waits until the chosen endpoint or an alternative has a connection; returns the first one. Fails when none has a
    /// connection in time, or too many requests wait.
    pub async fn wait(
        &self,
        chosen: usize,
        tried: &[usize],
        client: IpAddr,
        deadline: Option<Instant>,
    ) -> Result<(usize, Acquired), ForwardError> {
        let indices: SmallVec<[usize; 4]> = once(chosen).chain(self.alternatives(chosen, tried)).collect();
        let connections: SmallVec<[&IdleConnections; 4]> =
            indices.iter().map(|index| self.pools[*index].connections()).collect();
        let pool = &self.pools[chosen];
        let acquired = acquire(&connections, client, pool.acquire_by(deadline)).await;
        acquired.map(|(index, acquired)| (indices[index], acquired)).ok_or_else(|| pool.full())
    }

    /// The endpoints beside the chosen one that get requests and have not been tried.
    fn alternatives(&self, chosen: usize, tried: &[usize]) -> impl Iterator<Item = usize> {
        let count = self.pools.len();
        let others = (1..count).map(move |step| (chosen + step) % count);
        others.filter(|index| !tried.contains(index) && self.members[*index].endpoint.share() > 0)
    }
}
