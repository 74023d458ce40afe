//! Limits that charge by the final status, while the store is unavailable and after that.

use super::*;
use crate::limit::DecidedCharge;
use crate::limiter::pending_admission::PendingAdmission;

/// A world whose limit charges requests that end with 401.
fn charging_by_status(quota: Quota) -> World {
    World::new(Policy::new("a", quota).with_charge_on([401].into()), 1, 0)
}

/// Units that one request holds in an outage.
fn reserve(world: &World, cost: u64) -> Option<Box<Reservation>> {
    PendingAdmission::new(&world.proxies[0], &world.limits, None).fail(&[charge(cost)], None).reservation
}

#[tokio::test]
async fn only_units_that_the_final_status_charges_are_owed() {
    let world = charging_by_status(per_second(4));
    let left = |statuses: LimitStatuses| statuses[0].decision.remaining;
    let (good, bad, abandoned) =
        (reserve(&world, 2).unwrap(), reserve(&world, 1).unwrap(), reserve(&world, 1).unwrap());
    assert!(reserve(&world, 1).is_none());
    assert!(world.proxies[0].client.fallback.ledger.is_empty());
    assert_eq!(left(good.finish(200).await), 2);
    assert!(world.proxies[0].client.fallback.ledger.is_empty());
    assert!(bad.finish(401).await.is_empty());
    // A dropped reservation, as of a client that disconnects, stays charged.
    drop(abandoned);
    world.pay_debts(0);
    assert_eq!(world.take(0, 0).remaining, 2);
}

#[tokio::test]
async fn units_whose_take_had_no_reply_are_not_owed() {
    let world = charging_by_status(per_second(4));
    let lost = Some(&StoreError::Deadline);
    let held =
        PendingAdmission::new(&world.proxies[0], &world.limits, None).fail(&[charge(3)], lost).reservation;
    assert!(held.unwrap().finish(401).await.is_empty());
    assert!(world.proxies[0].client.fallback.ledger.is_empty());
}

#[test]
fn a_refund_keeps_the_ban() {
    let mut policy = Policy::new("a", per_second(4));
    policy.ban = Some(Ban { after: 1, within: Micros::SECOND, length: Micros(60_000_000) });
    let world = World::new(policy.with_charge_on([401].into()), 1, 0);
    let held = [charge(4)];
    let taken = world.store.take(&world.limits.policies, &held);
    assert_eq!(world.take(0, 1).reason, DenyReason::Ban);
    let refund = [held[0].refund(taken[0].at)];
    let decisions = world.store.apply(&world.limits.policies, &refund);
    world.proxies[0].client.fallback.seed(&world.limits, &DecidedCharge::join(&refund, &decisions));
    assert!(!world.take_locally(0, 1));
}

#[tokio::test]
async fn the_store_does_not_know_all_of_a_key_while_a_request_holds_units_of_it() {
    let world = charging_by_status(per_second(4));
    let is_settled = || world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]);
    let (good, bad) = (reserve(&world, 2).unwrap(), reserve(&world, 2).unwrap());
    assert!(!is_settled() && !world.take_on_trial(0, 1));
    good.finish(200).await;
    assert!(!is_settled() && world.take_on_trial(0, 1));
    bad.finish(401).await;
    assert!(!is_settled());
    world.pay_debts(0);
    assert!(is_settled());
}

/// Of many concurrent requests only those that the limit admits are owed.
#[test]
fn concurrent_requests_never_owe_more_than_the_limit() {
    for quota in [per_second(5), Quota::interval_bucket(rate(1, 1_000_000), 5).unwrap()] {
        let world = charging_by_status(quota.clone());
        let _ = world.take(0, 3);
        let held: Vec<_> = (0..20).filter_map(|_| reserve(&world, 1)).collect();
        assert_eq!(held.len(), 2, "{quota:?}");
        drop(held);
        world.set_clock(START + 5_000_000);
        world.pay_debts(0);
        assert_eq!(world.peek(&world.store).remaining, 5, "{quota:?}");
    }
}
