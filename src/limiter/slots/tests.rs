//! Slots of several workers over one store, in virtual time.

use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::limit::{Key, PolicyId};
use crate::limiter::OnStoreFailure;
use crate::time::{Clock, Micros, Timestamp};

/// A worker of a process.
struct Worker {
    slots: Arc<WorkerSlots>,
    store: Store,
    /// How many times the store was asked.
    calls: u32,
}

/// Limits with freed slots kept: one of `limit` slots, and one request a second for `other` keys.
fn limits(limit: u64) -> Limits {
    let mut slots =
        Policy::new("slots", crate::limit::Quota::concurrency(limit, Micros(30_000_000)).unwrap());
    slots.keeps_slots = true;
    let rate = crate::limit::Rate::new(1, Micros::SECOND).unwrap();
    let few = Policy::new("few", crate::limit::Quota::token_bucket(rate, 1).unwrap());
    let all = [slots, few].map(|policy| (policy, OnStoreFailure::Local));
    Limits::new(all.to_vec(), NonZeroU64::MIN)
}

fn slot(cost: u64) -> Charge {
    Charge::take(PolicyId(0), Key([1; 16]), cost)
}

fn store() -> Arc<Memory> {
    Arc::new(Memory::new(100, Clock::manual(Timestamp(1))))
}

/// Workers of one process over one store.
fn workers<const N: usize>(store: &Arc<Memory>) -> [Worker; N] {
    let kept = Arc::default();
    std::array::from_fn(|_| Worker {
        slots: Arc::new(WorkerSlots::new(&kept)),
        store: Store::Memory(Arc::clone(store)),
        calls: 0,
    })
}

impl Worker {
    /// Decides a request as the limiter does; returns its slots if it passes.
    fn decide(&mut self, limits: &Limits, charges: &[Charge]) -> Option<SlotSet> {
        let (charges, slots) = self.slots.request(limits, SlotOwner::store, charges);
        let slots = slots.unwrap();
        let missing = slots.missing(&charges);
        let mut decisions = Decisions::new();
        if !missing.is_empty() {
            self.calls += 1;
            let Store::Memory(memory) = &self.store else { unreachable!() };
            decisions = memory.take(&limits.policies, &missing);
        }
        let decided = slots.join(&charges, decisions);
        let passes = decided.iter().all(|one| one.decision.allowed);
        slots.granted(&decided, passes)
    }

    /// What the maintenance does each 25 ms.
    async fn sweep(&self) {
        let now = monotonic();
        self.slots.release_later(self.slots.kept.remove_expired(now), now);
        assert!(self.slots.release(&self.store).await);
    }
}

/// The slots that the store counts.
fn used(store: &Memory, limits: &Limits) -> u64 {
    let decision = store.take(&limits.policies, &[slot(0)])[0];
    decision.limit - decision.remaining
}

#[tokio::test(start_paused = true)]
async fn requests_one_after_another_need_one_call_a_second() {
    let (store, limits) = (store(), limits(100));
    let [mut first, mut second] = workers(&store);
    for request in 0..300 {
        let worker = if request % 2 == 0 { &mut first } else { &mut second };
        let slots = worker.decide(&limits, &[slot(1)]).unwrap();
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(used(&store, &limits), 1);
        drop(slots);
        tokio::time::advance(Duration::from_millis(5)).await;
        worker.sweep().await;
    }
    assert_eq!(first.calls + second.calls, 3);
    tokio::time::advance(Duration::from_millis(100)).await;
    second.sweep().await;
    assert_eq!(used(&store, &limits), 0);
    assert!(first.slots.is_empty() && second.slots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_limit_denies_puts_its_slot_back() {
    let (store, limits) = (store(), limits(100));
    let [mut worker] = workers(&store);
    let both = [slot(1), Charge::take(PolicyId(1), Key([1; 16]), 1)];
    drop(worker.decide(&limits, &both).unwrap());
    assert!(worker.decide(&limits, &both).is_none());
    assert_eq!((worker.calls, used(&store, &limits)), (2, 1));
    // The slot is there for the next request.
    let slots = worker.decide(&limits, &[slot(1)]).unwrap();
    assert_eq!((worker.calls, used(&store, &limits)), (2, 1));
    drop(slots);
}

#[tokio::test(start_paused = true)]
async fn a_denial_releases_what_is_kept() {
    let (store, limits) = (store(), limits(100));
    let [mut worker] = workers(&store);
    drop(worker.decide(&limits, &[slot(1)]).unwrap());
    assert!(worker.decide(&limits, &[slot(100)]).is_none());
    worker.sweep().await;
    assert_eq!(used(&store, &limits), 0);
    assert!(worker.decide(&limits, &[slot(100)]).is_some());
    worker.sweep().await;
    assert_eq!(used(&store, &limits), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_releases_all_slots_and_keeps_none() {
    let (store, limits) = (store(), limits(100));
    let [mut worker, other] = workers(&store);
    let last = worker.decide(&limits, &[slot(1)]).unwrap();
    drop(worker.decide(&limits, &[slot(1)]).unwrap());
    assert_eq!(used(&store, &limits), 2);
    worker.slots.release_last(&worker.store).await;
    assert_eq!(used(&store, &limits), 1);
    drop(last);
    worker.sweep().await;
    assert_eq!(used(&store, &limits), 0);
    assert!(other.slots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_the_store_kept_slots_are_neither_used_nor_counted() {
    let (store, limits) = (store(), limits(100));
    let [mut worker] = workers(&store);
    let running = worker.decide(&limits, &[slot(1)]).unwrap();
    drop(worker.decide(&limits, &[slot(1)]).unwrap());
    let fallback = self::store();
    worker.slots.count_locally(&fallback);
    let counted = fallback.take(&limits.shares, &[slot(0)])[0];
    assert_eq!(counted.remaining, 99);
    // A slot that is counted in this process is released when its request is over.
    drop(running);
    worker.sweep().await;
    assert_eq!(used(&store, &limits), 0);
    assert!(worker.slots.kept.take(&limits.policies, &slot(1), monotonic()).is_none());
}

proptest! {
    /// Two processes of two workers: never more in flight than the limit, and all slots come back.
    #[test]
    fn no_limit_is_exceeded(
        limit in 8_u64..60,
        arrivals in prop::collection::vec((0_usize..4, 1_u64..4, 0_u64..10, 0_u64..150), 1..200),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (store, limits) = (store(), limits(limit));
            let ([a, b], [c, d]) = (workers(&store), workers(&store));
            let mut workers = [a, b, c, d];
            // Cost, end and slots of each request in flight.
            let mut in_flight: Vec<(u64, Instant, SlotSet)> = Vec::new();
            for (number, cost, pause, length) in arrivals {
                tokio::time::advance(Duration::from_millis(pause)).await;
                let now = monotonic();
                in_flight.retain(|(_, end, _)| *end > now);
                for worker in &workers {
                    worker.sweep().await;
                }
                if let Some(slots) = workers[number].decide(&limits, &[slot(cost)]) {
                    in_flight.push((cost, now + Duration::from_millis(length), slots));
                }
                let units: u64 = in_flight.iter().map(|(cost, ..)| cost).sum();
                assert!(units <= limit && units <= used(&store, &limits), "{units} units");
            }
            in_flight.clear();
            tokio::time::advance(Duration::from_millis(100)).await;
            for worker in &workers {
                worker.sweep().await;
            }
            assert_eq!(used(&store, &limits), 0);
        });
    }
}
