//! A policy is a quota with a name, and what holds keys back beside it; a charge is what one request wants of it.

use std::ops::Index;
use std::sync::Arc;

use super::key::Key;
use super::penalty::{Ban, Penalty};
use super::quota::{Quota, State};
use super::slots::Holder;
use super::window::Align;
use super::{Decision, DenyReason, Step};
use crate::id_vec::Id;
use crate::time::{Micros, Timestamp};

/// The place of a policy in the list of all policies of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

impl Id for PolicyId {
    fn new(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

/// Policies are shared as slices, so a slice of them is indexed by its ids.
impl Index<PolicyId> for [Policy] {
    type Output = Policy;

    fn index(&self, id: PolicyId) -> &Policy {
        &self[id.index()]
    }
}

/// A named quota: what the configuration calls a limit, or the numbers of one of its tiers or overrides.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The limit's name: `[a-z0-9_-]{1,64}`.
    pub name: Box<str>,
    /// The name in stored keys: the limit's, and of a tier `LIMIT.TIER`, since each tier counts apart.
    pub stored: Box<str>,
    /// The algorithm and its numbers.
    pub quota: Quota,
    /// When repeated denials ban a key.
    pub ban: Option<Ban>,
    /// Whether it only watches: decided and counted, but never refusing anybody.
    pub shadow: bool,
    /// Final HTTP statuses of the requests that are charged: units are taken on arrival, and given back when the status
    /// is another one. Empty if every request is charged.
    pub charge_on: Arc<[u16]>,
    salt: u128,
}

/// One limit's part of a request: `cost` units from the quota of `policy`, counted under `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Which policy.
    pub policy: PolicyId,
    /// Whose count.
    pub key: Key,
    /// How many units.
    pub cost: u64,
    /// What is to be done with them.
    pub manner: ChargeKind,
    /// Who takes or gives back a slot; means nothing to other algorithms.
    pub holder: Holder,
    /// When the units were taken: of a refund by the clock of the store, of a late charge by that of this process.
    /// Means nothing to other manners.
    pub taken: Timestamp,
}

/// What is to be done with the units of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChargeKind {
    /// Take them, if they are there.
    #[default]
    Take = 0,
    /// Say whether they are there, and leave them.
    Look = 1,
    /// Give a slot back.
    GiveBack = 3,
    /// Renew the lease of a slot.
    Renew = 4,
    /// Give back what was taken: another charge of the request was refused, or its final status does not charge it.
    Refund = 5,
    /// Charge what was taken a while ago and could not be charged then, as far as the limit goes.
    Late = 6,
}

/// What a store keeps for one policy and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What the algorithm remembers.
    pub state: Option<State>,
    /// What holds the key back beside its quota.
    pub hold: Option<Penalty>,
}

/// What a policy says to a charge, and what to keep if that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer.
    pub decision: Decision,
    /// What to keep from now on. On a denial it is set only if the denial counts towards a ban, or the clock
    /// was set back.
    pub next: Option<Record>,
}

impl Charge {
    /// A charge that takes `cost` units.
    #[must_use]
    pub fn take(policy: PolicyId, key: Key, cost: u64) -> Self {
        let (holder, taken) = (Holder::default(), Timestamp::default());
        Self { policy, key, cost, manner: ChargeKind::Take, holder, taken }
    }

    /// A free look at what is there.
    #[must_use]
    pub fn peek(self) -> Self {
        Self { cost: 0, manner: ChargeKind::Take, ..self }
    }

    /// Gives back what this charge took at `taken`.
    #[must_use]
    pub fn refund(self, taken: Timestamp) -> Self {
        Self { manner: ChargeKind::Refund, taken, ..self }
    }

    /// Charges what this charge took at `taken`, where the store could not be asked.
    #[must_use]
    pub fn late(self, taken: Timestamp) -> Self {
        Self { manner: ChargeKind::Late, taken, ..self }
    }

    /// The same charge, done otherwise.
    #[must_use]
    pub fn with(self, manner: ChargeKind) -> Self {
        Self { manner, ..self }
    }
}

impl Record {
    /// The record with a block for `length` from `now`.
    #[must_use]
    pub fn blocked(self, now: Timestamp, length: Micros) -> Self {
        let (hold, _) = self.hold.unwrap_or_default().settled(now);
        Self { hold: Some(Penalty { blocked: hold.until(length), ..hold }), ..self }
    }

    /// The record without block and ban.
    #[must_use]
    pub fn unblocked(self) -> Self {
        Self { hold: None, ..self }
    }

    /// The record of a key that has spent nothing and was never refused; a block stays.
    #[must_use]
    pub fn reset(self, now: Timestamp) -> Self {
        let hold = self.hold.map(|hold| hold.settled(now).0).filter(Penalty::is_blocked);
        let kept = |hold: Penalty| Penalty { stamp: hold.stamp, blocked: hold.blocked, ..Penalty::default() };
        Self { state: None, hold: hold.map(kept) }
    }
}

impl Policy {
    /// A policy of this name.
    #[must_use]
    pub fn new(name: &str, quota: Quota) -> Self {
        Self::stored_as(name, name, quota)
    }

    /// The numbers that a tier of limit `name` has.
    #[must_use]
    pub fn tier(name: &str, tier: &str, quota: Quota) -> Self {
        Self::stored_as(name, &format!("{name}.{tier}"), quota)
    }

    fn stored_as(name: &str, stored: &str, quota: Quota) -> Self {
        let salt = salt(stored, quota.letter());
        Self {
            name: name.into(),
            stored: stored.into(),
            quota,
            ban: None,
            shadow: false,
            charge_on: Arc::default(),
            salt,
        }
    }

    /// Whether the units of its requests may be given back when their final status is known.
    #[must_use]
    pub fn charges_by_status(&self) -> bool {
        !self.charge_on.is_empty()
    }

    /// The same policy with the share of one of `instances` proxies.
    #[must_use]
    pub fn shared_by(&self, instances: std::num::NonZeroU64) -> Self {
        Self { quota: self.quota.shared_by(instances), ..self.clone() }
    }

    /// Whether its windows follow the calendar, and so the wall clock.
    #[must_use]
    pub fn follows_calendar(&self) -> bool {
        matches!(&self.quota, Quota::FixedWindow(window) if matches!(window.align(), Align::Calendar(_)))
    }

    /// 128 bits that tell this name and algorithm from all others, whatever the numbers are: two policies
    /// that agree in both share their counts.
    #[must_use]
    pub fn salt(&self) -> u128 {
        self.salt
    }

    /// The salts of this name with every algorithm, for what must outlive a change of the algorithm.
    pub fn salts(&self) -> impl Iterator<Item = u128> {
        Quota::LETTERS.into_iter().map(|letter| salt(&self.stored, letter))
    }

    /// Decides a charge at `now` by what is kept of its key; pure.
    #[must_use]
    pub fn decide(&self, record: Option<&Record>, now: Timestamp, charge: &Charge) -> Outcome {
        let outcome = self.outcome(record, now, charge);
        Outcome { decision: Decision { at: now, ..outcome.decision }, ..outcome }
    }

    fn outcome(&self, record: Option<&Record>, now: Timestamp, charge: &Charge) -> Outcome {
        let state = record.and_then(|record| record.state.as_ref());
        let hold = record.and_then(|record| record.hold);
        let step = match charge.manner {
            ChargeKind::Take | ChargeKind::Look => return self.admit(state, hold, now, charge),
            ChargeKind::GiveBack => self.quota.give_back(state, now, charge.holder),
            ChargeKind::Renew => self.quota.renew(state, now, charge.cost, charge.holder),
            ChargeKind::Refund => self.quota.refund(state, now, charge.cost, charge.taken, charge.holder),
            ChargeKind::Late => self.quota.late(state, now, charge.cost, charge.taken),
        };
        let hold = hold.filter(|hold| hold.lifetime(self.ban.as_ref(), now) > Micros::ZERO);
        // What was all given back is no state any more, also where a hold stays.
        let stays = |state: &State| {
            charge.manner != ChargeKind::Refund
                || matches!(state, State::Leases(_))
                || self.quota.lifetime(state, now) > Micros::ZERO
        };
        let next = step.next.map(|state| Record { state: Some(state).filter(stays), hold });
        Outcome { decision: step.decision, next }
    }

    /// How long `record` differs from no record at all, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, record: &Record, now: Timestamp) -> Micros {
        let state = record.state.as_ref().map_or(Micros::ZERO, |state| self.quota.lifetime(state, now));
        let hold = record.hold.map_or(Micros::ZERO, |hold| hold.lifetime(self.ban.as_ref(), now));
        state.max(hold)
    }

    fn admit(
        &self,
        state: Option<&State>,
        hold: Option<Penalty>,
        now: Timestamp,
        charge: &Charge,
    ) -> Outcome {
        let step = self.quota.step(state, now, charge.cost, charge.holder);
        if hold.is_none() && (self.ban.is_none() || step.decision.allowed) {
            // By far the most common, and all there is without bans and blocks.
            let next = step.next.map(|state| Record { state: Some(state), hold: None });
            return self.shown(Outcome { decision: step.decision, next }, state, now, charge);
        }
        let (hold, set_back) = hold.unwrap_or_default().settled(now);
        if hold.end().is_some() {
            let moved = set_back.then(|| Record { state: state.cloned(), hold: Some(hold) });
            return Outcome { decision: self.held(&hold, state, &step.decision, now, charge), next: moved };
        }
        if step.decision.allowed {
            let kept = Some(hold).filter(|hold| hold.lifetime(self.ban.as_ref(), now) > Micros::ZERO);
            let next = step.next.map(|state| Record { state: Some(state), hold: kept });
            return self.shown(Outcome { decision: step.decision, next }, state, now, charge);
        }
        self.refused(hold, set_back, state, &step, now, charge)
    }

    /// A denial by the quota, which may be the one that begins a ban.
    fn refused(
        &self,
        hold: Penalty,
        set_back: bool,
        state: Option<&State>,
        step: &Step,
        now: Timestamp,
        charge: &Charge,
    ) -> Outcome {
        let counted = self.ban.map_or(hold, |ban| hold.denied(&ban));
        let kept = Some(counted).filter(|hold| hold.lifetime(self.ban.as_ref(), now) > Micros::ZERO);
        let next = (self.ban.is_some() || set_back || step.next.is_some())
            .then(|| Record { state: step.next.clone().or_else(|| state.cloned()), hold: kept });
        let decision = if counted.end().is_some() {
            self.held(&counted, state, &step.decision, now, charge)
        } else {
            step.decision
        };
        Outcome { decision, next }
    }

    /// The decision on a key that is held back, whatever its quota says.
    fn held(
        &self,
        hold: &Penalty,
        state: Option<&State>,
        own: &Decision,
        now: Timestamp,
        charge: &Charge,
    ) -> Decision {
        let rest = Micros(hold.end().map_or(0, |end| end.0.saturating_sub(now.0)));
        let present = self.quota.step(state, now, 0, charge.holder).decision;
        Decision {
            allowed: false,
            remaining: 0,
            reset_after: present.reset_after.max(rest),
            retry_after: own.retry_after.map(|wait| wait.max(rest)),
            delay: Micros::ZERO,
            cause: if hold.is_blocked() { DenyReason::Block } else { DenyReason::Ban },
            ..present
        }
    }

    /// The outcome as it is shown: who only looks is told what is there, and takes nothing.
    fn shown(&self, outcome: Outcome, state: Option<&State>, now: Timestamp, charge: &Charge) -> Outcome {
        if charge.manner == ChargeKind::Take || !outcome.decision.allowed {
            return outcome;
        }
        Outcome { decision: self.quota.step(state, now, 0, charge.holder).decision, next: None }
    }
}

fn salt(stored: &str, letter: u8) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[letter]).update(stored.as_bytes());
    let mut salt = [0; 16];
    hasher.finalize_xof().fill(&mut salt);
    u128::from_le_bytes(salt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;

    fn policy() -> Policy {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        let ban = Ban { after: 2, within: Micros::SECOND, length: Micros(5_000_000) };
        Policy { ban: Some(ban), ..Policy::new("a", Quota::token_bucket(rate, 1).unwrap()) }
    }

    fn ask(cost: u64, manner: ChargeKind) -> Charge {
        Charge::take(PolicyId(0), Key([0; 16]), cost).with(manner)
    }

    #[test]
    fn the_denial_that_is_too_many_begins_the_ban() {
        let policy = policy();
        let taken = policy.decide(None, Timestamp(0), &ask(1, ChargeKind::Take)).next.unwrap();
        let once = policy.decide(Some(&taken), Timestamp(0), &ask(1, ChargeKind::Take));
        assert_eq!(
            (once.decision.cause, once.decision.retry_after),
            (DenyReason::Quota, Some(Micros::SECOND))
        );
        let record = once.next.unwrap();
        let twice = policy.decide(Some(&record), Timestamp(1), &ask(1, ChargeKind::Take));
        assert_eq!(
            (twice.decision.cause, twice.decision.retry_after),
            (DenyReason::Ban, Some(Micros(5_000_000)))
        );
        let record = twice.next.unwrap();
        assert_eq!(policy.lifetime(&record, Timestamp(1)), Micros(5_000_000));
        // A free look is refused as well, and a ban is not made longer by those that it refuses.
        let look = policy.decide(Some(&record), Timestamp(5_000_000), &ask(0, ChargeKind::Take));
        assert_eq!(
            (look.decision.allowed, look.decision.retry_after, look.next),
            (false, Some(Micros(1)), None)
        );
        assert!(
            policy.decide(Some(&record), Timestamp(5_000_001), &ask(1, ChargeKind::Take)).decision.allowed
        );
    }

    #[test]
    fn a_look_at_a_price_decides_and_takes_nothing() {
        let policy = policy();
        let look = policy.decide(None, Timestamp(0), &ask(1, ChargeKind::Look));
        assert_eq!((look.decision.allowed, look.decision.remaining, look.next), (true, 1, None));
        let taken = policy.decide(None, Timestamp(0), &ask(1, ChargeKind::Take)).next.unwrap();
        assert!(!policy.decide(Some(&taken), Timestamp(0), &ask(1, ChargeKind::Look)).decision.allowed);
    }

    #[test]
    fn tiers_and_algorithms_count_apart() {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        let quota = Quota::token_bucket(rate, 1).unwrap();
        let base = Policy::new("a", quota.clone());
        assert_ne!(base.salt(), Policy::tier("a", "pro", quota.clone()).salt());
        assert_eq!(base.salt(), Policy::new("a", quota).salt());
        assert!(base.salts().any(|salt| salt == base.salt()));
        let salts: std::collections::HashSet<u128> = base.salts().collect();
        assert_eq!(salts.len(), Quota::LETTERS.len());
    }
}
