//! One worker's view of an upstream's endpoints at one time.

use std::iter::once;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::ForwardError;
use super::acquire::{self, Acquired};
use super::balance::Balancer;
use super::connection_limit::ConnectionPermit;
use super::endpoint::Endpoint;
use super::members::Member;
use super::pool::Pool;
use super::spec::Balance;

/// The endpoints at one time, with this worker's connections to them in the same places.
#[derive(Debug, Default)]
pub(super) struct EndpointSet {
    members: Arc<Vec<Member>>,
    endpoints: Vec<Arc<Endpoint>>,
    pub pools: Vec<Rc<Pool>>,
    balancer: Balancer,
}

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Selection {
    /// There.
    At(usize),
    /// There, over a new connection, for which it has a place.
    New(usize, ConnectionPermit),
    /// There, or where else a connection comes free: all are in use.
    Full(usize),
}

impl EndpointSet {
    /// Whether these are its members.
    pub fn is_of(&self, members: &Arc<Vec<Member>>) -> bool {
        Arc::ptr_eq(&self.members, members)
    }

    /// One of these members; endpoints that stay keep their connections.
    pub fn renewed(
        &self,
        members: Arc<Vec<Member>>,
        balance: Balance,
        make: impl Fn(&Member) -> Pool,
    ) -> Self {
        let pool = |member: &Member| {
            let old = self.pools.iter().find(|pool| Arc::ptr_eq(pool.endpoint(), &member.endpoint));
            old.inspect(|pool| pool.set_fallback(member.fallback))
                .map_or_else(|| Rc::new(make(member)), Rc::clone)
        };
        Self {
            endpoints: members.iter().map(|member| Arc::clone(&member.endpoint)).collect(),
            pools: members.iter().map(pool).collect(),
            balancer: Balancer::new(balance),
            members,
        }
    }

    /// The place for a request with this key, if it has one; none where there are no endpoints. Where all
    /// connections are in use another place is better than to wait, unless a key has chosen this one.
    pub fn pick(&self, tried: &[usize], key: Option<u64>) -> Option<Selection> {
        let picked = self.balancer.pick(&self.endpoints, tried, key)?;
        if self.pools.len() == 1 || key.is_some() {
            return Some(Selection::At(picked));
        }
        let now = once(picked).chain(self.others(picked, tried)).find_map(|place| self.without_wait(place));
        let waits = !self.pools[picked].is_multiplexed();
        Some(now.unwrap_or(if waits { Selection::Full(picked) } else { Selection::At(picked) }))
    }

    /// There, if a request need not wait for a connection. A place is taken at once: another worker may be about to.
    fn without_wait(&self, place: usize) -> Option<Selection> {
        let pool = &self.pools[place];
        if pool.has_some() {
            return Some(Selection::At(place));
        }
        if pool.is_multiplexed() {
            return pool.room().is_free().then_some(Selection::At(place));
        }
        pool.room().enter().map(|room| Selection::New(place, room))
    }

    /// Waits for the one that was picked, or another that may serve as well, whichever has a connection first.
    pub async fn wait(
        &self,
        picked: usize,
        tried: &[usize],
        client: IpAddr,
        deadline: Option<Instant>,
    ) -> Result<(usize, Acquired), ForwardError> {
        let places: SmallVec<[usize; 4]> = once(picked).chain(self.others(picked, tried)).collect();
        let pools: SmallVec<[&Pool; 4]> = places.iter().map(|place| &*self.pools[*place]).collect();
        let first = &self.pools[picked];
        let turn = acquire::turn(&pools, client, first.turn_by(deadline)).await;
        turn.map(|(which, turn)| (places[which], turn)).ok_or_else(|| first.full())
    }

    /// The places beside the one that was picked that get requests, and have not been tried.
    fn others(&self, picked: usize, tried: &[usize]) -> impl Iterator<Item = usize> {
        let count = self.pools.len();
        let others = (1..count).map(move |step| (picked + step) % count);
        others.filter(|place| !tried.contains(place) && self.endpoints[*place].share() > 0)
    }
}
