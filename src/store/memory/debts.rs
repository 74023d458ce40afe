//! The fast path of requests whose limits are token buckets or GCRAs without bans, as most are: nearly all of their keys have
//! nothing but a debt. It decides and stores what [`Policy::decide`] would, without making records.

use smallvec::SmallVec;

use super::locked::{LocatedCharge, LockedShards};
use super::present::Present;
use super::shard::{Address, Shard};
use crate::limit::{Bucket, Charge, ChargeKind, Debt, Decision, Policy, Record, State, Step};
use crate::store::types::Decisions;

/// Takes a single charge; none if the fast path does not decide it.
pub(super) fn take_one(
    shard: &mut Shard,
    (policy, charge): (&Policy, &Charge),
    at: Address,
    now: Present<'_>,
) -> Option<Decision> {
    let step = step(shard, (policy, charge), at, now)?;
    store(shard, policy, at, &step, now);
    Some(step.decision)
}

/// Takes all charges of a request or none; none if the fast path does not decide every one of them.
pub(super) fn take(
    charges: &[LocatedCharge<'_>],
    shards: &mut LockedShards<'_>,
    now: Present<'_>,
) -> Option<(bool, Decisions)> {
    let mut steps: SmallVec<[Step<Debt>; 4]> = SmallVec::new();
    for (index, located) in charges.iter().enumerate() {
        let is_repeated = charges[..index].iter().any(|earlier| earlier.at.id == located.at.id);
        if located.policy.shadow || is_repeated {
            return None;
        }
        let step = step(shards.shard(located), (located.policy, located.charge), located.at, now)?;
        if !step.decision.allowed && step.next.is_some() {
            // The clock was set back.
            return None;
        }
        steps.push(step);
    }
    let passes = steps.iter().all(|step| step.decision.allowed);
    for (located, step) in charges.iter().zip(&mut steps) {
        let shard = shards.shard_mut(located);
        if passes {
            store(shard, located.policy, located.at, step, now);
        } else if step.decision.allowed {
            *step = self::step(shard, (located.policy, &located.charge.peek()), located.at, now)?;
        }
    }
    Some((passes, steps.into_iter().map(|step| step.decision).collect()))
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

/// The bucket that decides a charge if its key has no penalty and no granted units.
fn plain_bucket<'a>(policy: &'a Policy, charge: &Charge) -> Option<&'a Bucket> {
    if policy.ban.is_some() || charge.kind != ChargeKind::Take {
        return None;
    }
    policy.quota.bucket()
}

/// Stores the debt after a step, if it has changed.
fn store(shard: &mut Shard, policy: &Policy, at: Address, step: &Step<Debt>, now: Present<'_>) {
    let Some(debt) = step.next else { return };
    // A debt expires when it has drained, which is when all units are available again.
    let expires = now.time.after(step.decision.reset_after);
    if expires > now.time && shard.replace_debt(at, debt, expires) {
        return;
    }
    shard.store(policy, at, Record { state: Some(State::Debt(debt)), penalty: None }, now);
}
