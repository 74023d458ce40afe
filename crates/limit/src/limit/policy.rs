//! A policy: a named quota with its bans, and the whole decision on a charge.

mod other_numbers;
mod seed;
mod settlement;

use std::ops::Index;
use std::sync::Arc;

use super::ahead::{Ahead, Grant, GrantReport};
use super::charge::{Charge, ChargeKind, PolicyId};
use super::decision::{Decision, DenyReason, Step};
use super::entry_id::salt;
use super::grants::GrantingQuota;
use super::penalty::{Ban, Penalty};
use super::quota::{Quota, Taken};
use super::raise::{DerivedFrom, Factor, raised};
use super::record::Record;
use super::soft::Soft;
use super::state::State;
use super::window::Align;
use crate::id_vec::Id as _;
use crate::time::{Micros, Timestamp};

/// A named quota: what the configuration calls a limit, or the numbers of one of its tiers or overrides.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The limit's name: `[a-z0-9_-]{1,64}`.
    pub name: Box<str>,
    /// The name in stored keys: the limit's, and of a tier `LIMIT.TIER`, since tiers are counted separately.
    pub stored: Box<str>,
    /// The algorithm and its numbers.
    pub quota: Quota,
    /// When repeated denials ban a key.
    pub ban: Option<Ban>,
    /// Shadow mode: the limit is decided and counted, but never denies a request.
    pub shadow: bool,
    /// The headers that it adds as a soft limit.
    pub soft: Soft,
    charge_on: Arc<[u16]>,
    /// The most that a settled cost can be; `None` if the cost of a request is known when it arrives.
    settled_max: Option<u64>,
    /// How units are granted ahead of requests; `None` if the store decides every request.
    pub ahead: Option<Ahead>,
    /// Concurrency limits: whether a freed slot stays with the process for a moment, for the next request of its key.
    pub keeps_slots: bool,
    /// The policy that it has other numbers of; none for a policy of the configuration.
    pub derived_from: Option<DerivedFrom>,
    salt: u128,
}

/// The decision of a policy on a charge, and the record to store if it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordStep {
    /// The decision.
    pub decision: Decision,
    /// The new record. On a denial it is set only if the denial counts towards a ban, or the clock was set back.
    pub next: Option<Record>,
}

/// A charge that is being decided at `now`, and the state of its key.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    state: Option<&'a State>,
    now: Timestamp,
    charge: &'a Charge,
}

/// Policies are shared as slices, so a slice of them is indexed by its ids.
impl Index<PolicyId> for [Policy] {
    type Output = Policy;

    fn index(&self, id: PolicyId) -> &Policy {
        &self[id.index()]
    }
}

impl Policy {
    /// The letters of all stored keys; see [`Policy::letter`].
    pub const LETTERS: [u8; 25] = *b"bigwlsqcBIGWLSahfvrpAHFVR";

    /// A policy of this name.
    #[must_use]
    pub fn new(name: &str, quota: Quota) -> Self {
        Self::stored_as(name, name, quota)
    }

    /// The policy of a tier of limit `name`.
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
            soft: Soft::default(),
            charge_on: Arc::default(),
            settled_max: None,
            ahead: None,
            keeps_slots: false,
            derived_from: None,
            salt,
        }
    }

    /// This policy with grants. Its records have another layout, so it does not share the counts of the policy without.
    #[must_use]
    pub fn with_ahead(self, ahead: Ahead) -> Self {
        Self { ahead: Some(ahead), ..self }.with_own_salt()
    }

    /// This policy, which charges only requests with one of these final HTTP statuses; with none, every request. If it
    /// records when its states were created, it does not share the counts of the policy without.
    #[must_use]
    pub fn with_charge_on(self, statuses: Arc<[u16]>) -> Self {
        Self { charge_on: statuses, ..self }.with_own_salt()
    }

    fn with_own_salt(self) -> Self {
        Self { salt: salt(&self.stored, self.letter()), ..self }
    }

    /// The letter of its stored keys: that of its algorithm; the one before it in the alphabet if its records have the time of
    /// their creation; and in upper case if its records may have grants. So a version that does not know a layout never
    /// reads it.
    #[must_use]
    pub fn letter(&self) -> u8 {
        let letter = self.quota.letter() - u8::from(self.records_creation());
        if self.ahead.is_some() { letter.to_ascii_uppercase() } else { letter }
    }

    /// Whether its records have the time at which their state was created. A refund applies only to the state that took the
    /// units: one that was created later, after a reset or a loss, is not changed. Entries of a log and slots are found by
    /// their time and their holder.
    pub(super) fn records_creation(&self) -> bool {
        self.reserves() && !matches!(self.quota, Quota::SlidingLog(_) | Quota::Concurrency(_))
    }

    /// Final HTTP statuses of the requests that are charged: units are taken on arrival, and refunded if the status is not
    /// among them. Empty if every request is charged.
    #[must_use]
    pub fn charge_on(&self) -> &[u16] {
        &self.charge_on
    }

    /// Whether units may be refunded when the final status of their request is known.
    #[must_use]
    pub fn charges_by_status(&self) -> bool {
        !self.charge_on.is_empty()
    }

    /// Whether the units of a request are a reservation, which its response may change.
    #[must_use]
    pub fn reserves(&self) -> bool {
        self.charges_by_status() || self.settles()
    }

    /// Whether units are slots, which are released, rather than counts, which expire.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        matches!(self.quota, Quota::Concurrency(_))
    }

    /// The mode by its name in the configuration.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match (self.soft.marks, self.shadow) {
            (true, _) => "mark",
            (false, true) => "shadow",
            (false, false) => "enforce",
        }
    }

    /// Whether it is a soft limit. A limit in shadow mode adds no headers.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.soft.marks || self.soft.warn_at.is_some() && !self.shadow
    }

    /// Whether a request with this decision carries a warning.
    #[must_use]
    pub fn warns(&self, decision: &Decision) -> bool {
        self.is_soft() && self.soft.warn_at.is_some_and(|share| share.is_used(decision))
    }

    /// The policy of the configuration that this one is, or of which it has other numbers; `own` is its id.
    #[must_use]
    pub fn configured(&self, own: PolicyId) -> PolicyId {
        self.derived_from.map_or(own, |from| from.policy)
    }

    /// `q` and `w` of the IETF draft, with the numbers raised by `factor`; see [`Quota::advertised`].
    #[must_use]
    pub fn advertised(&self, factor: Option<Factor>) -> (u64, u64) {
        let raised = factor.and_then(|factor| raised(&self.quota, factor).ok());
        raised.as_ref().unwrap_or(&self.quota).advertised()
    }

    /// Whether its windows follow the calendar, and so the wall clock.
    #[must_use]
    pub fn follows_calendar(&self) -> bool {
        matches!(&self.quota, Quota::FixedWindow(window) if matches!(window.align(), Align::Calendar(_)))
    }

    /// 128 bits that identify the stored name and the algorithm, whatever the numbers are: two policies that agree in both
    /// share their counts.
    #[must_use]
    pub fn salt(&self) -> u128 {
        self.salt
    }

    /// The salts of the stored name with every algorithm, for what must survive a change of the algorithm.
    pub fn salts(&self) -> impl Iterator<Item = u128> {
        Self::LETTERS.into_iter().map(|letter| salt(&self.stored, letter))
    }

    /// Decides a charge at `now` from the record of its key; pure.
    #[must_use]
    pub fn decide(&self, record: Option<&Record>, now: Timestamp, charge: &Charge) -> RecordStep {
        let RecordStep { decision, next } = self.record_step(record, now, charge);
        let next = next.map(|next| Record { created: self.created(&next, record, now), ..next });
        RecordStep { decision: Decision { at: now, ..decision }, next }
    }

    fn record_step(&self, record: Option<&Record>, now: Timestamp, charge: &Charge) -> RecordStep {
        let state = record.and_then(|record| record.state.as_ref());
        let penalty = record.and_then(|record| record.penalty);
        let taken = Taken { units: charge.cost, at: charge.taken, holder: charge.holder };
        let step = match charge.kind {
            ChargeKind::Take | ChargeKind::Check | ChargeKind::Grant => {
                return self.admit(Attempt { state, now, charge }, penalty);
            }
            ChargeKind::Release => self.quota.release(state, now, charge.holder),
            ChargeKind::Renew => self.quota.renew(state, now, charge.cost, charge.holder),
            ChargeKind::Refund => self.granting().refund(state, now, self.refunded(record, now, charge)),
            ChargeKind::Late => self.granting().charge_late(state, now, taken),
            ChargeKind::Extra => self.granting().charge_late(state, now, self.extra(charge)),
        };
        let penalty = self.unexpired(penalty, now);
        // A refund of everything leaves no state, even if the record stays because of a penalty.
        let stays = |state: &State| {
            charge.kind != ChargeKind::Refund
                || matches!(state, State::Leases(_))
                || self.granting().lifetime(state, now) > Micros::ZERO
        };
        let next =
            step.next.map(|state| Record { state: Some(state).filter(stays), penalty, ..Record::default() });
        RecordStep { decision: step.decision, next }
    }

    /// Applies the report of a holder of granted units, before the charge that it comes with is decided. Returns the new
    /// record; `None` if it does not change. A report must not be applied twice: its units would hide those that others hold.
    #[must_use]
    pub fn report(&self, record: Option<&Record>, now: Timestamp, report: &GrantReport) -> Option<Record> {
        self.ahead?;
        let granting = self.granting();
        let state = granting.report(record.and_then(|record| record.state.as_ref()), now, report)?;
        // What equals no state is left out, as in Redis.
        let state = Some(state).filter(|state| granting.lifetime(state, now) > Micros::ZERO);
        let penalty = self.unexpired(record.and_then(|record| record.penalty), now);
        let next = Record { state, penalty, ..Record::default() };
        Some(Record { created: self.created(&next, record, now), ..next })
    }

    /// Grants units after a charge of the kind `Grant`, whose decision `decided` has left `record`. There are none without
    /// `ahead`, nor for a key that is banned or blocked.
    #[must_use]
    pub fn grant(
        &self,
        record: Option<&Record>,
        now: Timestamp,
        wanted: u64,
        decided: &Decision,
    ) -> Option<(RecordStep, Grant)> {
        let granting = (decided.reason == DenyReason::Quota).then(|| self.granting())?;
        let state = record.and_then(|record| record.state.as_ref());
        let reserved = granting.grant(state, now, wanted, !decided.allowed)?;
        let Decision { remaining, reset_after, .. } = reserved.decision;
        let decision = Decision { remaining, reset_after, ..*decided };
        let penalty = self.unexpired(record.and_then(|record| record.penalty), now);
        let next = Record { state: Some(reserved.state), penalty, ..Record::default() };
        let next = Record { created: self.created(&next, record, now), ..next };
        Some((RecordStep { decision, next: Some(next) }, reserved.grant))
    }

    fn granting(&self) -> GrantingQuota<'_> {
        GrantingQuota { quota: &self.quota, ahead: self.ahead }
    }

    /// How long `record` differs from no record at all, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, record: &Record, now: Timestamp) -> Micros {
        let state = record.state.as_ref().map_or(Micros::ZERO, |state| self.granting().lifetime(state, now));
        let penalty = record.penalty.map_or(Micros::ZERO, |penalty| penalty.lifetime(self.ban.as_ref(), now));
        state.max(penalty)
    }

    fn admit(&self, attempt: Attempt<'_>, penalty: Option<Penalty>) -> RecordStep {
        let Attempt { state, now, charge } = attempt;
        let step = self.granting().step(state, now, charge.cost, charge.holder);
        if penalty.is_none() && (self.ban.is_none() || step.decision.allowed) {
            // The fast path: most limits have no bans, and most keys no block.
            let next = step.next.map(|state| Record { state: Some(state), ..Record::default() });
            return self.without_taking(RecordStep { decision: step.decision, next }, attempt);
        }
        let (penalty, set_back) = penalty.unwrap_or_default().updated(now);
        if penalty.end().is_some() {
            let present = self.granting().step(state, now, 0, charge.holder).next;
            let state = || present.clone().or(state.cloned());
            let moved = (set_back || present.is_some()).then(|| Record {
                state: state(),
                penalty: Some(penalty),
                ..Record::default()
            });
            return RecordStep { decision: self.penalized(&penalty, &step.decision, attempt), next: moved };
        }
        if step.decision.allowed {
            let kept = self.unexpired(Some(penalty), now);
            let next =
                step.next.map(|state| Record { state: Some(state), penalty: kept, ..Record::default() });
            return self.without_taking(RecordStep { decision: step.decision, next }, attempt);
        }
        self.denied(penalty, set_back, &step, attempt)
    }

    /// A denial by the quota, which may be the one that starts a ban.
    fn denied(
        &self,
        penalty: Penalty,
        set_back: bool,
        step: &Step<State>,
        attempt: Attempt<'_>,
    ) -> RecordStep {
        let counted = self.ban.map_or(penalty, |ban| penalty.count_denial(&ban));
        let kept = self.unexpired(Some(counted), attempt.now);
        let next = (self.ban.is_some() || set_back || step.next.is_some()).then(|| Record {
            state: step.next.clone().or_else(|| attempt.state.cloned()),
            penalty: kept,
            ..Record::default()
        });
        let decision = if counted.end().is_some() {
            self.penalized(&counted, &step.decision, attempt)
        } else {
            step.decision
        };
        RecordStep { decision, next }
    }

    /// The denial of a key that is banned or blocked; `own` is the decision of the quota.
    fn penalized(&self, penalty: &Penalty, own: &Decision, attempt: Attempt<'_>) -> Decision {
        let Attempt { state, now, charge } = attempt;
        let rest = Micros(penalty.end().map_or(0, |end| end.0.saturating_sub(now.0)));
        let present = self.granting().step(state, now, 0, charge.holder).decision;
        Decision {
            allowed: false,
            remaining: 0,
            reset_after: present.reset_after.max(rest),
            retry_after: own.retry_after.map(|wait| wait.max(rest)),
            delay: Micros::ZERO,
            reason: if penalty.is_blocked() { DenyReason::Block } else { DenyReason::Ban },
            ..present
        }
    }

    /// The step of a check that is allowed shows what is available, and stores nothing.
    fn without_taking(&self, step: RecordStep, attempt: Attempt<'_>) -> RecordStep {
        let Attempt { state, now, charge } = attempt;
        if charge.kind != ChargeKind::Check || !step.decision.allowed {
            return step;
        }
        RecordStep { decision: self.granting().step(state, now, 0, charge.holder).decision, next: None }
    }

    /// The penalty, unless it equals none at `now`.
    fn unexpired(&self, penalty: Option<Penalty>, now: Timestamp) -> Option<Penalty> {
        penalty.filter(|penalty| penalty.lifetime(self.ban.as_ref(), now) > Micros::ZERO)
    }
}

#[cfg(test)]
mod tests;
