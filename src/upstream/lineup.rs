//! One worker's view of an upstream's endpoints at one time.

use std::rc::Rc;
use std::sync::Arc;

use super::balance::Balancer;
use super::endpoint::Endpoint;
use super::members::Member;
use super::pool::Pool;
use super::spec::Balance;

/// The endpoints at one time, with this worker's connections to them in the same places.
#[derive(Debug, Default)]
pub(super) struct Lineup {
    members: Arc<Vec<Member>>,
    endpoints: Vec<Arc<Endpoint>>,
    pub pools: Vec<Rc<Pool>>,
    balancer: Balancer,
}

impl Lineup {
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
    pub fn pick(&self, tried: &[usize], key: Option<u64>) -> Option<usize> {
        let picked = self.balancer.pick(&self.endpoints, tried, key)?;
        let count = self.pools.len();
        if count == 1 || key.is_some() || !self.pools[picked].is_full() {
            return Some(picked);
        }
        let others = (1..count).map(|step| (picked + step) % count);
        let is_better = |place: &usize| {
            !tried.contains(place) && self.endpoints[*place].share() > 0 && !self.pools[*place].is_full()
        };
        Some({ others }.find(is_better).unwrap_or(picked))
    }
}
