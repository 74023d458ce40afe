//! The in-memory store and Redis make the same decisions for the same arrivals, bit for bit.

use proptest::prelude::*;
use tidegate::limit::{Ban, Charge, ChargeKind, Policy, PolicyId};
use tidegate::store::StateChange;
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Numbers, any_cost, any_jump, any_numbers, for_all};
use super::rules::Pace;
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

/// A call: charges that are all or none, independent charges, or a change by an operator.
#[derive(Clone, Debug)]
enum Event {
    Take(Vec<(u32, u8, u64, u64, ChargeKind)>),
    Settle(Vec<(u32, u8, u64, u64, ChargeKind)>),
    Change(u32, u8, StateChange),
}

/// Policies 0 and 4 have one name and one algorithm but other numbers, and so have 1 and 5; policies 2 and 6
/// have one name, and mostly not one algorithm.
const POLICIES: u32 = 7;

fn any_event() -> impl Strategy<Value = Event> {
    let ask = prop_oneof![5 => Just(ChargeKind::Take), 1 => Just(ChargeKind::Check)];
    let settle = prop_oneof![
        Just(ChargeKind::Release),
        Just(ChargeKind::Renew),
        Just(ChargeKind::Late),
        Just(ChargeKind::Extra)
    ];
    let any = prop_oneof![4 => ask.clone(), 1 => settle.clone()];
    let by_hand = prop_oneof![
        4 => (1..5_000_000_u64).prop_map(|length| StateChange::Block(Micros(length))),
        1 => Just(StateChange::Block(Micros(u64::MAX))),
        2 => Just(StateChange::Unblock),
        2 => Just(StateChange::Reset)
    ];
    let with = move |kind| (0..POLICIES, 0..2_u8, any_cost(), 0..6_u64, kind);
    // Only a holder renews.
    let real = |(policy, key, cost, holder, kind): (u32, u8, u64, u64, ChargeKind)| match kind {
        ChargeKind::Renew => (policy, key, cost.clamp(1, 100), holder, kind),
        _ => (policy, key, cost, holder, kind),
    };
    prop_oneof![
        8 => prop::collection::vec(with(ask.boxed()).prop_map(real), 1..4).prop_map(Event::Take),
        2 => prop::collection::vec(with(any.boxed()).prop_map(real), 1..4).prop_map(Event::Take),
        3 => prop::collection::vec(with(settle.boxed()).prop_map(real), 1..4).prop_map(Event::Settle),
        1 => (0..POLICIES, 0..2_u8, by_hand).prop_map(|(policy, key, change)| Event::Change(policy, key, change))
    ]
}

fn any_policy(name: &'static str) -> impl Strategy<Value = (Numbers, Policy)> {
    let reservations = (prop::bool::weighted(0.2), kit::any_settlement(), 0..3_u64);
    (any_numbers(), kit::any_ban(0.3), prop::bool::weighted(0.2), reservations).prop_map(
        move |(numbers, ban, shadow, (refunds, settled, reserved))| {
            let policy = kit::with_refunds(kit::with(numbers.policy(name), ban, shadow), refunds);
            let policy = kit::with_reserved(kit::with_settlement(policy, settled), reserved);
            (numbers, policy)
        },
    )
}

/// The same algorithm with other numbers, some of which stay.
fn renumbered(numbers: &Numbers, units: u64, periods: u64) -> Numbers {
    let other = |pace: &Pace| Pace { units, period: pace.period * periods };
    let changed = match numbers {
        Numbers::Token(pace, _) => Numbers::Token(other(pace), units),
        Numbers::Interval(pace, _) => Numbers::Interval(other(pace), units),
        Numbers::Gcra(pace, _) => Numbers::Gcra(other(pace), units),
        Numbers::Leaky(pace, _) => Numbers::Leaky(other(pace), units),
        Numbers::Fixed(pace) if units.is_multiple_of(3) => Numbers::First(other(pace)),
        Numbers::Fixed(pace) => Numbers::Fixed(other(pace)),
        Numbers::First(pace) => Numbers::First(other(pace)),
        Numbers::Calendar(_, unit, zone) => Numbers::Calendar(units, *unit, zone),
        Numbers::Log(paces) => Numbers::Log(paces.iter().map(other).collect()),
        Numbers::Sliding(pace, buckets) => Numbers::Sliding(other(pace), buckets * periods),
        Numbers::Slots(_, lease) => Numbers::Slots(units, lease * periods),
    };
    if changed.try_quota().is_some() { changed } else { numbers.clone() }
}

fn any_change() -> impl Strategy<Value = (u64, u64)> {
    (1..100_u64, prop_oneof![3 => Just(1_u64), 1 => 2..4_u64])
}

#[test]
fn both_stores_decide_equally() {
    let server = RedisServer::start();
    let policies = (any_policy("a"), any_policy("b"), any_policy("c"), any_policy("d"), any_policy("c"));
    let events = prop::collection::vec((any_jump(), any_event()), 1..40);
    let renumbering = (any_change(), any_change());
    for_all(150, &(policies, renumbering, events), |((a, b, c, d, switched), renumbering, events)| {
        let stores = Stores::new(&server);
        let period = a.0.period();
        let again = |(numbers, policy): &(Numbers, Policy), (units, periods): (u64, u64)| {
            let other = renumbered(numbers, units, periods).policy(&policy.name);
            let other = kit::with(other, policy.ban, policy.shadow);
            let other = kit::with_refunds(other, policy.charges_by_status());
            kit::with_reserved(kit::with_settlement(other, policy.settled_max()), units)
        };
        let others = [again(&a, renumbering.0), again(&b, renumbering.1), switched.1];
        let policies: Vec<Policy> = [a.1, b.1, c.1, d.1].into_iter().chain(others).collect();
        let all = |asked: Vec<(u32, u8, u64, u64, ChargeKind)>| -> Vec<Charge> {
            let one = |(policy, key, cost, holder, kind)| {
                // Late charges are late by up to five quarters of the first limit's period.
                let taken = Timestamp(stores.clock().saturating_sub(period / 4 * holder));
                Charge { taken, ..kit::held(policy, key, cost, holder, kind) }
            };
            asked.into_iter().map(one).collect()
        };
        let (mut course, mut last) = (Course::any(), None);
        for (step, event) in events {
            stores.set_clock(course.go(step, period, last.as_ref()));
            match event {
                Event::Take(asked) => last = stores.take(&policies, &all(asked)).first().copied(),
                Event::Settle(asked) => last = stores.apply(&policies, &all(asked)).first().copied(),
                Event::Change(policy, key, change) => {
                    stores.change(&policies, &[(PolicyId(policy), kit::key(key))], change);
                }
            }
        }
        Ok(())
    });
}

/// A denial after the clock was set back moves the penalty, which ends with the counters of another width.
#[test]
fn both_stores_forget_counters_of_another_width() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let ban = Some(Ban { after: 2, within: Micros(1_000), length: Micros(1_000) });
    let window = |period| Numbers::Sliding(Pace { units: 1, period }, 1).policy("a");
    let policies = [kit::with(window(120), ban, false), window(1)];
    stores.take(&policies, &[kit::charge(0, 1, 1)]);
    assert!(!stores.take(&policies, &[kit::charge(0, 1, 1)])[0].allowed);
    stores.set_clock(stores.clock() - 1_000_001);
    assert!(!stores.take(&policies, &[kit::charge(1, 1, 2)])[0].allowed);
    assert!(stores.take(&policies, &[kit::charge(0, 1, 1)])[0].allowed);
}

/// One limit at a time, which reaches more of its states than several do.
#[test]
fn both_stores_decide_equally_for_one_limit() {
    let server = RedisServer::start();
    let arrival = (any_jump(), any_cost(), 0..6_u64, prop::bool::weighted(0.15), any::<bool>());
    let arrivals = prop::collection::vec(arrival, 1..60);
    for_all(
        250,
        &(any_policy("a"), any_change(), arrivals),
        |((numbers, policy), (units, periods), arrivals)| {
            let stores = Stores::new(&server);
            let changed = kit::with(renumbered(&numbers, units, periods).policy("a"), policy.ban, false);
            let changed = kit::with_settlement(changed, policy.settled_max());
            let changed = kit::with_reserved(changed, units);
            let policies = [policy, changed];
            let (mut course, mut last) = (Course::any(), None);
            for (step, cost, holder, is_changed, gives_back) in arrivals {
                stores.set_clock(course.go(step, numbers.period(), last.as_ref()));
                let slots = matches!(numbers, Numbers::Slots(..));
                let kind = if slots && gives_back { ChargeKind::Release } else { ChargeKind::Take };
                let charge = kit::held(u32::from(is_changed), 1, cost, holder, kind);
                let said = stores.take(&policies, &[charge])[0];
                prop_assert!(said.remaining <= said.limit);
                last = Some(said);
            }
            Ok(())
        },
    );
}

/// Many requests of one charge in one call, as a batch has them: runs of equal ones, and others among them.
#[test]
fn both_stores_decide_equally_for_requests_of_one_call() {
    let server = RedisServer::start();
    let cost = prop_oneof![8 => Just(1_u64), 2 => any_cost()];
    let asked = (prop_oneof![6 => Just(0_u32), 1 => 1..3_u32], cost, prop::bool::weighted(0.1));
    let asked = (0..4_u8, prop::collection::vec(asked, 1..16));
    let calls = prop::collection::vec((any_jump(), asked), 1..30);
    for_all(
        150,
        &(any_policy("a"), any_change(), any_policy("b"), calls),
        |(first, (units, periods), second, calls)| {
            let stores = Stores::new(&server);
            let changed = kit::with(renumbered(&first.0, units, periods).policy("a"), None, false);
            let changed = kit::with_reserved(changed, units);
            let policies = [first.1, changed, second.1];
            let (mut course, mut last) = (Course::any(), None);
            for (step, (start, asked)) in calls {
                stores.set_clock(course.go(step, first.0.period(), last.as_ref()));
                let charges: Vec<Charge> = asked
                    .into_iter()
                    .zip(start..)
                    .map(|((policy, cost, looks), key)| {
                        let kind = if looks { ChargeKind::Check } else { ChargeKind::Take };
                        kit::held(policy, key % 8, cost, u64::from(key), kind)
                    })
                    .collect();
                last = stores.apply(&policies, &charges).first().copied();
            }
            Ok(())
        },
    );
}
