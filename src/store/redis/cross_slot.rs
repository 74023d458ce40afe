//! Requests whose limits lie on several nodes of a cluster, where no script can decide them together.
//!
//! First a look at all of them, at once, that changes nothing. If all fit, the charges: one tag after the other, each
//! an atomic call, in an order that is the same for all requests, so that two that want the same never hold a
//! part of it each. If one is refused now, for somebody was faster, what was charged before is given back.
//! The limits are never exceeded, but a competitor may meanwhile be refused that would have fitted. So nobody is
//! refused who was not looked at twice, and no denial may be remembered.

use std::pin::Pin;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Redis, wire};
use crate::limit::{Charge, ChargeKind, Policy, Quota};
use crate::store::{Decisions, StoreError};

/// How often a request is decided where others are faster.
const ROUNDS: usize = 2;
/// How many calls are under way at once for what is due in any case.
const AT_ONCE: usize = 16;

/// What is seldom needed, and so not to make larger the future of every request.
type Deciding<'a> = Pin<Box<dyn Future<Output = Result<Decisions, StoreError>> + Send + 'a>>;

/// The charges of one request on one tag: their places in the request.
type Group = SmallVec<[usize; 4]>;

/// A request on several tags.
struct CrossSlot<'a> {
    redis: &'a Redis,
    policies: &'a [Policy],
    charges: &'a [Charge],
    groups: Vec<Group>,
    deadline: Instant,
}

/// What was charged so far. It is given back, unless it is kept, when it is dropped: also when the request's client goes
/// away, or its deadline passes.
struct Made {
    redis: Redis,
    refunds: Vec<wire::Call>,
}

/// How a round ended.
enum Round {
    Decided(Decisions),
    /// Somebody was faster.
    Overtaken(Decisions),
}

/// Whether these charges lie on more than one tag.
pub(super) fn is_apart(charges: &[Charge]) -> bool {
    charges.windows(2).any(|pair| pair[0].key != pair[1].key)
}

/// Charges by their tags.
fn groups(charges: &[Charge]) -> Vec<Group> {
    let mut places: Vec<usize> = (0..charges.len()).collect();
    places.sort_by_key(|place| charges[*place].key.0);
    places.chunk_by(|a, b| charges[*a].key == charges[*b].key).map(SmallVec::from_slice).collect()
}

/// Takes all charges or none. Who calls this has a deadline around it.
pub(super) fn take<'a>(redis: &'a Redis, policies: &'a [Policy], charges: &'a [Charge]) -> Deciding<'a> {
    Box::pin(async move { CrossSlot::new(redis, policies, charges).take().await })
}

/// Does each charge by itself, those of one tag in one call; see [`crate::store::Store::charge_late`].
pub(super) fn settle<'a>(redis: &'a Redis, policies: &'a [Policy], charges: &'a [Charge]) -> Deciding<'a> {
    Box::pin(settle_groups(redis, policies, charges))
}

async fn settle_groups(
    redis: &Redis,
    policies: &[Policy],
    charges: &[Charge],
) -> Result<Decisions, StoreError> {
    let mut decisions = Decisions::new();
    decisions.resize(charges.len(), wire::nothing());
    for some in groups(charges).chunks(AT_ONCE) {
        let deadline = redis.deadline();
        let asked = some.iter().map(async |group| {
            let of_group: Vec<Charge> = group.iter().map(|place| charges[*place]).collect();
            let mut call = wire::Call::default();
            for charge in &of_group {
                call.add(redis.prefix(), policies, std::slice::from_ref(charge), redis.clock());
            }
            let reply = redis.call(call, deadline).await?;
            wire::decisions(&reply, policies, &of_group)
        });
        for (group, said) in some.iter().zip(futures_util::future::join_all(asked).await) {
            for (place, decision) in group.iter().zip(said?) {
                decisions[*place] = decision;
            }
        }
    }
    Ok(decisions)
}

impl<'a> CrossSlot<'a> {
    fn new(redis: &'a Redis, policies: &'a [Policy], charges: &'a [Charge]) -> Self {
        let mut groups = groups(charges);
        let policy = |place: &usize| &policies[charges[*place].policy];
        // A place in a queue can't be given back without a gap, so those come last; behind them what only watches
        // and so refuses nobody. The order of the keys stays otherwise.
        groups.sort_by_key(|group| {
            let queues = group.iter().any(|place| matches!(policy(place).quota, Quota::LeakyBucket(_)));
            (group.iter().all(|place| policy(place).shadow), queues)
        });
        Self { redis, policies, charges, groups, deadline: redis.deadline() }
    }

    async fn take(&self) -> Result<Decisions, StoreError> {
        let mut round = 1;
        loop {
            match self.round().await? {
                Round::Overtaken(_) if round < ROUNDS => round += 1,
                Round::Decided(decisions) | Round::Overtaken(decisions) => return Ok(decisions),
            }
        }
    }

    async fn round(&self) -> Result<Round, StoreError> {
        let all: Vec<&Group> = self.groups.iter().collect();
        let mut seen = Decisions::new();
        seen.resize(self.charges.len(), wire::nothing());
        self.look(&all, Charge::peek, &mut seen).await?;
        if !self.passes(|place| self.fits(place, &seen)) {
            // The second look is at the price: it counts towards bans, and knows how long to wait.
            let short: Vec<&Group> = all
                .iter()
                .copied()
                .filter(|group| group.iter().any(|place| !self.fits(*place, &seen)))
                .collect();
            let at_price = |charge: Charge| match charge.manner {
                ChargeKind::Take => charge.with(ChargeKind::Look),
                _ => charge,
            };
            self.look(&short, at_price, &mut seen).await?;
            if !self.passes(|place| seen[place].allowed) {
                return Ok(Round::Decided(seen));
            }
        }
        self.charge(seen).await
    }

    /// Charges one tag after the other; `seen` is what the look has shown.
    async fn charge(&self, seen: Decisions) -> Result<Round, StoreError> {
        let mut decisions = seen.clone();
        let mut made = Made { redis: self.redis.clone(), refunds: Vec::new() };
        for group in self.groups.iter().filter(|group| group.iter().any(|place| self.takes(*place))) {
            let said = self.ask(group, |charge| charge).await?;
            let passes = group.iter().zip(&said).all(|(place, said)| said.allowed || self.watches(*place));
            if !passes {
                let mut shown = seen;
                for (place, decision) in group.iter().zip(said) {
                    shown[*place] = decision;
                }
                made.give_back().await;
                return Ok(Round::Overtaken(shown));
            }
            made.add(self, group, &said);
            for (place, decision) in group.iter().zip(said) {
                decisions[*place] = decision;
            }
        }
        made.refunds.clear();
        Ok(Round::Decided(decisions))
    }

    /// Asks some tags at once, for what `manner` makes of their charges.
    async fn look(
        &self,
        groups: &[&Group],
        manner: impl Fn(Charge) -> Charge + Copy,
        seen: &mut Decisions,
    ) -> Result<(), StoreError> {
        let asked = groups.iter().map(|group| self.ask(group, manner));
        for (group, said) in groups.iter().zip(futures_util::future::join_all(asked).await) {
            for (place, decision) in group.iter().zip(said?) {
                seen[*place] = decision;
            }
        }
        Ok(())
    }

    /// One call for one tag.
    async fn ask(&self, group: &Group, manner: impl Fn(Charge) -> Charge) -> Result<Decisions, StoreError> {
        let charges: SmallVec<[Charge; 4]> = group.iter().map(|place| manner(self.charges[*place])).collect();
        let mut call = wire::Call::default();
        call.add(self.redis.prefix(), self.policies, &charges, self.redis.clock());
        let reply = self.redis.call(call, self.deadline).await?;
        wire::decisions(&reply, self.policies, &charges)
    }

    /// Whether `is_so` for all that enforce.
    fn passes(&self, is_so: impl Fn(usize) -> bool) -> bool {
        (0..self.charges.len()).all(|place| self.watches(place) || is_so(place))
    }

    fn watches(&self, place: usize) -> bool {
        self.policies[self.charges[place].policy].shadow
    }

    fn takes(&self, place: usize) -> bool {
        let charge = &self.charges[place];
        charge.manner == ChargeKind::Take && charge.cost > 0
    }

    /// Whether a free look has shown enough.
    fn fits(&self, place: usize, seen: &Decisions) -> bool {
        seen[place].allowed && self.charges[place].cost <= seen[place].remaining
    }
}

impl Made {
    fn add(&mut self, request: &CrossSlot<'_>, group: &Group, said: &Decisions) {
        let mut call = wire::Call::default();
        let all = group.iter().zip(said);
        for (place, said) in all.filter(|(place, said)| said.allowed && request.takes(**place)) {
            let refund = request.charges[*place].refund(said.at);
            call.add(self.redis.prefix(), request.policies, &[refund], self.redis.clock());
        }
        self.refunds.push(call);
    }

    async fn give_back(&mut self) {
        give_back(&self.redis, std::mem::take(&mut self.refunds)).await;
    }
}

/// What can't be given back stays charged.
async fn give_back(redis: &Redis, refunds: Vec<wire::Call>) {
    let deadline = redis.deadline();
    let _ = futures_util::future::join_all(refunds.into_iter().map(|call| redis.call(call, deadline))).await;
}

impl Drop for Made {
    fn drop(&mut self) {
        let refunds = std::mem::take(&mut self.refunds);
        if refunds.is_empty() {
            return;
        }
        // There is none while the worker ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let redis = self.redis.clone();
            runtime.spawn(async move { give_back(&redis, refunds).await });
        }
    }
}
