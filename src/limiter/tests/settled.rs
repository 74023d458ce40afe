//! Costs that responses settle, in the in-process store.

use proptest::prelude::*;

use super::*;
use crate::limit::{Align, Ban};
use crate::store::StateChange;

/// The most that a response can cost.
const MOST: u64 = 5_000;

fn bucket(name: &str, units: u64) -> Policy {
    let rate = Rate::new(units, Micros(86_400_000_000)).unwrap();
    Policy::new(name, Quota::token_bucket(rate, units).unwrap()).with_charge_on([200].into())
}

/// Limits whose costs responses with status 200 settle.
fn settling(units: &[u64]) -> Limits {
    let policy = |(number, units): (usize, &u64)| {
        let policy = bucket(&number.to_string(), *units).with_settlement(MOST);
        (policy, OnStoreFailure::Local)
    };
    Limits::new(units.iter().enumerate().map(policy).collect(), NonZeroU64::MIN)
}

async fn reserve(limiter: &ServerLimiter, limits: &Limits, cost: u64) -> Option<Box<Reservation>> {
    let all: Vec<Charge> = charges(u32::try_from(limits.policies.len()).unwrap(), cost);
    let mut reservation = limiter.decide(limits, &all).await.reservation?;
    *reservation.delivery_mut() = Delivery::Answered;
    Some(reservation)
}

async fn remaining(limiter: &ServerLimiter, limits: &Limits) -> u64 {
    limiter.peek(limits, &charges(1, 0)).await.statuses[0].decision.remaining
}

fn settled(reserved: u64, charged: u64, is_cut: bool) -> SettledUnits {
    SettledUnits { policy: PolicyId(0), reserved, charged, is_cut }
}

#[tokio::test]
async fn the_difference_to_the_reservation_is_refunded_or_charged() {
    let (limiter, limits) = (limiter(), settling(&[1_000]));
    let key = charges(1, 0)[0].key;
    let in_flight = || limiter.reserved_units(&limits.policies[0], key).unwrap();
    let first = reserve(&limiter, &limits, 300).await.unwrap();
    let second = reserve(&limiter, &limits, 200).await.unwrap();
    assert_eq!(first.reserved().collect::<Vec<_>>(), [(PolicyId(0), 300)]);
    assert_eq!((in_flight(), remaining(&limiter, &limits).await), (500, 500));
    assert_eq!(first.settle(|_| Some(100))[..], [settled(300, 100, false)]);
    assert_eq!((in_flight(), remaining(&limiter, &limits).await), (200, 700));
    assert_eq!(second.settle(|_| Some(400))[..], [settled(200, 400, false)]);
    assert_eq!((in_flight(), remaining(&limiter, &limits).await), (0, 500));
    let unknown = reserve(&limiter, &limits, 50).await.unwrap();
    assert_eq!(unknown.settle(|_| None)[..], [settled(50, 50, false)]);
    let free = reserve(&limiter, &limits, 50).await.unwrap();
    assert_eq!(free.settle(|_| Some(0))[..], [settled(50, 0, false)]);
    // A client that disconnects pays what was reserved.
    drop(reserve(&limiter, &limits, 50).await);
    assert_eq!((in_flight(), remaining(&limiter, &limits).await), (0, 400));
}

#[tokio::test]
async fn a_cost_is_cut_and_may_exceed_the_limit() {
    let (limiter, limits) = (limiter(), settling(&[1_000]));
    let held = reserve(&limiter, &limits, 10).await.unwrap();
    assert_eq!(held.settle(|_| Some(MOST + 1))[..], [settled(10, MOST, true)]);
    let denied = limiter.decide(&limits, &charges(1, 1)).await;
    let decision = denied.statuses[0].decision;
    // 4,001 units have to come back, of 1,000 a day.
    let wait = Micros(4_001 * 86_400_000);
    assert_eq!((decision.allowed, decision.remaining, decision.retry_after), (false, 0, Some(wait)));
}

#[tokio::test]
async fn the_status_refunds_what_no_cost_is_found_for() {
    let (limiter, limits) = (limiter(), settling(&[1_000]));
    let respond = async |delivery, status, known: &[(PolicyId, u64)]| {
        let mut held = reserve(&limiter, &limits, 100).await.unwrap();
        *held.delivery_mut() = delivery;
        let (statuses, rest) = held.respond(status, known).await;
        (statuses.first().map(|status| status.decision.remaining), rest)
    };
    let known = |cost| [(PolicyId(0), cost)];
    // Refused by the server: all back, unless the body tells a cost.
    let (left, rest) = respond(Delivery::Answered, 400, &[]).await;
    assert_eq!((left, remaining(&limiter, &limits).await), (Some(1_000), 1_000));
    assert_eq!(rest.unwrap().settle(|_| None)[..], [settled(100, 0, false)]);
    let (_, rest) = respond(Delivery::Answered, 400, &[]).await;
    assert_eq!(rest.unwrap().settle(|_| Some(30))[..], [settled(100, 30, false)]);
    assert_eq!(remaining(&limiter, &limits).await, 970);
    // The head tells the cost.
    for (status, left) in [(400, 960), (200, 950)] {
        let (shown, rest) = respond(Delivery::Answered, status, &known(10)).await;
        assert_eq!((shown, rest.is_none()), (Some(left), true), "{status}");
    }
    // Not sent at all, whatever the status.
    for status in [200, 503] {
        let (shown, _) = respond(Delivery::Unsent, status, &[]).await;
        assert_eq!(shown, Some(950), "{status}");
    }
    // Sent, and not answered.
    for status in [502, 503, 504] {
        let (shown, rest) = respond(Delivery::Unanswered, status, &[]).await;
        assert_eq!((shown, rest.is_none()), (None, true), "{status}");
    }
    assert_eq!(remaining(&limiter, &limits).await, 650);
    // The server's own 502 may tell a cost.
    let (shown, rest) = respond(Delivery::Answered, 502, &[]).await;
    assert_eq!(shown, None);
    assert_eq!(rest.unwrap().settle(|_| None)[..], [settled(100, 100, false)]);
    let (_, rest) = respond(Delivery::Answered, 502, &[]).await;
    assert_eq!(rest.unwrap().settle(|_| Some(50))[..], [settled(100, 50, false)]);
    assert_eq!(remaining(&limiter, &limits).await, 500);
}

/// A limit that charges by the status alone is settled by it, also beside one whose cost is found later.
#[tokio::test]
async fn limits_are_settled_each_by_its_own_rule() {
    let policies = [bucket("0", 1_000).with_settlement(MOST), bucket("1", 1_000), bucket("2", 1_000)];
    let policies = policies.map(|policy| (policy, OnStoreFailure::Local)).to_vec();
    let (limiter, mut limits) = (limiter(), Limits::new(policies, NonZeroU64::MIN));
    limits.policies = limits
        .policies
        .iter()
        .cloned()
        .map(|policy| if *policy.name == *"2" { policy.with_charge_on([500].into()) } else { policy })
        .collect();
    let held = reserve(&limiter, &limits, 100).await.unwrap();
    let (statuses, rest) = held.respond(200, &[]).await;
    assert_eq!(statuses.iter().map(|status| status.policy.0).collect::<Vec<_>>(), [2]);
    assert_eq!(rest.unwrap().settle(|_| Some(40))[..], [settled(100, 40, false)]);
    let all = limiter.peek(&limits, &charges(3, 0)).await.statuses;
    let left: Vec<u64> = all.iter().map(|status| status.decision.remaining).collect();
    assert_eq!(left, [960, 900, 1_000]);
}

#[tokio::test]
async fn more_units_are_taken_from_all_limits_or_from_none() {
    let (limiter, limits) = (limiter(), settling(&[1_000, 500]));
    let mut held = reserve(&limiter, &limits, 100).await.unwrap();
    let both = |units| [(PolicyId(0), units), (PolicyId(1), units)];
    assert!(limiter.take_more(&mut held, &both(200)).await);
    assert!(!limiter.take_more(&mut held, &both(201)).await);
    assert!(limiter.take_more(&mut held, &[(PolicyId(0), 300), (PolicyId(1), 0)]).await);
    assert!(limiter.take_more(&mut held, &[]).await);
    assert_eq!(held.reserved().map(|(_, units)| units).collect::<Vec<_>>(), [600, 300]);
    assert_eq!(limiter.reserved_units(&limits.policies[0], charges(1, 0)[0].key), Some(600));
    assert_eq!(remaining(&limiter, &limits).await, 400);
    let charged: Vec<u64> = held.settle(|_| Some(250)).iter().map(|units| units.charged).collect();
    assert_eq!(charged, [250, 250]);
    let all = limiter.peek(&limits, &charges(2, 0)).await.statuses;
    assert_eq!(all.iter().map(|status| status.decision.remaining).collect::<Vec<_>>(), [750, 250]);
}

/// A stream may take more units for hours: what is kept about that does not grow.
#[tokio::test]
async fn units_of_many_decisions_are_refunded_in_few_parts() {
    let (limiter, limits) = (limiter(), settling(&[1_000, 500]));
    let mut held = reserve(&limiter, &limits, 10).await.unwrap();
    for _ in 0..40 {
        assert!(limiter.take_more(&mut held, &[(PolicyId(0), 10), (PolicyId(1), 5)]).await);
    }
    assert_eq!(held.reserved().map(|(_, units)| units).collect::<Vec<_>>(), [410, 210]);
    let (settled, settlement) = held.settle_all(|_| Some(30));
    assert!(settled.iter().all(|units| units.charged == 30), "{settled:?}");
    assert!(settlement.calls[0].charges.len() <= 16, "{settlement:?}");
    settlement.send_later(&limiter.settlement_context());
    let all = limiter.peek(&limits, &charges(2, 0)).await.statuses;
    assert_eq!(all.iter().map(|status| status.decision.remaining).collect::<Vec<_>>(), [970, 470]);
}

/// What a step has taken is refunded first: its window may still count when that of the request has ended.
#[tokio::test]
async fn the_newest_units_are_refunded_first() {
    let memory = Arc::new(Memory::new(100, Clock::manual(Timestamp(1))));
    let limiter = ServerLimiter::new(
        Store::Memory(Arc::clone(&memory)),
        SharedState::new(Arc::clone(&memory), NonZeroU64::MIN),
    );
    let window = Quota::fixed_window(Rate::new(1_000, Micros(1_000_000)).unwrap(), Align::Clock).unwrap();
    let policy = Policy::new("0", window).with_settlement(MOST);
    let limits = Limits::new(vec![(policy, OnStoreFailure::Local)], NonZeroU64::MIN);
    let mut held = reserve(&limiter, &limits, 600).await.unwrap();
    memory.clock().set(Timestamp(1_000_000));
    assert!(limiter.take_more(&mut held, &[(PolicyId(0), 300)]).await);
    let _ = held.settle(|_| Some(700));
    assert_eq!(remaining(&limiter, &limits).await, 900);
    let held = reserve(&limiter, &limits, 600).await.unwrap();
    memory.clock().set(Timestamp(2_000_000));
    // The window that has the units is over.
    let _ = held.settle(|_| Some(0));
    assert_eq!(remaining(&limiter, &limits).await, 1_000);
}

#[tokio::test]
async fn a_reset_before_the_settlement_admits_no_more() {
    let (limiter, limits) = (limiter(), settling(&[1_000]));
    let Store::Memory(memory) = &limiter.client.store else { unreachable!() };
    let held = reserve(&limiter, &limits, 600).await.unwrap();
    let key = charges(1, 0)[0].key;
    memory.clock().set(Timestamp(2));
    let _ = memory.change(&limits.policies, &[(PolicyId(0), key)], StateChange::Reset);
    memory.clock().set(Timestamp(3));
    drop(reserve(&limiter, &limits, 600).await);
    let _ = held.settle(|_| Some(100));
    assert_eq!(remaining(&limiter, &limits).await, 400);
}

/// A reservation is settled by the policy that has taken it, also if another configuration is served meanwhile.
#[tokio::test]
async fn a_reservation_is_settled_by_the_policy_that_has_taken_it() {
    let (limiter, limits) = (limiter(), settling(&[1_000]));
    let held = reserve(&limiter, &limits, 100).await.unwrap();
    let next = settling(&[2_000]);
    assert_eq!(remaining(&limiter, &next).await, 1_900);
    assert_eq!(held.settle(|_| Some(MOST + 1))[..], [settled(100, MOST, true)]);
    let held = reserve(&limiter, &limits, 100).await;
    assert!(held.is_none());
    assert_eq!(remaining(&limiter, &next).await, 0);
}

/// A limit in shadow mode reserves and settles its own state, and one that would have denied the request settles nothing.
#[tokio::test]
async fn a_limit_in_shadow_mode_settles_what_it_has_reserved() {
    let (limiter, mut limits) = (limiter(), settling(&[1_000, 150]));
    let shadowed = |policy: &Policy| {
        let mut policy = policy.clone();
        policy.shadow = *policy.name == *"1";
        policy
    };
    limits.policies = limits.policies.iter().map(shadowed).collect();
    for (left, cost) in [(110, 40), (110, 40)] {
        let held = reserve(&limiter, &limits, 120).await.unwrap();
        assert!(!held.settle(|_| Some(cost)).is_empty());
        let shadow = limiter.peek(&limits, &charges(2, 0)).await.shadow;
        assert_eq!(shadow[0].decision.remaining, left);
    }
    assert_eq!(remaining(&limiter, &limits).await, 920);
}

#[test]
fn units_in_the_process_are_settled_by_the_status_or_the_cost() {
    let (memory, limits) = (Arc::new(Memory::new(100, Clock::manual(Timestamp(1)))), settling(&[1_000]));
    let reserve = || {
        let (_, units) = decide_in_process(&memory, &limits, &charges(1, 100), &Counts::default()).unwrap();
        units.unwrap()
    };
    let left = || memory.take(&limits.policies, &charges(1, 0))[0].remaining;
    assert_eq!(reserve().finish(400)[0].decision.remaining, 1_000);
    assert!(reserve().finish(200).is_empty());
    assert_eq!(left(), 900);
    for (cost, charged, after) in [(None, 100, 800), (Some(30), 30, 770), (Some(130), 130, 640)] {
        assert_eq!(reserve().settle(|_| cost)[..], [settled(100, charged, false)]);
        assert_eq!(left(), after, "{cost:?}");
    }
    // A status that refunds everything: a cost that is found later is charged all the same.
    let (statuses, rest) = reserve().respond(400);
    assert_eq!((statuses[0].decision.remaining, left()), (640, 640));
    let _ = rest.unwrap().settle(|_| Some(40));
    assert_eq!(left(), 600);
    let (_, rest) = reserve().respond(400);
    let _ = rest.unwrap().settle(|_| None);
    assert_eq!(left(), 600);
}

#[tokio::test]
async fn a_settlement_keeps_the_ban() {
    let mut policy = bucket("0", 1_000).with_settlement(MOST);
    policy.ban = Some(Ban { after: 1, within: Micros::SECOND, length: Micros(60_000_000) });
    let (limiter, limits) = (limiter(), Limits::new(vec![(policy, OnStoreFailure::Local)], NonZeroU64::MIN));
    let (less, more) =
        (reserve(&limiter, &limits, 500).await.unwrap(), reserve(&limiter, &limits, 500).await.unwrap());
    assert!(reserve(&limiter, &limits, 1).await.is_none());
    let _ = (less.settle(|_| Some(0)), more.settle(|_| Some(600)));
    let denied = limiter.decide(&limits, &charges(1, 1)).await;
    assert_eq!(denied.statuses[0].decision.reason, crate::limit::DenyReason::Ban);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A request is admitted only if what was used, what is reserved and its own estimate are at most the limit. So the limit is
    /// exceeded by at most the sum of the errors of the requests in flight, and never if the estimates are upper bounds.
    #[test]
    fn the_limit_is_exceeded_by_the_errors_in_flight_at_most(
        events in prop::collection::vec((any::<bool>(), 1..300_u64, 0..600_u64, 0..9_usize), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // Nothing comes back during the test.
            let (limiter, limits) = (limiter(), settling(&[1_000]));
            let (mut in_flight, mut used) = (Vec::<(u64, u64, Box<Reservation>)>::new(), 0);
            for (begins, estimate, cost, which) in events {
                let reserved: u64 = in_flight.iter().map(|(estimate, ..)| estimate).sum();
                if begins || in_flight.is_empty() {
                    let held = reserve(&limiter, &limits, estimate).await;
                    assert_eq!(held.is_some(), used + reserved + estimate <= 1_000);
                    in_flight.extend(held.map(|held| (estimate, cost, held)));
                } else {
                    let (_, cost, held) = in_flight.remove(which % in_flight.len());
                    let _ = held.settle(|_| Some(cost));
                    used += cost;
                }
                let reserved: u64 = in_flight.iter().map(|(estimate, ..)| estimate).sum();
                assert_eq!(remaining(&limiter, &limits).await, 1_000_u64.saturating_sub(used + reserved));
                assert_eq!(limiter.reserved_units(&limits.policies[0], charges(1, 0)[0].key), Some(reserved));
            }
        });
    }
}
