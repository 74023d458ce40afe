//! Costs that responses settle: units above an estimate are charged without asking, and units below it are refunded. Both stores
//! settle alike, and as the models do, also if a state exceeds its limit.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate::limit::{Ban, Charge, Factor, Policy, PolicyId};
use tidegate::store::StateChange;
use tidegate::time::{Micros, Timestamp};

use super::invariants::foretold;
use super::kit::{self, Course, Move, Numbers, START, any_jump, any_move, any_timed, for_all};
use super::rules::Pace;
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

/// More than the sum of all extra units of a test.
const ENOUGH: u64 = 100_000;

/// What happens to a key.
#[derive(Clone, Debug)]
enum Event {
    /// A request reserves these units.
    Reserve(u64),
    /// The response of an earlier request has cost so many units. It may be settled more than once, or never.
    Settle(usize, u64),
    /// Units were admitted by a process earlier, by thousandths of the period.
    Late(u64, u64),
    Change(StateChange),
}

fn any_event() -> impl Strategy<Value = Event> {
    let cost = || prop_oneof![6 => 0..12_u64, 3 => 0..250_u64, 1 => any::<u64>()];
    let change = prop_oneof![
        2 => Just(StateChange::Reset),
        1 => (1..5_000_000_u64).prop_map(|length| StateChange::Block(Micros(length))),
        1 => Just(StateChange::Unblock),
    ];
    prop_oneof![
        8 => kit::any_cost().prop_map(Event::Reserve),
        8 => (0..8_usize, cost()).prop_map(|(back, cost)| Event::Settle(back, cost)),
        1 => (0..2_000_u64, cost()).prop_map(|(age, cost)| Event::Late(age, cost)),
        1 => change.prop_map(Event::Change),
    ]
}

/// The charge that settles a request which has reserved the units of `charge` at `taken`.
fn settlement(charge: &Charge, taken: Timestamp, cost: u64) -> Option<Charge> {
    let less = charge.cost.saturating_sub(cost);
    let refund = Charge { cost: less, ..charge.refund(taken) };
    let extra = charge.extra(cost.saturating_sub(charge.cost));
    [refund, extra].into_iter().find(|charge| charge.cost > 0)
}

/// The same limit with other numbers, if there are any: raised, or with fewer units than before.
fn other_numbers(policy: &Policy, numbers: &Numbers, most: u64) -> Policy {
    let factor = Factor::parse("2.5x").unwrap();
    let fewer = numbers.quota().with_units(1).map(|quota| Policy::new("a", quota).with_settlement(most));
    policy.raised(PolicyId(0), factor).or(fewer).unwrap_or_else(|_| policy.clone())
}

/// Settles in any order, late, more than once or never; after windows have ended, after a reset, for a blocked key, and with
/// numbers that change.
#[test]
fn both_stores_settle_equally() {
    let server = RedisServer::start();
    let ban = prop::option::weighted(0.2, (1..4_u64, 1..5_000_000_u64, 1..5_000_000_u64));
    let most = prop_oneof![Just(1_u64), 2..50_u64, Just(ENOUGH), Just(u64::MAX)];
    let events = prop::collection::vec((any_jump(), any_event(), prop::bool::weighted(0.15)), 1..60);
    for_all(400, &((any_timed(), ban, most), events), |((numbers, ban, most), events)| {
        let stores = Stores::new(&server);
        let ban =
            ban.map(|(after, within, length)| Ban { after, within: Micros(within), length: Micros(length) });
        let policy = kit::with(numbers.policy("a"), ban, false).with_settlement(most);
        let other = kit::with(other_numbers(&policy, &numbers, most), ban, false);
        let policies = [policy, other];
        let (mut course, mut last, mut made) = (Course::any(), None, Vec::new());
        for (step, event, is_other) in events {
            let now = course.go(step, numbers.period(), last.as_ref());
            stores.set_clock(now);
            let own = u32::from(is_other);
            match event {
                Event::Reserve(cost) => {
                    let charge = kit::charge(own, 1, cost);
                    let said = stores.take(&policies, &[charge])[0];
                    if said.allowed && cost > 0 {
                        made.push((charge, said.at));
                    }
                    prop_assert!(said.remaining <= said.limit);
                    last = Some(said);
                }
                Event::Settle(back, cost) => {
                    let Some((charge, taken)) = made.iter().rev().nth(back) else { continue };
                    let settled = settlement(charge, *taken, cost);
                    last = settled.and_then(|charge| stores.apply(&policies, &[charge]).first().copied());
                }
                Event::Late(age, cost) => {
                    let taken = now.saturating_sub(numbers.period() / 1_000 * age);
                    let late = kit::charge(own, 1, cost).late(Timestamp(taken));
                    last = stores.apply(&policies, &[late]).first().copied();
                }
                Event::Change(change) => stores.change(&policies, &[(PolicyId(0), kit::key(1))], change),
            }
        }
        Ok(())
    });
}

/// Every field of every decision on states that exceed their limit.
#[test]
fn every_algorithm_charges_extra_units_as_its_model() {
    let arrivals = prop::collection::vec((any_jump(), any::<bool>(), 0..200_u64), 1..50);
    for_all(1_500, &(any_timed(), arrivals), |(numbers, arrivals)| {
        let policies = [numbers.policy("a").with_settlement(ENOUGH)];
        let quota = &policies[0].quota;
        // Leaky buckets have no extra units, and the largest numbers leave no room for them.
        if quota.most_units() - quota.limit() < ENOUGH {
            return Ok(());
        }
        let (memory, mut model) = (kit::memory(), numbers.model());
        let (mut course, mut last) = (Course::any(), None);
        for (step, is_extra, cost) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            memory.clock().set(Timestamp(now));
            let charge = kit::charge(0, 1, cost);
            let (actual, expected) = if is_extra {
                (memory.apply(&policies, &[charge.extra(cost)])[0], model.extra(now, cost))
            } else {
                (memory.take(&policies, &[charge])[0], model.take(now, cost))
            };
            prop_assert_eq!(actual, expected, "{} units at {}, extra: {}", cost, now, is_extra);
            last = Some(actual);
        }
        Ok(())
    });
}

/// `retry_after` and `reset_after` of a state that exceeds its limit are exact, and the state is kept until then.
#[test]
fn waits_are_exact_beyond_the_limit() {
    let arrivals = prop::collection::vec((any_move(), 0..40_u64, kit::any_cost()), 1..12);
    for_all(1_000, &(any_timed(), kit::any_cost(), arrivals), |(numbers, cost, arrivals)| {
        let (memory, policies) = (kit::memory(), [numbers.policy("a").with_settlement(40)]);
        let (mut course, mut last) = (Course::behind(0), None);
        for (step, taken, extra) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            let _ = kit::take(&memory, now, &policies[0], taken);
            last = memory.apply(&policies, &[kit::charge(0, 1, 0).extra(extra)]).first().copied();
        }
        let said = kit::take(&memory, course.now, &policies[0], cost);
        foretold(&policies[0], &memory, course.now, cost, &said)
    });
}

/// However much responses cost, what a key owes is bounded, and all of it comes back.
#[test]
fn what_a_key_owes_is_bounded() {
    let server = RedisServer::start();
    let pace = Pace { units: 10, period: 1_000_000 };
    let all = [
        (Numbers::Token(pace, 10), 17_000_000),
        (Numbers::Gcra(pace, 9), 17_000_000),
        (Numbers::Interval(pace, 10), 17_000_000),
    ];
    for (numbers, reset_after) in all {
        let stores = Stores::new(&server);
        let policies = [numbers.policy("a").with_settlement(10)];
        let extra = kit::charge(0, 1, 0).extra(u64::MAX);
        for _ in 0..3 {
            let said = stores.apply(&policies, &[extra])[0];
            assert_eq!(
                (said.allowed, said.remaining, said.reset_after.0),
                (true, 0, reset_after),
                "{numbers:?}"
            );
        }
        stores.set_clock(START + 16_000_000);
        assert_eq!(stores.take(&policies, &[kit::charge(0, 1, 1)])[0].remaining, 0);
        stores.set_clock(START + reset_after);
        assert_eq!(stores.take(&policies, &[kit::charge(0, 1, 10)])[0].remaining, 0);
    }
    // What a log has beyond its limit ends with its entries, and 19 bits count all of it.
    let stores = Stores::new(&server);
    let policies = [Numbers::Log(vec![pace]).policy("a").with_settlement(u64::MAX)];
    assert_eq!(policies[0].quota.most_units(), (1 << 19) - 1);
    for _ in 0..3 {
        let said = stores.apply(&policies, &[kit::charge(0, 1, 0).extra(u64::MAX)])[0];
        assert_eq!((said.remaining, said.reset_after.0), (0, 1_000_000));
    }
    stores.set_clock(START + 1_000_000);
    assert_eq!(stores.take(&policies, &[kit::charge(0, 1, 10)])[0].remaining, 0);
}

/// Queues and slots have no extra units, and limits without settled costs never exceed their limit.
#[test]
fn extra_units_of_other_limits_are_bounded_by_the_limit() {
    let server = RedisServer::start();
    for_all(200, &(kit::any_numbers(), any::<bool>(), 1..500_u64), |(numbers, settles, cost)| {
        let stores = Stores::new(&server);
        let has_none = matches!(numbers, Numbers::Leaky(..) | Numbers::Slots(..));
        let policies = [kit::with_settlement(numbers.policy("a"), (settles && has_none).then_some(5))];
        let extra = kit::charge(0, 1, 0).extra(cost);
        let (said, full) = (stores.apply(&policies, &[extra])[0], policies[0].quota.limit());
        let expected = if has_none { full } else { full.saturating_sub(cost) };
        // Several rates of a log have one of fewer units.
        prop_assert!(said.remaining <= expected);
        if !matches!(numbers, Numbers::Log(_)) {
            prop_assert_eq!(said.remaining, expected);
        }
        Ok(())
    });
}

/// Many responses that take as long as their units come back: each refund returns all that was reserved too much.
#[test]
fn parallel_responses_return_all_of_their_estimates() {
    let server = RedisServer::start();
    let pace = Pace { units: 10, period: 1_000_000 };
    for numbers in [Numbers::Token(pace, 1_000), Numbers::Gcra(pace, 999), Numbers::Interval(pace, 1_000)] {
        let stores = Stores::new(&server);
        let policies = [numbers.policy("a").with_settlement(1_000)];
        let estimate = kit::charge(0, 1, 100);
        for _ in 0..10 {
            assert!(stores.take(&policies, &[estimate])[0].allowed);
        }
        stores.set_clock(START + 30_000_000);
        let refund = Charge { cost: 60, ..estimate.refund(Timestamp(START)) };
        let settled: Vec<u64> = (0..10).map(|_| stores.apply(&policies, &[refund])[0].remaining).collect();
        // 300 units have come back, and ten times 60 are refunded.
        assert_eq!(settled, (1..=10).map(|count| 300 + 60 * count).collect::<Vec<_>>(), "{numbers:?}");
        // Without settled costs, a refund returns what has not come back since.
        let policies = [kit::with_refunds(numbers.policy("b"), true)];
        let taken = stores.take(&policies, &[estimate])[0].at;
        stores.set_clock(START + 40_000_000);
        assert_eq!(stores.apply(&policies, &[estimate.refund(taken)])[0].remaining, 1_000);
    }
}

/// A debt that has drained is followed by another one, which does not get the refunds of the first.
#[test]
fn a_refund_after_the_debt_has_drained_changes_nothing() {
    let server = RedisServer::start();
    let pace = (1..20_u64, prop_oneof![Just(1_000_000_u64), 1..5_000_u64]);
    let numbers = (pace, 1..60_u64, 0..3_u8).prop_map(|((units, period), limit, which)| {
        let pace = Pace { units, period };
        match which {
            0 => Numbers::Token(pace, limit),
            1 => Numbers::Gcra(pace, limit),
            _ => Numbers::Interval(pace, limit),
        }
    });
    for_all(200, &(numbers, 1..60_u64, 1..60_u64, 0..3_u64), |(numbers, first, second, later)| {
        let stores = Stores::new(&server);
        let policies = [numbers.policy("a").with_settlement(100)];
        let [first, second] = [first, second].map(|cost| kit::charge(0, 1, cost));
        let taken = stores.take(&policies, &[first])[0];
        if !taken.allowed {
            return Ok(());
        }
        stores.set_clock(START + taken.reset_after.0 + later);
        let again = stores.take(&policies, &[second])[0];
        let refunded = stores.apply(&policies, &[first.refund(taken.at)])[0];
        prop_assert_eq!(refunded.remaining, again.remaining);
        if again.allowed {
            let back = stores.apply(&policies, &[second.refund(again.at)])[0];
            prop_assert_eq!((back.remaining, back.reset_after), (back.limit, Micros::ZERO));
        }
        Ok(())
    });
}

/// What a process owes for costs that exceed the limit is charged by the store when it is back, and what has come back since is
/// not.
#[test]
fn extra_units_of_an_outage_are_charged_late() {
    let costs = prop::collection::vec((any_move(), 1..12_u64, 0..30_u64), 1..12);
    for_all(1_000, &(any_timed(), costs, any_move()), |(numbers, costs, until)| {
        let policies = [numbers.policy("a").with_settlement(ENOUGH)];
        let share = [policies[0].shared_by(std::num::NonZeroU64::MIN)];
        if policies[0].quota.most_units() - policies[0].quota.limit() < ENOUGH {
            return Ok(());
        }
        charged_late(&numbers, (&policies, &share), &costs, until)
    });
}

/// A debt below the units of a period ends with that period, and the next request of a full bucket starts its intervals.
#[test]
fn a_debt_smaller_than_a_refill_ends_with_its_period() {
    let numbers = Numbers::Interval(Pace { units: 97, period: 1_000_000 }, 1);
    let policies = [numbers.policy("a").with_settlement(ENOUGH)];
    let share = [policies[0].shared_by(std::num::NonZeroU64::MIN)];
    let costs = [(Move::By(0), 1, 1), (Move::Periods(1_293), 1, 0)];
    charged_late(&numbers, (&policies, &share), &costs, Move::Periods(707)).unwrap();
}

fn charged_late(
    numbers: &Numbers,
    (policies, share): (&[Policy], &[Policy]),
    costs: &[(Move, u64, u64)],
    until: Move,
) -> Result<(), TestCaseError> {
    use tidegate::limit::{Admitted, OwedCharges};
    let (local, in_time, store) = (kit::memory(), kit::memory(), kit::memory());
    let (mut course, mut last, mut owed) = (Course::behind(0), None, None::<OwedCharges>);
    let set = |now| [&local, &in_time, &store].map(|memory| memory.clock().set(Timestamp(now)));
    for (step, cost, more) in costs {
        let now = course.go(*step, numbers.period(), last.as_ref());
        set(now);
        let charge = kit::charge(0, 1, *cost);
        for charge in [charge, charge.extra(*more)].into_iter().filter(|charge| charge.cost > 0) {
            let decision = local.apply(share, &[charge])[0];
            last = Some(decision);
            if !decision.allowed {
                break;
            }
            let _ = in_time.apply(policies, &[charge]);
            let (share, whole) = (&share[0].quota, &policies[0].quota);
            let (taken, at) = (charge.cost.min(share.most_units()), Timestamp(now));
            let is_extra = charge.kind == tidegate::limit::ChargeKind::Extra;
            let admitted =
                Admitted { share, whole, decision: &decision, taken, cost: charge.cost, at, is_extra };
            match &mut owed {
                Some(owed) => owed.add(admitted),
                None => owed = Some(OwedCharges::new(admitted)),
            }
        }
    }
    let now = course.go(until, numbers.period(), last.as_ref());
    set(now);
    let Some(owed) = owed else { return Ok(()) };
    let late = owed.late_charges(&share[0].quota, &policies[0].quota, Timestamp(now));
    let late: Vec<Charge> = late.into_iter().map(|(units, at)| kit::charge(0, 1, units).late(at)).collect();
    let _ = store.apply(policies, &late);
    let [paid, expected] = [&store, &in_time].map(|memory| memory.take(policies, &[kit::charge(0, 1, 0)])[0]);
    prop_assert!(paid.remaining <= expected.remaining, "{} of {}", paid.remaining, expected.remaining);
    let apart = match numbers {
        // The debt of a share is known to the microsecond, and paid in whole units.
        Numbers::Token(pace, _) | Numbers::Gcra(pace, _) => 1 + pace.units.div_ceil(pace.period),
        Numbers::Interval(pace, _) => pace.units,
        Numbers::Fixed(_) | Numbers::First(_) | Numbers::Calendar(..) => 0,
        // What was taken in a hundredth of the period is charged together.
        _ => u64::MAX,
    };
    prop_assert!(expected.remaining - paid.remaining <= apart, "{:?} for {:?}", paid, expected);
    Ok(())
}
