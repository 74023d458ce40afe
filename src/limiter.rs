//! WHO asks the store: charges go in, a [`Permit`] or a [`Denial`] comes out, never an error.

mod breaker;
mod denials;
mod slots;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use self::breaker::Breaker;
pub use self::denials::Denials;
use self::slots::{Place, SlotSet, Slots};
use crate::limit::{Charge, Decision, Policy, PolicyId};
use crate::store::{Decisions, Memory, Store, StoreError};
use crate::telemetry::{Counts, Outcome, StoreCall};
use crate::time::{Micros, Timestamp, recent};

/// What a limit does when the store can't be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// This process decides by itself, with its share of the quota.
    #[default]
    Local,
    /// The request passes this limit.
    Allow,
    /// The request is refused with 503.
    Deny,
}

/// All limits of a configuration, by [`crate::limit::PolicyId`].
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// What each limit is.
    pub policies: Arc<[Policy]>,
    /// The share of one proxy, for when it has to decide alone.
    pub shares: Arc<[Policy]>,
    /// What each limit does when the store can't be asked.
    pub on_failure: Vec<OnStoreFailure>,
}

impl Limits {
    /// Limits that `instances` proxies share.
    #[must_use]
    pub fn new(limits: Vec<(Policy, OnStoreFailure)>, instances: NonZeroU64) -> Self {
        let share = |policy: &Policy| policy.shared_by(instances);
        Self {
            shares: limits.iter().map(|(policy, _)| share(policy)).collect(),
            on_failure: limits.iter().map(|(_, on_failure)| *on_failure).collect(),
            policies: limits.into_iter().map(|(policy, _)| policy).collect(),
        }
    }
}

/// Asks the store, and knows what to say when it can't.
#[derive(Debug)]
pub struct Limiter {
    store: Store,
    /// Decides while the store is away.
    alone: Arc<Memory>,
    /// Keeps this worker from asking a store that does not answer.
    breaker: Breaker,
    /// How many workers have it away, which is while their breakers are open: the log says so when the first has, and when none has any more.
    away: Arc<AtomicUsize>,
    /// What the store has refused; not used where to ask costs no more than to remember.
    denials: Arc<Denials>,
    slots: Arc<Slots>,
    counts: Arc<Counts>,
}

/// Leave to go on, given by every limit of a request. Only the limiter makes one, nothing is forwarded
/// without it, and it rides along until the last byte of the answer: then the slots that the request has are
/// given back.
#[derive(Debug)]
pub struct Permit {
    /// Kept for being dropped.
    _slots: Option<Box<SlotSet>>,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// By at least one limit.
    Limited,
    /// The store can't be asked, and a limit says that then nothing passes.
    Unavailable {
        /// When to try again.
        retry_after: Micros,
    },
}

/// What the limiter says to a request.
#[derive(Debug)]
pub struct Ruling {
    /// Whether it may pass.
    pub verdict: Result<Permit, Denial>,
    /// How long to hold it before it goes on.
    pub delay: Micros,
    /// Where it stands with the limits that enforce, in the order of the route.
    pub standings: Standings,
}

/// Where a request stands with one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which limit.
    pub policy: PolicyId,
    /// What it says.
    pub decision: Decision,
}

/// Where a request stands with all its limits.
pub type Standings = SmallVec<[Standing; 2]>;

/// When to try again while the store is away.
const RETRY: Micros = Micros::SECOND;

impl Limiter {
    /// A limiter over `store`; `alone` decides where the store can't be asked.
    #[must_use]
    pub fn new(store: Store, alone: Arc<Memory>) -> Self {
        let (away, denials) = (Arc::default(), Arc::default());
        let (slots, counts) = (Arc::default(), Arc::default());
        Self { store, alone, breaker: Breaker::default(), away, denials, slots, counts }
    }

    /// The same limiter over a connection to the same store that another worker has.
    #[must_use]
    pub fn over(&self, store: Store) -> Self {
        let (alone, away) = (Arc::clone(&self.alone), Arc::clone(&self.away));
        let (denials, counts) = (Arc::clone(&self.denials), Arc::clone(&self.counts));
        Self { store, alone, breaker: Breaker::default(), away, denials, slots: Arc::default(), counts }
    }

    /// The same limiter, which counts there what it decides.
    #[must_use]
    pub fn counting(self, counts: Arc<Counts>) -> Self {
        Self { counts, ..self }
    }

    /// How many workers have the store away at the moment.
    #[must_use]
    pub fn away(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.away)
    }

    /// What is remembered of the store's denials; who gives something back has to have it forgotten.
    #[must_use]
    pub fn denials(&self) -> Arc<Denials> {
        Arc::clone(&self.denials)
    }

    /// Decides a request: all of its charges are made, or none.
    pub async fn decide(&self, limits: &Limits, charges: &[Charge]) -> Ruling {
        if charges.is_empty() {
            return Ruling::pass();
        }
        if let Some(never) = limits.never(charges) {
            never.iter().for_each(|standing| self.counts.decided(standing.policy, Outcome::Denied));
            return Ruling::refuse(never);
        }
        if let Store::Memory(_) = &self.store {
            return self.ask(limits, charges).await;
        }
        if self.breaker.is_open() {
            return self.decide_alone(limits, charges);
        }
        if let Some(known) = self.denials.refuse(&limits.policies, charges, recent()) {
            let all = known.iter().map(|standing| (standing.policy, &standing.decision));
            self.counts.refused(&limits.policies, all);
            return Ruling::refuse(known);
        }
        self.ask(limits, charges).await
    }

    /// Has the store decide.
    async fn ask(&self, limits: &Limits, charges: &[Charge]) -> Ruling {
        let place = || match &self.store {
            Store::Memory(memory) => Place::Process(Arc::clone(memory)),
            Store::Redis(_) => Place::Shared,
        };
        let mut asked: SmallVec<[Charge; 4]> = SmallVec::from_slice(charges);
        // Asked for before the wait: whoever goes away meanwhile may have been given a slot.
        let slots = self.slots.ask(&limits.policies, place, &mut asked);
        let since = self.denials.asked(recent());
        match self.store.take(&limits.policies, &asked).await {
            Ok(decisions) => {
                self.answered();
                self.counts.asked(&limits.policies, &asked, &decisions);
                if let Store::Redis(_) = self.store {
                    self.denials.remember(&limits.policies, &asked, &decisions, since);
                }
                Ruling::of(&limits.policies, &asked, &decisions, slots)
            }
            Err(error) => {
                self.failed(&error);
                self.decide_alone(limits, charges)
            }
        }
    }

    /// Charges what a request turned out to owe, and says where it stands after that. What can't be charged in
    /// the store is charged here, where the limit decides here as well.
    pub async fn charge(&self, limits: &Limits, due: &[Charge]) -> Standings {
        let standings = |charges: &[Charge], decisions: &Decisions| {
            let all = charges.iter().zip(decisions);
            let shown = all.filter(|(charge, _)| !limits.policy(charge).shadow);
            shown.map(|(charge, decision)| Standing { policy: charge.policy, decision: *decision }).collect()
        };
        if self.breaker.is_open() {
            let local = limits.local(due);
            return standings(&local, &self.alone.settle(&limits.shares, &local));
        }
        match self.store.settle(&limits.policies, due).await {
            Ok(decisions) => {
                self.answered();
                standings(due, &decisions)
            }
            Err(error) => {
                self.failed(&error);
                let local = limits.local(due);
                standings(&local, &self.alone.settle(&limits.shares, &local))
            }
        }
    }

    /// Does what is to be done beside requests, for as long as the worker lives: gives slots back, renews their
    /// leases, and probes a store that does not answer.
    pub async fn keep(&self) {
        tokio::join!(self.slots.keep(&self.store), self.keep_probing());
    }

    async fn keep_probing(&self) {
        loop {
            self.breaker.reopened(&self.store).await;
            // It may have lost what it knew, and be another one altogether.
            self.denials.forget();
            if self.away.fetch_sub(1, Ordering::Relaxed) == 1 {
                tracing::info!("the store answers again");
            }
        }
    }

    /// Gives back to the store what the last requests of a worker had.
    pub async fn give_back_slots(&self) {
        // There is no next time: what is not taken now comes back by its lease.
        let _ = self.slots.give_back(&self.store).await;
    }

    /// Decides without the store. Denial of service by policy goes over denial by a limit, which goes over
    /// leave.
    fn decide_alone(&self, limits: &Limits, charges: &[Charge]) -> Ruling {
        let denies = |charge: &Charge| {
            limits.on_failure(charge) == OnStoreFailure::Deny && !limits.policy(charge).shadow
        };
        if charges.iter().any(denies) {
            let denying = charges.iter().filter(|charge| denies(charge));
            denying.for_each(|charge| self.counts.decided(charge.policy, Outcome::UnaskedDenied));
            let verdict = Err(Denial::Unavailable { retry_after: self.breaker.until_probe().max(RETRY) });
            return Ruling { verdict, delay: Micros::ZERO, standings: Standings::new() };
        }
        let mut local = limits.local(charges);
        let place = || Place::Process(Arc::clone(&self.alone));
        let slots = self.slots.ask(&limits.shares, place, &mut local);
        let decisions = self.alone.take(&limits.shares, &local);
        self.counts.decided_alone(&limits.shares, &local, &decisions);
        let allows = |charge: &&Charge| {
            limits.on_failure(charge) == OnStoreFailure::Allow && !limits.policy(charge).shadow
        };
        let allowing = charges.iter().filter(allows);
        allowing.for_each(|charge| self.counts.decided(charge.policy, Outcome::UnaskedAllowed));
        Ruling::of(&limits.shares, &local, &decisions, slots)
    }
}

impl Limits {
    fn policy(&self, charge: &Charge) -> &Policy {
        &self.policies[charge.policy.0 as usize]
    }

    fn on_failure(&self, charge: &Charge) -> OnStoreFailure {
        self.on_failure[charge.policy.0 as usize]
    }

    /// The charges that this process decides by itself while the store is away.
    fn local(&self, charges: &[Charge]) -> SmallVec<[Charge; 4]> {
        charges.iter().filter(|charge| self.on_failure(charge) == OnStoreFailure::Local).copied().collect()
    }

    /// Where a request stands that no store needs to be asked about, because it costs more than one of its
    /// limits could ever give.
    fn never(&self, charges: &[Charge]) -> Option<Standings> {
        let stands = |charge: &Charge| {
            let policy = self.policy(charge);
            let refused = charge.cost > policy.quota.limit() && !policy.shadow;
            refused.then(|| Standing {
                policy: charge.policy,
                decision: policy.quota.step(None, Timestamp::default(), charge.cost, charge.holder).decision,
            })
        };
        let refused: Standings = charges.iter().filter_map(stands).collect();
        (!refused.is_empty()).then_some(refused)
    }
}

impl Ruling {
    /// What these decisions on these charges come to.
    fn of(policies: &[Policy], charges: &[Charge], decisions: &[Decision], slots: Option<SlotSet>) -> Self {
        let shadow = |charge: &Charge| policies[charge.policy.0 as usize].shadow;
        let standings: Standings = charges
            .iter()
            .zip(decisions)
            .filter(|(charge, _)| !shadow(charge))
            .map(|(charge, decision)| Standing { policy: charge.policy, decision: *decision })
            .collect();
        let passes = standings.iter().all(|standing| standing.decision.allowed);
        let slots = slots.and_then(|slots| slots.granted(charges, decisions, passes));
        if !passes {
            return Self::refuse(standings);
        }
        let delay = standings.iter().map(|standing| standing.decision.delay).max().unwrap_or_default();
        Self { verdict: Ok(Permit { _slots: slots.map(Box::new) }), delay, standings }
    }

    fn pass() -> Self {
        let permit = Permit { _slots: None };
        Self { verdict: Ok(permit), delay: Micros::ZERO, standings: Standings::new() }
    }

    fn refuse(standings: Standings) -> Self {
        Self { verdict: Err(Denial::Limited), delay: Micros::ZERO, standings }
    }
}

impl Limiter {
    fn answered(&self) {
        self.counts.called_store(StoreCall::Answered);
        self.breaker.answered();
    }

    fn failed(&self, error: &StoreError) {
        self.counts.called_store(match error {
            StoreError::Away => StoreCall::Away,
            StoreError::Deadline => StoreCall::Deadline,
            StoreError::Refused(_) => StoreCall::Refused,
            StoreError::Garbled(_) => StoreCall::Garbled,
            StoreError::Busy => StoreCall::Busy,
        });
        if self.breaker.failed(error) && self.away.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "the store can't be asked: {error}; each limit does what its on_store_failure says"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Key, Quota, Rate};
    use crate::time::Clock;

    fn limits(on_failure: &[OnStoreFailure], instances: u64) -> Limits {
        let rate = Rate::new(4, Micros::SECOND).unwrap();
        let policy = |name: &str| Policy::new(name, Quota::token_bucket(rate, 4).unwrap());
        let named = on_failure.iter().enumerate().map(|(n, f)| (policy(&n.to_string()), *f)).collect();
        Limits::new(named, NonZeroU64::new(instances).unwrap())
    }

    fn limiter() -> Limiter {
        let memory = Arc::new(Memory::new(100, Clock::manual(Timestamp(1))));
        Limiter::new(Store::Memory(Arc::clone(&memory)), memory)
    }

    fn charges(count: u32, cost: u64) -> Vec<Charge> {
        (0..count).map(|policy| Charge::take(PolicyId(policy), Key([1; 16]), cost)).collect()
    }

    #[tokio::test]
    async fn no_limits_no_questions() {
        let ruling = limiter().decide(&limits(&[], 1), &[]).await;
        assert!(ruling.verdict.is_ok() && ruling.standings.is_empty());
    }

    #[tokio::test]
    async fn what_can_never_pass_is_refused_and_spends_nothing() {
        let (limiter, limits) = (limiter(), limits(&[OnStoreFailure::Local], 1));
        let ruling = limiter.decide(&limits, &charges(1, 5)).await;
        assert_eq!(ruling.verdict.unwrap_err(), Denial::Limited);
        assert_eq!(ruling.standings[0].decision.retry_after, None);
        assert!(limiter.decide(&limits, &charges(1, 4)).await.verdict.is_ok());
        assert!(limiter.decide(&limits, &charges(1, 1)).await.verdict.is_err());
    }

    #[test]
    fn alone_each_limit_does_what_it_says() {
        use OnStoreFailure::{Allow, Deny, Local};
        let limiter = limiter();
        let denied = limiter.decide_alone(&limits(&[Local, Allow, Deny], 1), &charges(3, 1)).verdict;
        assert_eq!(denied.unwrap_err(), Denial::Unavailable { retry_after: RETRY });
        let mixed = limits(&[Local, Allow], 2);
        for _ in 0..2 {
            let ruling = limiter.decide_alone(&mixed, &charges(2, 1));
            assert!(ruling.verdict.is_ok());
            assert_eq!(ruling.standings.len(), 1);
            assert_eq!(ruling.standings[0].decision.limit, 2);
        }
        let denied = limiter.decide_alone(&mixed, &charges(2, 1)).verdict;
        assert_eq!(denied.unwrap_err(), Denial::Limited);
    }
}
