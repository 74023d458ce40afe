//! Refunds: what a request has charged on one node when another refuses it, or what its final status does not charge. Both
//! stores refund alike, and what comes back is what was taken, or less; never more, and never to a later state.

use proptest::prelude::*;
use tidegate::limit::{Charge, Holder, Policy, PolicyId};
use tidegate::store::{Memory, StateChange};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Numbers, any_cost, any_jump, any_move, any_numbers, any_timed, for_all};
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

/// A charge, or the refund of an earlier one.
type Arrival = (kit::Move, u64, u64, Option<usize>);

#[test]
fn both_stores_refund_equally() {
    let server = RedisServer::start();
    let earlier = prop::option::weighted(0.4, 0..8_usize);
    let arrival = (any_jump(), any_cost(), 0..6_u64, earlier, prop::bool::weighted(0.05));
    let ban = prop::option::weighted(0.3, (1..4_u64, 1..5_000_000_u64, 1..5_000_000_u64));
    let policy = (any_numbers(), ban, any::<bool>(), kit::any_settlement());
    for_all(
        150,
        &(policy, prop::collection::vec(arrival, 1..60)),
        |((numbers, ban, refunds, settled), arrivals)| {
            let stores = Stores::new(&server);
            let ban = ban.map(|(after, within, length)| tidegate::limit::Ban {
                after,
                within: Micros(within),
                length: Micros(length),
            });
            let policy = kit::with_refunds(kit::with(numbers.policy("a"), ban, false), refunds);
            let policies = [kit::with_settlement(policy, settled)];
            let (mut course, mut last, mut made) = (Course::any(), None, Vec::new());
            for (step, cost, holder, earlier, is_reset) in arrivals {
                let now = course.go(step, numbers.period(), last.as_ref());
                stores.set_clock(now);
                if is_reset {
                    stores.change(&policies, &[(PolicyId(0), kit::key(1))], StateChange::Reset);
                }
                // One that was refunded may be so again: what is no longer there must not come back twice in one store only.
                let refund: Option<Charge> = earlier.and_then(|back| made.iter().rev().nth(back).copied());
                if let Some(refund) = refund {
                    last = stores.apply(&policies, &[refund]).first().copied();
                    continue;
                }
                let charge = Charge { holder: Holder(holder), ..kit::charge(0, 1, cost) };
                let said = stores.take(&policies, &[charge])[0];
                if said.allowed && cost > 0 {
                    made.push(charge.refund(Timestamp(now)));
                }
                last = Some(said);
            }
            Ok(())
        },
    );
}

/// Two stores, of which one refunds a charge that the other never sees. `exact`: afterwards they response alike; else the
/// first has at most what the second has.
fn compare(numbers: &Numbers, first: u64, arrivals: &[Arrival], exact: bool) -> Result<(), TestCaseError> {
    let policies = [numbers.policy("a")];
    let (with, without) = (kit::memory(), kit::memory());
    let mut course = Course::behind(0);
    let take =
        |memory: &Memory, policies: &[Policy], cost| memory.take(policies, &[kit::charge(0, 1, cost)])[0];
    let set = |now| [&with, &without].map(|memory| memory.clock().set(Timestamp(now)));
    set(course.now);
    let charge = kit::charge(0, 1, first);
    if !with.take(&policies, &[charge])[0].allowed {
        return Ok(());
    }
    let refund = charge.refund(Timestamp(course.now));
    let (mut last, refund_at) = (None, arrivals.len() / 3);
    for (place, (step, cost, ..)) in arrivals.iter().enumerate() {
        set(course.go(*step, numbers.period(), last.as_ref()));
        if place == refund_at {
            let _ = with.apply(&policies, &[refund]);
        }
        if place < refund_at {
            // What the charge keeps out is no matter of the refund.
            last = Some(take(&with, &policies, *cost));
            if last.is_some_and(|said| said.allowed) {
                prop_assert!(take(&without, &policies, *cost).allowed);
            }
            continue;
        }
        let (a, b) = (take(&with, &policies, 0), take(&without, &policies, 0));
        prop_assert!(a.remaining <= b.remaining, "{} of {}", a.remaining, b.remaining);
        if exact {
            prop_assert_eq!(a, b);
            prop_assert_eq!(take(&with, &policies, *cost), take(&without, &policies, *cost));
        } else if take(&with, &policies, *cost).allowed {
            prop_assert!(take(&without, &policies, *cost).allowed);
        }
        last = Some(a);
    }
    Ok(())
}

#[test]
fn refunds_return_no_more_than_was_taken() {
    let arrival = (any_move(), 0..12_u64, Just(0_u64), Just(None));
    let arrivals = prop::collection::vec(arrival, 6..40);
    for_all(1_500, &(any_timed(), 1..12_u64, arrivals), |(numbers, first, arrivals)| match numbers {
        // The first request of a window, or of a grid, is forgotten with its units only if the window has no other.
        Numbers::First(_) | Numbers::Interval(..) => Ok(()),
        Numbers::Fixed(_) | Numbers::Calendar(..) | Numbers::Log(_) | Numbers::Sliding(..) => {
            compare(&numbers, first, &arrivals, true)
        }
        _ => compare(&numbers, first, &arrivals, false),
    });
}

/// What was taken before a reset is not refunded to what was taken since.
#[test]
fn a_refund_after_a_reset_changes_nothing() {
    let server = RedisServer::start();
    let costs = || prop::collection::vec(1..4_u64, 1..4);
    let steps = (1..1_000_u64, 0..1_000_u64, 0..1_000_u64);
    let numbers = (any_numbers(), kit::any_settlement());
    for_all(150, &(numbers, costs(), costs(), steps), |((numbers, settled), before, after, steps)| {
        let stores = Stores::new(&server);
        let policies = [kit::with_settlement(kit::with_refunds(numbers.policy("a"), true), settled)];
        let take = |cost, holder| {
            let charge = Charge { holder: Holder(holder), ..kit::charge(0, 1, cost) };
            (charge, stores.take(&policies, &[charge])[0])
        };
        let earlier: Vec<_> = before.into_iter().zip(0..).map(|(cost, holder)| take(cost, holder)).collect();
        let go = |step| stores.set_clock(stores.clock() + numbers.period() / 10_000 * step + 1);
        go(steps.0);
        stores.change(&policies, &[(PolicyId(0), kit::key(1))], StateChange::Reset);
        go(steps.1);
        for (cost, holder) in after.into_iter().zip(100..) {
            take(cost, holder);
        }
        go(steps.2);
        let expected = take(0, 0).1;
        for (charge, _) in earlier.into_iter().filter(|(_, decision)| decision.allowed) {
            let refunded = stores.apply(&policies, &[charge.refund(Timestamp(kit::START))])[0];
            prop_assert_eq!(refunded, expected);
        }
        prop_assert_eq!(take(0, 0).1, expected);
        Ok(())
    });
}

/// Given back at once, nothing was ever taken.
#[test]
fn an_immediate_refund_leaves_no_state() {
    for_all(500, &(any_numbers(), kit::any_settlement(), 1..12_u64), |(numbers, settled, cost)| {
        let policy = kit::with_settlement(kit::with_refunds(numbers.policy("a"), true), settled);
        let (memory, policies) = (kit::memory(), [policy]);
        let charge = kit::charge(0, 1, cost);
        if memory.take(&policies, &[charge])[0].allowed {
            let said = memory.apply(&policies, &[charge.refund(Timestamp(kit::START))])[0];
            prop_assert_eq!((said.remaining, said.reset_after), (said.limit, Micros::ZERO));
            prop_assert!(memory.is_empty());
        }
        Ok(())
    });
}
