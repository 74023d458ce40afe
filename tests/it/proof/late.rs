//! Late charges of requests that were admitted during an outage. Both stores apply them equally, and the result is as if they had
//! been in time.

use proptest::prelude::*;
use tidegate::limit::{Ban, ChargeKind, Holder};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Numbers, any_cost, any_jump, any_move, any_numbers, any_timed, for_all};
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

#[test]
fn both_stores_charge_late_equally() {
    let server = RedisServer::start();
    // In microseconds, or in thousandths of the period.
    let age = prop_oneof![
        (0..3_000_000_u64).prop_map(|micros| (micros, 0)),
        (0..2_500_u64).prop_map(|parts| (0, parts))
    ];
    let late = prop::option::weighted(0.5, age);
    let arrival = (any_jump(), any_cost(), 0..6_u64, late);
    let ban = prop::option::weighted(0.3, (1..4_u64, 1..5_000_000_u64, 1..5_000_000_u64));
    let policy = (any_numbers(), ban, kit::any_settlement());
    for_all(300, &(policy, prop::collection::vec(arrival, 1..60)), |((numbers, ban, settled), arrivals)| {
        let stores = Stores::new(&server);
        let ban =
            ban.map(|(after, within, length)| Ban { after, within: Micros(within), length: Micros(length) });
        let policies = [kit::with_settlement(kit::with(numbers.policy("a"), ban, false), settled)];
        let (mut course, mut last) = (Course::any(), None);
        for (step, cost, holder, late) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            stores.set_clock(now);
            let charge = kit::held(0, 1, cost, holder, ChargeKind::Take);
            last = match late {
                Some((micros, thousandths)) => {
                    let age = micros + numbers.period() / 1_000 * thousandths;
                    stores.apply(&policies, &[charge.late(Timestamp(now - age.min(now)))])
                }
                None => stores.take(&policies, &[charge]),
            }
            .first()
            .copied();
            prop_assert!(last.is_none_or(|said| said.remaining <= said.limit));
        }
        Ok(())
    });
}

/// One store gets every charge in time, the other some of them later: afterwards both decide equally.
#[test]
fn a_late_charge_equals_a_timely_one() {
    let arrival = (any_move(), 1..6_u64, any::<bool>(), prop::bool::weighted(0.2));
    for_all(1_500, &(any_timed(), prop::collection::vec(arrival, 1..40)), |(numbers, arrivals)| {
        match numbers {
            // Only the time of each charge matters, not the order of the calls.
            Numbers::Fixed(_) | Numbers::Calendar(..) | Numbers::Log(_) | Numbers::Sliding(..) => {}
            _ => return Ok(()),
        }
        let policies = [numbers.policy("a")];
        let (in_time, late) = (kit::memory(), kit::memory());
        let (mut course, mut waiting, mut last) = (Course::behind(0), Vec::new(), None);
        for (step, cost, waits, is_paid) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            for memory in [&in_time, &late] {
                memory.clock().set(Timestamp(now));
            }
            let charge = kit::charge(0, 1, cost);
            let said = in_time.take(&policies, &[charge])[0];
            if said.allowed && waits {
                waiting.push(charge.late(Timestamp(now)));
            } else if said.allowed {
                prop_assert!(late.take(&policies, &[charge])[0].allowed);
            }
            if is_paid {
                let _ = late.apply(&policies, &std::mem::take(&mut waiting));
                let looks = [&in_time, &late].map(|memory| memory.take(&policies, &[charge.peek()])[0]);
                prop_assert_eq!(looks[0], looks[1]);
            }
            last = Some(said);
        }
        Ok(())
    });
}

/// A late charge of a key without other requests has the effect of a timely one, with every algorithm.
#[test]
fn a_late_charge_of_an_idle_key_equals_a_timely_one() {
    for_all(1_500, &(any_timed(), 1..12_u64, any_move()), |(numbers, cost, step)| {
        let (policies, charge) = ([numbers.policy("a")], kit::charge(0, 1, cost));
        let (in_time, late) = (kit::memory(), kit::memory());
        let mut course = Course::behind(0);
        let said = in_time.take(&policies, &[charge])[0];
        if !said.allowed {
            return Ok(());
        }
        let now = course.go(step, numbers.period(), Some(&said));
        for memory in [&in_time, &late] {
            memory.clock().set(Timestamp(now));
        }
        let _ = late.apply(&policies, &[charge.late(Timestamp(kit::START))]);
        let look = |memory: &tidegate::store::Memory| memory.take(&policies, &[charge.peek()])[0];
        prop_assert_eq!(look(&in_time), look(&late));
        Ok(())
    });
}

/// No number of late charges exceeds the limit of a state, and all units refill with time.
#[test]
fn late_charges_do_not_exceed_the_limit() {
    let ages = prop::collection::vec((0..2_000_u64, any_cost()), 1..20);
    for_all(500, &(any_timed(), ages), |(numbers, charges)| {
        let (memory, policies) = (kit::memory(), [numbers.policy("a")]);
        let look = || memory.take(&policies, &[kit::charge(0, 1, 0)])[0];
        for (thousandths, cost) in charges {
            let age = (numbers.period() / 1_000 * thousandths).min(kit::START);
            let _ = memory.apply(&policies, &[kit::charge(0, 1, cost).late(Timestamp(kit::START - age))]);
            prop_assert!(look().remaining <= look().limit);
        }
        let back = kit::START + look().reset_after.0;
        memory.clock().set(Timestamp(back));
        prop_assert_eq!((look().remaining, look().reset_after), (look().limit, Micros::ZERO));
        Ok(())
    });
}

/// Slots are restored by their renewal only.
#[test]
fn slots_are_never_late() {
    let (memory, policies) = (kit::memory(), [Numbers::Slots(2, 1_000_000).policy("a")]);
    let charge = tidegate::limit::Charge { holder: Holder(7), ..kit::charge(0, 1, 1) };
    let said = memory.apply(&policies, &[charge.late(Timestamp(kit::START))])[0];
    assert_eq!(said.remaining, 2);
    assert!(memory.is_empty());
}
