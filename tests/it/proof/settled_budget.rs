//! The budget of a limit that settles costs: if each estimate is an upper bound, what was settled and what is reserved never
//! exceed the limit, and what has come back.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate::limit::{Charge, PolicyId};
use tidegate::store::{Memory, StateChange};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Move, Numbers, START, any_move, for_all};
use super::rules::Pace;
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

/// A limit without refill.
const BUDGET: u64 = 1_000;

/// A request that has reserved units and was not settled.
struct Open {
    charge: Charge,
    taken: Timestamp,
    /// The busy period or the window that it belongs to.
    period: u64,
}

/// An arrival of a request with its estimate; or the response of one of the open requests, and what it has cost in
/// thousandths of its estimate.
type Arrival = (Move, bool, u64, usize);

fn arrivals(moves: impl Strategy<Value = Move>) -> impl Strategy<Value = Vec<Arrival>> {
    prop::collection::vec((moves, prop::bool::weighted(0.6), 0..1_000_u64, any::<usize>()), 1..150)
}

fn any_pace() -> impl Strategy<Value = Pace> {
    let period = prop_oneof![Just(1_000_000_u64), 1..50_000_u64, Just(60_000_000)];
    (1..30_u64, period).prop_map(|(units, period)| Pace { units, period })
}

/// The difference of an estimate and what a response has cost.
fn refund(open: &Open, thousandths: u64) -> (u64, Charge) {
    let cost = open.charge.cost * thousandths / 1_000;
    (cost, Charge { cost: open.charge.cost - cost, ..open.charge.refund(open.taken) })
}

/// Buckets: within each busy period, at most the limit and the refill since its start.
#[test]
fn no_busy_period_is_charged_more_than_the_limit_and_the_refill() {
    let numbers = (any_pace(), 1..200_u64, 0..3_u8);
    for_all(1_500, &(numbers, arrivals(any_move())), |((pace, limit, which), arrivals)| {
        let numbers = match which {
            0 => Numbers::Token(pace, limit),
            1 => Numbers::Gcra(pace, limit - 1),
            _ => Numbers::Interval(pace, limit),
        };
        let (memory, policies) = (kit::memory(), [numbers.policy("a").with_settlement(limit)]);
        let (mut course, mut last) = (Course::behind(0), None);
        let mut open: Vec<Open> = Vec::new();
        // The busy period, and what was settled and reserved in it.
        let (mut start, mut used) = (START, 0);
        for (step, comes, part, which) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            memory.clock().set(Timestamp(now));
            let peek = memory.take(&policies, &[kit::charge(0, 1, 0)])[0];
            if peek.reset_after == Micros::ZERO {
                (start, used) = (now, 0);
            }
            if comes || open.is_empty() {
                let charge = kit::charge(0, 1, 1 + part * limit / 1_000);
                let said = memory.take(&policies, &[charge])[0];
                if said.allowed {
                    used += charge.cost;
                    open.push(Open { charge, taken: said.at, period: start });
                }
                last = Some(said);
            } else {
                let settled = open.swap_remove(which % open.len());
                let (cost, charge) = refund(&settled, part);
                last = memory.apply(&policies, &[charge]).first().copied();
                if settled.period == start {
                    used -= settled.charge.cost - cost;
                } else {
                    prop_assert_eq!(last.map(|said| said.remaining), Some(peek.remaining));
                }
            }
            let passed = u128::from(now - start);
            let back = match numbers {
                Numbers::Interval(..) => passed / u128::from(pace.period) * u128::from(pace.units),
                _ => passed * u128::from(pace.units) / u128::from(pace.period),
            };
            prop_assert!(u128::from(used) <= u128::from(limit) + back, "{used} of {limit} and {back}");
            // States of one microsecond are not told apart.
            course.go(Move::By(1), 0, None);
        }
        Ok(())
    });
}

/// Windows: each holds at most the limit, and a refund is to its own window.
#[test]
fn no_window_is_charged_more_than_the_limit() {
    for_all(800, &(any_pace(), 1..200_u64, arrivals(any_move())), |(pace, limit, arrivals)| {
        let pace = Pace { units: limit, ..pace };
        let (memory, policies) = (kit::memory(), [Numbers::Fixed(pace).policy("a").with_settlement(limit)]);
        let (mut course, mut last) = (Course::behind(0), None);
        let mut open: Vec<Open> = Vec::new();
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        for (step, comes, part, which) in arrivals {
            let now = course.go(step, pace.period, last.as_ref());
            memory.clock().set(Timestamp(now));
            let window = now / pace.period;
            if comes || open.is_empty() {
                let charge = kit::charge(0, 1, 1 + part * limit / 1_000);
                let said = memory.take(&policies, &[charge])[0];
                if said.allowed {
                    *used.entry(window).or_default() += charge.cost;
                    open.push(Open { charge, taken: said.at, period: window });
                }
                last = Some(said);
            } else {
                let settled = open.swap_remove(which % open.len());
                let (cost, charge) = refund(&settled, part);
                last = memory.apply(&policies, &[charge]).first().copied();
                if let Some(used) = used.get_mut(&settled.period) {
                    *used -= settled.charge.cost - cost;
                }
            }
            let left = limit - used.get(&window).copied().unwrap_or(0).min(limit);
            prop_assert!(used.values().all(|used| *used <= limit), "{:?} of {}", used, limit);
            prop_assert_eq!(memory.take(&policies, &[kit::charge(0, 1, 0)])[0].remaining, left);
        }
        Ok(())
    });
}

/// A budget without refill, as two proxies see it in both stores: at every instant what was settled and what is reserved is at
/// most the budget, and all of it can be used.
#[test]
fn parallel_requests_never_exceed_a_budget() {
    let server = RedisServer::start();
    let pace = Pace { units: BUDGET, period: 86_400_000_000 };
    let which = prop_oneof![
        Just(Numbers::Fixed(pace)),
        Just(Numbers::First(pace)),
        Just(Numbers::Log(vec![pace])),
        Just(Numbers::Sliding(pace, 1)),
        Just(Numbers::Token(Pace { units: 1, ..pace }, BUDGET)),
    ];
    let arrival = (prop::bool::weighted(0.6), 1..1_000_u64, any::<usize>());
    for_all(40, &(which, prop::collection::vec(arrival, 200)), |(numbers, arrivals)| {
        let (stores, policies) = (Stores::new(&server), [numbers.policy("a").with_settlement(BUDGET)]);
        let (mut open, mut settled): (Vec<Open>, u64) = (Vec::new(), 0);
        for (place, (comes, part, which)) in arrivals.into_iter().enumerate() {
            stores.set_clock(START + u64::try_from(place).unwrap() * 7);
            if comes || open.is_empty() {
                let charge = kit::charge(0, 1, part.div_ceil(5));
                let reserved = open.iter().map(|open| open.charge.cost).sum::<u64>();
                let said = stores.take(&policies, &[charge])[0];
                prop_assert_eq!(said.allowed, settled + reserved + charge.cost <= BUDGET);
                if said.allowed {
                    open.push(Open { charge, taken: said.at, period: 0 });
                }
            } else {
                let of_one = open.swap_remove(which % open.len());
                let (cost, charge) = refund(&of_one, part);
                stores.apply(&policies, &[charge]);
                settled += cost;
            }
            let reserved = open.iter().map(|open| open.charge.cost).sum::<u64>();
            prop_assert!(settled + reserved <= BUDGET);
        }
        Ok(())
    });
}

/// A state that was reset, or evicted, gets no refunds of what it has not taken.
#[test]
fn a_lost_state_gets_no_refunds() {
    let pace = Pace { units: 10, period: 60_000_000 };
    for numbers in [
        Numbers::Token(pace, 100),
        Numbers::Gcra(pace, 99),
        Numbers::Interval(pace, 100),
        Numbers::Fixed(Pace { units: 100, ..pace }),
        Numbers::First(Pace { units: 100, ..pace }),
        Numbers::Log(vec![Pace { units: 100, ..pace }]),
        Numbers::Sliding(Pace { units: 100, ..pace }, 6),
    ] {
        let policies = [numbers.policy("a").with_settlement(100)];
        let lose: [fn(&Memory, &[tidegate::limit::Policy]); 2] = [
            |memory, policies| {
                let _ = memory.change(policies, &[(PolicyId(0), kit::key(1))], StateChange::Reset);
            },
            |memory, policies| {
                // A store of one key.
                let _ = memory.take(policies, &[kit::charge(0, 2, 1)]);
            },
        ];
        for lose in lose {
            let memory = Memory::new(1, tidegate::time::Clock::manual(Timestamp(START)));
            let charge = kit::charge(0, 1, 80);
            let taken = memory.take(&policies, &[charge])[0].at;
            memory.clock().set(Timestamp(START + 1));
            lose(&memory, &policies);
            memory.clock().set(Timestamp(START + 2));
            let again = memory.take(&policies, &[charge])[0];
            assert_eq!((again.allowed, again.remaining), (true, 20), "{numbers:?}");
            assert_eq!(memory.apply(&policies, &[charge.refund(taken)])[0].remaining, 20, "{numbers:?}");
        }
    }
}
