//! WHO asks the store: charges go in, a [`Permit`] or a [`Denial`] comes out, never an error.

mod admission;
mod breaker;
mod denial_cache;
mod limits;
mod local_fallback;
mod outage_ledger;
mod reservation;
mod slots;

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;

pub use self::admission::{Admission, Denial, HeldSlots, LimitStatus, LimitStatuses, Permit};
pub use self::breaker::Breakers;
pub use self::denial_cache::DenialCache;
pub use self::limits::{Limits, OnStoreFailure};
pub use self::outage_ledger::OutageLedger;
pub use self::reservation::Reservation;

use self::breaker::Breaker;
use self::local_fallback::SharesTaken;
use self::reservation::Origin;
use self::slots::{SlotLease, Slots};
use crate::limit::Charge;
use crate::store::{Memory, Redis, Store, StoreError};
use crate::telemetry::{Counts, Outcome, StoreCall};
use crate::time::{Micros, cached_now};

/// Asks the store, and knows what to say when it can't. A clone asks over the same connection.
#[derive(Clone, Debug)]
pub struct Limiter {
    store: Store,
    /// Decides while the store is away.
    alone: Arc<Memory>,
    /// Keeps this worker from asking a store that does not answer.
    breaker: Rc<Breaker>,
    /// What the store has refused; not used where to ask costs no more than to remember.
    denials: Arc<DenialCache>,
    /// What was admitted while the store was away, and is not paid yet.
    ledger: Arc<OutageLedger>,
    /// Wakes the keeper when the store answers and is owed something.
    payable: Rc<Notify>,
    slots: Arc<Slots>,
    counts: Arc<Counts>,
}

/// What all workers know together of the store that they ask.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Decides where the store can't be asked.
    pub alone: Arc<Memory>,
    /// The breakers of all workers, which say whether it is away.
    pub breakers: Arc<Breakers>,
    /// What is remembered of the store's denials; who gives something back has to have it forgotten.
    pub denials: Arc<DenialCache>,
    /// What was admitted while it was away, and is not paid yet.
    pub ledger: Arc<OutageLedger>,
    /// How many proxies share it.
    pub instances: NonZeroU64,
}

impl Shared {
    /// What is known of a store that nobody has asked yet.
    #[must_use]
    pub fn new(alone: Arc<Memory>, instances: NonZeroU64) -> Self {
        let (breakers, denials, ledger) = (Arc::default(), Arc::default(), Arc::default());
        Self { alone, breakers, denials, ledger, instances }
    }
}

/// When to try again while the store is away.
const RETRY: Micros = Micros::SECOND;
/// How long after an outage a proxy takes from its share as well, if there are other proxies. In this time they notice that
/// the store is back, and pay: at most half a second until they have a connection, and as long until they probe it.
const TRIAL: Duration = Duration::from_millis(1_500);
/// How often a limiter looks whether anybody still uses it.
const LOOK: Duration = Duration::from_secs(1);

impl Limiter {
    /// One worker's limiter over its connection to the store.
    #[must_use]
    pub fn new(store: Store, shared: Shared) -> Self {
        let Shared { alone, breakers, denials, ledger, instances } = shared;
        let trial = if instances == NonZeroU64::MIN { Duration::ZERO } else { TRIAL };
        let breaker = Rc::new(Breaker::of(&breakers, trial));
        let (payable, slots, counts) = (Rc::default(), Arc::default(), Arc::default());
        Self { store, alone, breaker, denials, ledger, payable, slots, counts }
    }

    /// The same limiter, which counts there what it decides.
    #[must_use]
    pub fn counting(&self, counts: Arc<Counts>) -> Self {
        Self { counts, ..self.clone() }
    }

    /// Whether it asks the store that this is known of.
    #[must_use]
    pub fn uses_same_store(&self, shared: &Shared) -> bool {
        Arc::ptr_eq(&self.denials, &shared.denials)
    }

    /// Decides a request: all of its charges are made, or none.
    pub async fn decide(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        if charges.is_empty() {
            return Admission::pass();
        }
        if let Some(never) = limits.never(charges) {
            never.iter().for_each(|standing| self.counts.decided(standing.policy, Outcome::Denied));
            return Admission::refuse(never);
        }
        let Store::Redis(redis) = &self.store else { return self.ask_here(limits, charges) };
        if self.breaker.is_open() {
            return self.decide_alone(limits, charges, None);
        }
        if let Some(known) = self.denials.refuse(&limits.policies, charges, cached_now()) {
            let all = known.iter().map(|standing| (standing.policy, &standing.decision));
            self.counts.refused(&limits.policies, all);
            return Admission::refuse(known);
        }
        // Apart, because it is large, and whoever does not ask Redis would carry it about.
        Box::pin(self.ask(redis, limits, charges)).await
    }

    /// Has the store in this process decide.
    fn ask_here(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        let Store::Memory(memory) = &self.store else { return self.decide_alone(limits, charges, None) };
        let place = || SlotLease::here(memory, &limits.policies);
        let (asked, slots) = self.slots.ask(&limits.policies, &limits.shares, place, charges);
        let decisions = memory.take(&limits.policies, &asked);
        self.answered();
        self.counts.asked(&limits.policies, &asked, &decisions);
        let ruling = Admission::of(&limits.policies, &asked, &decisions, slots);
        ruling.reserving(|| Reservation::of(self, limits, &asked, &decisions, Origin::Store(Vec::new())))
    }

    /// Has Redis decide.
    async fn ask(&self, redis: &Redis, limits: &Limits, charges: &[Charge]) -> Admission {
        let shares = if self.is_settled(limits, charges) {
            SharesTaken::new()
        } else {
            match self.take_shares(limits, charges) {
                Ok(shares) => shares,
                Err(refusal) => return *refusal,
            }
        };
        // Asked for before the wait: whoever goes away meanwhile may have been given a slot.
        let (asked, slots) = self.slots.ask(&limits.policies, &limits.shares, SlotLease::shared, charges);
        let since = self.denials.lookup(cached_now());
        match redis.take(&limits.policies, &asked).await {
            Ok(decisions) => {
                self.answered();
                self.counts.asked(&limits.policies, &asked, &decisions);
                let ruling = Admission::of(&limits.policies, &asked, &decisions, slots);
                if ruling.verdict.is_err() {
                    self.return_shares(limits, &shares);
                }
                self.learn(limits, &asked, &decisions);
                if !redis.may_give_back() {
                    self.denials.remember(&limits.policies, &asked, &decisions, since);
                }
                ruling.reserving(|| {
                    Reservation::of(self, limits, &asked, &decisions, Origin::Store(shares.into_vec()))
                })
            }
            Err(error) => {
                self.failed(&error);
                self.return_shares(limits, &shares);
                self.decide_alone(limits, charges, Some(&error))
            }
        }
    }

    /// Gives back units that were taken in the store, and says what their limits have left then. What the store does
    /// not take back stays charged.
    async fn refund(&self, limits: &Limits, refunds: &[Charge]) -> LimitStatuses {
        if self.breaker.is_open() {
            return LimitStatuses::new();
        }
        match &self.store {
            // Nodes of a cluster fail each by itself.
            Store::Redis(redis) if redis.may_give_back() => {
                let tags = refunds.chunk_by(|one, next| one.key == next.key);
                let refunded = join_all(tags.map(|tag| self.refund_together(limits, tag))).await;
                refunded.into_iter().flatten().collect()
            }
            _ => self.refund_together(limits, refunds).await,
        }
    }

    /// Gives back what goes to the store in one call.
    async fn refund_together(&self, limits: &Limits, refunds: &[Charge]) -> LimitStatuses {
        match self.store.charge_late(&limits.policies, refunds).await {
            Ok(decisions) => {
                self.answered();
                if let Store::Redis(_) = self.store {
                    self.learn(limits, refunds, &decisions);
                }
                limits.standings(refunds, &decisions)
            }
            Err(error) => {
                self.failed(&error);
                LimitStatuses::new()
            }
        }
    }

    /// Finds out whether the store is there, which takes half a second at most.
    pub async fn connect(&self) {
        self.breaker.begin(&self.store).await;
    }

    /// Does what is to be done beside requests, for as long as others have a clone of it or a slot that it has
    /// given: gives slots back, renews their leases, probes a store that does not answer, or that nobody asks, and
    /// pays what it is owed.
    pub async fn run_maintenance(self) {
        tokio::select! {
            () = self.slots.keep(&self.store) => {}
            () = self.keep_probing() => {}
            () = self.keep_paying() => {}
            () = self.until_unused() => self.give_back_slots().await,
        }
    }

    async fn until_unused(&self) {
        let mut look = tokio::time::interval(LOOK);
        while Rc::strong_count(&self.breaker) > 1 || !self.slots.is_empty() {
            look.tick().await;
        }
    }

    async fn keep_probing(&self) {
        loop {
            self.breaker.opened(&self.store).await;
            self.slots.count_here(&self.alone);
            self.breaker.recovered(&self.store).await;
            // Who asks the store after this finds there what was admitted meanwhile.
            while !self.pay().await {
                self.breaker.recovered(&self.store).await;
            }
            self.slots.put_back(&self.store).await;
            // It may have lost what it knew, and be another one altogether.
            self.denials.clear();
            self.breaker.close();
        }
    }

    /// Gives back to the store what the last requests of a worker had, and pays what it is owed.
    pub async fn give_back_slots(&self) {
        // There is no next time: what is not taken now comes back by its lease.
        let _ = self.slots.give_back(&self.store).await;
        if !self.breaker.is_open() {
            let _ = self.pay().await;
        }
    }
}

impl Limiter {
    fn answered(&self) {
        self.counts.called_store(StoreCall::Answered);
        self.breaker.answered();
        if !self.ledger.is_empty() {
            self.payable.notify_one();
        }
    }

    fn failed(&self, error: &StoreError) {
        self.counts.called_store(match error {
            StoreError::Away(_) => StoreCall::Away,
            StoreError::Lost => StoreCall::Lost,
            StoreError::Deadline => StoreCall::Deadline,
            StoreError::Refused(_) | StoreError::SlotMoving => StoreCall::Refused,
            StoreError::Garbled(_) => StoreCall::Garbled,
            StoreError::Busy | StoreError::Unsent => StoreCall::Busy,
        });
        self.breaker.failed(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Key, Policy, PolicyId, Quota, Rate};
    use crate::time::{Clock, Timestamp};

    fn limits(on_failure: &[OnStoreFailure], instances: u64) -> Limits {
        let rate = Rate::new(4, Micros::SECOND).unwrap();
        let policy = |name: &str| Policy::new(name, Quota::token_bucket(rate, 4).unwrap());
        let named = on_failure.iter().enumerate().map(|(n, f)| (policy(&n.to_string()), *f)).collect();
        Limits::new(named, NonZeroU64::new(instances).unwrap())
    }

    fn limiter() -> Limiter {
        let memory = Arc::new(Memory::new(100, Clock::manual(Timestamp(1))));
        Limiter::new(Store::Memory(Arc::clone(&memory)), Shared::new(memory, NonZeroU64::MIN))
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
        let denied = limiter.decide_alone(&limits(&[Local, Allow, Deny], 1), &charges(3, 1), None).verdict;
        assert_eq!(denied.unwrap_err(), Denial::Unavailable { retry_after: RETRY });
        let mixed = limits(&[Local, Allow], 2);
        for _ in 0..2 {
            let ruling = limiter.decide_alone(&mixed, &charges(2, 1), None);
            assert!(ruling.verdict.is_ok());
            assert_eq!(ruling.standings.len(), 1);
            assert_eq!(ruling.standings[0].decision.limit, 2);
        }
        let denied = limiter.decide_alone(&mixed, &charges(2, 1), None).verdict;
        assert_eq!(denied.unwrap_err(), Denial::Limited);
    }

    #[test]
    fn alone_a_cost_above_the_share_takes_all_of_it() {
        let (limiter, limits) = (limiter(), limits(&[OnStoreFailure::Local], 4));
        let first = limiter.decide_alone(&limits, &charges(1, 3), None);
        assert!(first.verdict.is_ok());
        let second = limiter.decide_alone(&limits, &charges(1, 3), None);
        assert_eq!(second.verdict.unwrap_err(), Denial::Limited);
        assert!(second.standings[0].decision.retry_after.is_some());
    }
}
