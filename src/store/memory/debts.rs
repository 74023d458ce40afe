//! The fast path of requests whose limits are token buckets or GCRAs without bans, as most are: nearly all of their keys have
//! nothing but a debt. It decides and stores what [`Policy::decide`] would, without making records. Both paths lock the shards of a
//! request here.

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::present::Present;
use super::shard::{Address, EntryHasher, Shard};
use crate::limit::{
    Bucket, Charge, ChargeKind, Debt, DecidedCharge, DecidedCharges, Decision, EntryId, Policy, Record,
    State, Step,
};
use crate::time::Micros;

/// Takes a single charge; none if the fast path does not decide it.
pub(super) fn take_one(shard: &mut Shard, located: &LocatedCharge<'_>, now: Present<'_>) -> Option<Decision> {
    let Step { decision, next } = step(shard, located, now)?;
    if let Some(debt) = next {
        store(shard, located, debt, decision.reset_after, now);
    }
    Some(decision)
}

/// Takes all charges of a request or none; none if the fast path does not decide every one of them.
#[inline]
pub(super) fn take(
    charges: &[LocatedCharge<'_>],
    shards: &mut LockedShards<'_>,
    now: Present<'_>,
) -> Option<DecidedCharges> {
    let mut decided = DecidedCharges::new();
    let mut debts: SmallVec<[Option<Debt>; 4]> = SmallVec::new();
    let mut passes = true;
    for (index, located) in charges.iter().enumerate() {
        let is_repeated = charges[..index].iter().any(|earlier| earlier.at.id == located.at.id);
        if located.policy.shadow || is_repeated {
            return None;
        }
        let Step { decision, next } = step(shards.shard(located), located, now)?;
        if !decision.allowed && next.is_some() {
            // The clock was set back.
            return None;
        }
        passes &= decision.allowed;
        decided.push(DecidedCharge { charge: *located.charge, decision });
        debts.push(next);
    }
    for ((located, one), debt) in charges.iter().zip(&mut decided).zip(debts) {
        let decision = &mut one.decision;
        let shard = shards.shard_mut(located);
        if !passes && decision.allowed {
            let peek = LocatedCharge { charge: &located.charge.peek(), ..*located };
            *decision = step(shard, &peek, now)?.decision;
        } else if let Some(debt) = debt {
            store(shard, located, debt, decision.reset_after, now);
        }
    }
    Some(decided)
}

/// Decides a charge from the debt of its key; none if that needs more than a debt.
fn step(shard: &Shard, located: &LocatedCharge<'_>, now: Present<'_>) -> Option<Step<Debt>> {
    let bucket = plain_bucket(located.policy, located.charge)?;
    let mut step = bucket.step(shard.debt(located.at).ok()?.as_ref(), now.time, located.charge.cost);
    step.decision.at = now.time;
    Some(step)
}

/// The bucket that decides a charge if its key has no penalty, no granted units and no time of creation.
fn plain_bucket<'a>(policy: &'a Policy, charge: &Charge) -> Option<&'a Bucket> {
    if policy.ban.is_some() || policy.reserves() || charge.kind != ChargeKind::Take {
        return None;
    }
    policy.quota.bucket()
}

/// Stores the debt of a key, which has drained after `reset_after`: then all units are available again.
fn store(shard: &mut Shard, located: &LocatedCharge<'_>, debt: Debt, reset_after: Micros, now: Present<'_>) {
    let expires = now.time.after(reset_after);
    if expires > now.time && shard.replace_debt(located.at, debt, expires) {
        return;
    }
    shard.store(
        located.policy,
        located.at,
        Record { state: Some(State::Debt(debt)), ..Record::default() },
        now,
    );
}

/// One charge of a request, with its policy and the address of its entry.
#[derive(Clone, Copy)]
pub(super) struct LocatedCharge<'a> {
    pub policy: &'a Policy,
    pub charge: &'a Charge,
    pub at: Address,
    /// The index of its shard among the locked ones.
    shard: usize,
}

/// The charges of one request.
pub(super) type LocatedCharges<'a> = SmallVec<[LocatedCharge<'a>; 4]>;

/// The shards of one request, locked.
pub(super) struct LockedShards<'a>(SmallVec<[MutexGuard<'a, Shard>; 4]>);

impl<'a> LocatedCharge<'a> {
    /// A charge whose shard is the only one that is locked.
    pub fn alone(policy: &'a Policy, charge: &'a Charge, at: Address) -> Self {
        Self { policy, charge, at, shard: 0 }
    }
}

/// Locates the entries of charges, and locks their shards: always in the order of their numbers, so that two requests never
/// deadlock.
#[inline]
pub(super) fn lock<'a>(
    shards: &'a [Mutex<Shard>],
    hasher: &EntryHasher,
    policies: &'a [Policy],
    charges: &'a [Charge],
) -> (LocatedCharges<'a>, LockedShards<'a>) {
    let locate = |charge: &'a Charge| {
        let policy = &policies[charge.policy];
        let at = hasher.address(EntryId::new(policy, charge.key));
        LocatedCharge { policy, charge, at, shard: at.shard(shards.len()) }
    };
    let mut charges: LocatedCharges<'a> = charges.iter().map(locate).collect();
    let mut numbers: SmallVec<[usize; 4]> = charges.iter().map(|charge| charge.shard).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for charge in &mut charges {
        // Each of them is among the numbers.
        charge.shard = numbers.iter().position(|number| *number == charge.shard).unwrap_or_default();
    }
    (charges, LockedShards(numbers.into_iter().map(|number| shards[number].lock()).collect()))
}

impl LockedShards<'_> {
    pub fn shard(&self, charge: &LocatedCharge<'_>) -> &Shard {
        &self.0[charge.shard]
    }

    pub fn shard_mut(&mut self, charge: &LocatedCharge<'_>) -> &mut Shard {
        &mut self.0[charge.shard]
    }
}
