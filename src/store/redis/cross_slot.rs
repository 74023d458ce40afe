//! Requests whose limits have keys in several hash slots of a cluster, which no script can decide together.
//!
//! First all keys are checked at once, without charging. If all charges fit, they are made: one tag after the other, each
//! in one atomic call, in an order that is the same for all requests, so that two requests for the same keys never hold a
//! part of them each. If a charge is denied now, since another request was faster, the charges before it are refunded.
//! The limits are never exceeded, but a competing request may meanwhile be denied although it would have fitted. So no
//! request is denied before a second round, and denials must not be cached.
//!
//! In a cluster the limits of one request may be on several nodes. `redis::cross_slot` peeks at all of them concurrently, then
//! charges one tag after the other in the order of the keys; each step is a request to the batcher. If one is denied at that
//! point, earlier ones are refunded (`ChargeKind::Refund`): each reply ends with the time of the script, from which a refund
//! finds the entry of a log, or how much has drained since. Grants are requested beside these steps, by charges without cost,
//! since a grant could not be undone.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::batcher::Batcher;
use super::reply;
use super::wire::ChargesWithGrants;
use crate::limit::{Charge, ChargeKind, Charges, Policy, Quota};
use crate::store::types::{Decisions, Granted, StoreError};

/// How often a request is decided if others are faster.
const ROUNDS: usize = 2;

/// Boxed, since few requests need it, and all would carry its size in their futures.
type Deciding<'a> = Pin<Box<dyn Future<Output = Result<Decisions, StoreError>> + Send + 'a>>;

/// A submitted call.
type Granting<'a> = Pin<Box<dyn Future<Output = Result<Granted, StoreError>> + Send + 'a>>;

/// The charges of one request on one tag: their indices in the request.
type Group = SmallVec<[usize; 4]>;

/// A request on several tags.
struct CrossSlot<'a> {
    batcher: &'a Arc<Batcher>,
    policies: &'a Arc<[Policy]>,
    charges: &'a [Charge],
    groups: Vec<Group>,
    deadline: Instant,
}

/// Refunds of what was charged so far. They are sent when it is dropped, unless the charges are kept: also if the request's
/// client disconnects, or its deadline passes.
struct Rollback {
    batcher: Arc<Batcher>,
    policies: Arc<[Policy]>,
    /// Those of each tag.
    refunds: Vec<Charges>,
}

/// How a round ended.
enum Round {
    Decided(Decisions),
    /// Another request was faster.
    Overtaken(Decisions),
}

/// Whether the charges have more than one tag.
pub(super) fn spans_slots(charges: &[Charge]) -> bool {
    charges.windows(2).any(|pair| pair[0].key != pair[1].key)
}

/// The charges by their tags, in the order of the keys.
fn groups(charges: &[Charge]) -> Vec<Group> {
    let mut indices: Vec<usize> = (0..charges.len()).collect();
    indices.sort_by_key(|index| charges[*index].key.0);
    indices.chunk_by(|a, b| charges[*a].key == charges[*b].key).map(SmallVec::from_slice).collect()
}

/// Separates grant requests from charges: returns the charges of the kind `Grant` at no cost, and all charges, of which those
/// of the kind `Grant` only take their units.
pub(super) fn split_grant_requests(charges: &[Charge]) -> (Charges, Charges) {
    let requests_grant = |charge: &&Charge| charge.kind == ChargeKind::Grant;
    let granting = charges.iter().filter(requests_grant).map(|charge| Charge { cost: 0, ..*charge });
    let without_grant =
        |charge| if requests_grant(&charge) { charge.with_kind(ChargeKind::Take) } else { *charge };
    (granting.collect(), charges.iter().map(without_grant).collect())
}

/// Takes all charges or none; the caller bounds its duration.
pub(super) fn take<'a>(
    batcher: &'a Arc<Batcher>,
    policies: &'a Arc<[Policy]>,
    charges: &'a [Charge],
    deadline: Instant,
) -> Deciding<'a> {
    Box::pin(async move { CrossSlot::new(batcher, policies, charges, deadline).take().await })
}

/// Applies each charge independently.
pub(super) fn apply<'a>(
    batcher: &'a Arc<Batcher>,
    policies: &'a Arc<[Policy]>,
    charges: &'a [Charge],
    deadline: Instant,
) -> Deciding<'a> {
    Box::pin(async move {
        let mut decisions = Decisions::new();
        decisions.resize(charges.len(), reply::undecided());
        let groups = groups(charges);
        let applied = groups.iter().map(async |group| {
            let of_group: Charges = group.iter().map(|index| charges[*index]).collect();
            batcher.submit(policies, ChargesWithGrants::charges_only(&of_group), true, deadline).await
        });
        for (group, decided) in groups.iter().zip(join_all(applied).await) {
            store(&mut decisions, group, decided?.decisions);
        }
        Ok(decisions)
    })
}

/// Puts the decisions on a group into those of the request.
fn store(decisions: &mut Decisions, group: &Group, decided: Decisions) {
    for (index, decision) in group.iter().zip(decided) {
        decisions[*index] = decision;
    }
}

impl<'a> CrossSlot<'a> {
    fn new(
        batcher: &'a Arc<Batcher>,
        policies: &'a Arc<[Policy]>,
        charges: &'a [Charge],
        deadline: Instant,
    ) -> Self {
        let mut groups = groups(charges);
        let policy = |index: &usize| &policies[charges[*index].policy];
        // A position in a leaky bucket's queue can't be refunded without leaving a gap, so these groups are charged late, and
        // groups in shadow mode, which deny nothing, last. The sort is stable, so groups stay in the order of their keys.
        groups.sort_by_key(|group| {
            let queues = group.iter().any(|index| matches!(policy(index).quota, Quota::LeakyBucket(_)));
            (group.iter().all(|index| policy(index).shadow), queues)
        });
        Self { batcher, policies, charges, groups, deadline }
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
        let mut checked = Decisions::new();
        checked.resize(self.charges.len(), reply::undecided());
        let mut checked = self.check(&all, Charge::peek, checked).await?;
        if !self.passes(|index| self.fits(index, &checked)) {
            // The second check is with the cost: it counts towards bans, and its denials have a `retry_after`.
            let short: Vec<&Group> = all
                .iter()
                .copied()
                .filter(|group| group.iter().any(|index| !self.fits(*index, &checked)))
                .collect();
            let with_cost = |charge: Charge| match charge.kind {
                ChargeKind::Take => charge.with_kind(ChargeKind::Check),
                _ => charge,
            };
            checked = self.check(&short, with_cost, checked).await?;
            if !self.passes(|index| checked[index].allowed) {
                return Ok(Round::Decided(checked));
            }
        }
        self.charge(checked).await
    }

    /// Charges one tag after the other; `checked` are the decisions of the check.
    async fn charge(&self, checked: Decisions) -> Result<Round, StoreError> {
        let mut decisions = checked.clone();
        let (batcher, policies) = (Arc::clone(self.batcher), Arc::clone(self.policies));
        let mut rollback = Rollback { batcher, policies, refunds: Vec::new() };
        for group in self.groups.iter().filter(|group| group.iter().any(|index| self.takes(*index))) {
            let decided = self.send(group, |charge| charge).await?;
            let passes = group
                .iter()
                .zip(&decided)
                .all(|(index, decision)| decision.allowed || self.is_shadow(*index));
            if !passes {
                let mut shown = checked;
                store(&mut shown, group, decided);
                rollback.refund().await;
                return Ok(Round::Overtaken(shown));
            }
            rollback.add(self, group, &decided);
            store(&mut decisions, group, decided);
        }
        rollback.refunds.clear();
        Ok(Round::Decided(decisions))
    }

    /// Sends the calls for some tags at once, with their charges changed by `change`; returns `decisions` with theirs.
    async fn check(
        &self,
        groups: &[&Group],
        change: impl Fn(Charge) -> Charge + Copy,
        mut decisions: Decisions,
    ) -> Result<Decisions, StoreError> {
        let calls = groups.iter().map(|group| self.send(group, change));
        for (group, decided) in groups.iter().zip(join_all(calls).await) {
            store(&mut decisions, group, decided?);
        }
        Ok(decisions)
    }

    /// Sends the charges on one tag, changed by `change`.
    async fn send(&self, group: &Group, change: impl Fn(Charge) -> Charge) -> Result<Decisions, StoreError> {
        let charges: Charges = group.iter().map(|index| change(self.charges[*index])).collect();
        let request = ChargesWithGrants::charges_only(&charges);
        // Boxed and typed: otherwise the compiler can't prove that the nested futures are `Send`.
        let deciding: Granting<'_> =
            Box::pin(self.batcher.submit(self.policies, request, false, self.deadline));
        Ok(deciding.await?.decisions)
    }

    /// Whether `allows` holds for every charge that is not in shadow mode.
    fn passes(&self, allows: impl Fn(usize) -> bool) -> bool {
        (0..self.charges.len()).all(|index| self.is_shadow(index) || allows(index))
    }

    fn is_shadow(&self, index: usize) -> bool {
        self.policies[self.charges[index].policy].shadow
    }

    fn takes(&self, index: usize) -> bool {
        self.charges[index].takes_units()
    }

    /// Whether a check at no cost has shown enough units.
    fn fits(&self, index: usize, checked: &Decisions) -> bool {
        checked[index].allowed && self.charges[index].cost <= checked[index].remaining
    }
}

impl Rollback {
    fn add(&mut self, request: &CrossSlot<'_>, group: &Group, decided: &Decisions) {
        let all = group.iter().zip(decided);
        let charged = all.filter(|(index, decision)| decision.allowed && request.takes(**index));
        self.refunds
            .push(charged.map(|(index, decision)| request.charges[*index].refund(decision.at)).collect());
    }

    async fn refund(&mut self) {
        refund(&self.batcher, &self.policies, std::mem::take(&mut self.refunds)).await;
    }
}

/// Sends refunds; what the store does not refund stays charged.
async fn refund(batcher: &Batcher, policies: &Arc<[Policy]>, refunds: Vec<Charges>) {
    let deadline = batcher.deadline();
    let refunds = refunds.iter().filter(|of_tag| !of_tag.is_empty());
    let sending = refunds.map(|of_tag| -> Granting<'_> {
        Box::pin(batcher.submit(policies, ChargesWithGrants::charges_only(of_tag), true, deadline))
    });
    let _ = join_all(sending).await;
}

impl Drop for Rollback {
    fn drop(&mut self) {
        let refunds = std::mem::take(&mut self.refunds);
        if refunds.is_empty() {
            return;
        }
        // While the worker shuts down there is no runtime any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (batcher, policies) = (Arc::clone(&self.batcher), Arc::clone(&self.policies));
            runtime.spawn(async move { refund(&batcher, &policies, refunds).await });
        }
    }
}
