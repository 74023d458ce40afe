//! The fast path of requests whose limits are token buckets or GCRAs without bans, as most are: nearly all of their keys have
//! nothing but a debt. It decides and stores what [`Policy::decide`] would, without making records.

use smallvec::SmallVec;

use super::locked::{LocatedCharge, LockedShards};
use super::present::Present;
use super::shard::{Address, Shard};
use crate::limit::{
    Bucket, Charge, ChargeKind, Debt, DecidedCharge, DecidedCharges, Decision, Policy, Record, State, Step,
};
use crate::time::Micros;

/// Takes a single charge; none if the fast path does not decide it.
pub(super) fn take_one(
    shard: &mut Shard,
    (policy, charge): (&Policy, &Charge),
    at: Address,
    now: Present<'_>,
) -> Option<Decision> {
    let Step { decision, next } = step(shard, (policy, charge), at, now)?;
    if let Some(debt) = next {
        store(shard, (policy, at), debt, decision.reset_after, now);
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
        let Step { decision, next } =
            step(shards.shard(located), (located.policy, located.charge), located.at, now)?;
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
            *decision = step(shard, (located.policy, &located.charge.peek()), located.at, now)?.decision;
        } else if let Some(debt) = debt {
            store(shard, (located.policy, located.at), debt, decision.reset_after, now);
        }
    }
    Some(decided)
}

/// Decides a charge from the debt of its key; none if that needs more than a debt.
fn step(
    shard: &Shard,
    (policy, charge): (&Policy, &Charge),
    at: Address,
    now: Present<'_>,
) -> Option<Step<Debt>> {
    let bucket = plain_bucket(policy, charge)?;
    let mut step = bucket.step(shard.debt(at).ok()?.as_ref(), now.time, charge.cost);
    step.decision.at = now.time;
    Some(step)
}

/// The bucket that decides a charge if its key has no penalty, no granted units and no time of creation.
fn plain_bucket<'a>(policy: &'a Policy, charge: &Charge) -> Option<&'a Bucket> {
    if policy.ban.is_some() || policy.charges_by_status() || charge.kind != ChargeKind::Take {
        return None;
    }
    policy.quota.bucket()
}

/// Stores the debt of a key, which has drained after `reset_after`: then all units are available again.
fn store(
    shard: &mut Shard,
    (policy, at): (&Policy, Address),
    debt: Debt,
    reset_after: Micros,
    now: Present<'_>,
) {
    let expires = now.time.after(reset_after);
    if expires > now.time && shard.replace_debt(at, debt, expires) {
        return;
    }
    shard.store(policy, at, Record { state: Some(State::Debt(debt)), ..Record::default() }, now);
}
