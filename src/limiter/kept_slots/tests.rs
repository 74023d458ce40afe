//! Tests of kept slots.

use super::*;
use crate::limit::Holder;
use crate::limiter::kept_slots::SlotOwner;
use crate::time::monotonic;

const MILLISECOND: Duration = Duration::from_millis(1);

/// A limit of so many slots that keeps freed ones.
fn policies(limit: u64) -> Arc<[Policy]> {
    let lease = Duration::from_secs(30).into();
    let mut policy = Policy::new("a", Quota::concurrency(limit, lease).unwrap());
    policy.keeps_slots = true;
    [policy].into()
}

fn charge(cost: u64) -> Charge {
    Charge::take(PolicyId(0), Key([1; 16]), cost)
}

/// A slot that was granted at `at`.
fn slot(policies: &Arc<[Policy]>, holder: u64, cost: u64, at: Instant) -> HeldSlot {
    HeldSlot {
        policies: Arc::clone(policies),
        shares: Arc::clone(policies),
        owner: SlotOwner::store(),
        charge: Charge { holder: Holder(holder), ..charge(cost) },
        due: at,
        granted: Some((Decision::allowed(100, 7, crate::time::Micros::SECOND), at)),
    }
}

fn holders(slots: &[HeldSlot]) -> Vec<u64> {
    slots.iter().map(|held| held.charge.holder.0).collect()
}

#[test]
fn the_next_request_of_the_same_cost_takes_the_slot_that_was_kept_last() {
    let (kept, policies, now) = (KeptSlots::default(), policies(1_000), monotonic());
    for holder in [1, 2] {
        kept.keep(slot(&policies, holder, 1, now), now).unwrap();
    }
    assert!(kept.take(&policies, &charge(2), now).is_none());
    let other_key = Charge { key: Key([2; 16]), ..charge(1) };
    assert!(kept.take(&policies, &other_key, now).is_none());
    assert!(kept.take(&self::policies(1_000), &charge(1), now).is_none());
    let taken = kept.take(&policies, &charge(1), now + 99 * MILLISECOND).unwrap();
    assert_eq!((taken.held.charge.holder, taken.decision.remaining), (Holder(2), 7));
    assert!(kept.take(&policies, &charge(1), now + 100 * MILLISECOND).is_none());
}

#[test]
fn few_slots_of_a_key_are_kept() {
    for (limit, cost, most) in [(7, 1, 0), (8, 1, 1), (100, 1, 2), (100, 2, 1), (100, 3, 0), (10_000, 1, 8)] {
        let (kept, policies, now) = (KeptSlots::default(), policies(limit), monotonic());
        let is_kept = |holder: &u64| kept.keep(slot(&policies, *holder, cost, now), now).is_ok();
        assert_eq!((0..20).filter(is_kept).count(), most, "{limit} slots, cost {cost}");
    }
}

#[test]
fn a_slot_that_is_not_taken_is_released() {
    let (kept, policies, now) = (KeptSlots::default(), policies(1_000), monotonic());
    kept.keep(slot(&policies, 1, 1, now), now).unwrap();
    kept.keep(slot(&policies, 2, 1, now), now + 50 * MILLISECOND).unwrap();
    assert!(kept.remove_expired(now + 99 * MILLISECOND).is_empty());
    assert_eq!(holders(&kept.remove_expired(now + 100 * MILLISECOND)), [1]);
    assert_eq!(holders(&kept.remove_all(now + 100 * MILLISECOND)), [2]);
    assert!(kept.is_empty());
}

#[test]
fn a_slot_that_is_put_back_is_kept_no_longer_for_it() {
    let (kept, policies, now) = (KeptSlots::default(), policies(1_000), monotonic());
    kept.keep(slot(&policies, 1, 1, now), now).unwrap();
    let taken = kept.take(&policies, &charge(1), now + 60 * MILLISECOND).unwrap();
    kept.put_back(taken, now + 70 * MILLISECOND).unwrap();
    let taken = kept.take(&policies, &charge(1), now + 99 * MILLISECOND).unwrap();
    assert_eq!(kept.put_back(taken, now + 100 * MILLISECOND).unwrap_err().charge.holder, Holder(1));
}

#[test]
fn a_slot_is_passed_on_for_one_second() {
    let (kept, policies, granted) = (KeptSlots::default(), policies(1_000), monotonic());
    let freed = granted + 950 * MILLISECOND;
    kept.keep(slot(&policies, 1, 1, granted), freed).unwrap();
    assert!(kept.take(&policies, &charge(1), granted + 1_000 * MILLISECOND).is_none());
    assert!(kept.keep(slot(&policies, 2, 1, granted), granted + 1_000 * MILLISECOND).is_err());
}

#[test]
fn a_key_that_was_denied_keeps_no_slots_for_one_second() {
    let (kept, policies, now) = (KeptSlots::default(), policies(1_000), monotonic());
    kept.keep(slot(&policies, 1, 1, now), now).unwrap();
    assert_eq!(holders(&kept.record_denial(&policies[0], Key([1; 16]), now)), [1]);
    let later = now + 999 * MILLISECOND;
    assert!(kept.keep(slot(&policies, 2, 1, later), later).is_err());
    assert!(kept.remove_expired(later).is_empty() && !kept.is_empty());
    let end = now + 1_000 * MILLISECOND;
    kept.keep(slot(&policies, 3, 1, end), end).unwrap();
}

#[test]
fn slots_that_this_process_counts_or_may_not_have_are_not_kept() {
    let (kept, policies, now) = (KeptSlots::default(), policies(1_000), monotonic());
    let memory = Arc::new(crate::store::Memory::new(10, crate::time::Clock::System));
    let counted = HeldSlot { owner: SlotOwner::local(&memory, &policies), ..slot(&policies, 1, 1, now) };
    let undecided = HeldSlot { granted: None, ..slot(&policies, 2, 1, now) };
    assert!(kept.keep(counted, now).is_err() && kept.keep(undecided, now).is_err() && kept.is_empty());
}

#[test]
fn the_slots_of_a_key_that_an_operator_changes_are_not_taken() {
    let (kept, policies, now) = (KeptSlots::default(), policies(1_000), monotonic());
    kept.keep(slot(&policies, 1, 1, now), now).unwrap();
    kept.expire(&policies, &[(PolicyId(0), Key([1; 16]))], now);
    assert!(kept.take(&policies, &charge(1), now).is_none());
    assert_eq!(holders(&kept.remove_expired(now)), [1]);
}
