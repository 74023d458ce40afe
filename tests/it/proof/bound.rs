//! The in-memory store never has more than `max_keys` keys, and a sweep removes all expired ones.

use proptest::prelude::*;
use tidegate::limit::{Ban, Charge, ChargeKind, Key, Policy, PolicyId};
use tidegate::store::{Memory, StateChange};
use tidegate::time::{Clock, Micros, Timestamp};

use super::kit::{self, Course, any_cost, any_jump, any_numbers, for_all};

/// An event of a key.
#[derive(Clone, Copy, Debug)]
enum Event {
    Take(ChargeKind, u64),
    Change(StateChange),
    Sweep(usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![6 => Just(ChargeKind::Take), 1 => Just(ChargeKind::Check),
        1 => Just(ChargeKind::Release), 1 => Just(ChargeKind::Renew), 1 => Just(ChargeKind::Late)];
    let change = prop_oneof![
        (1..5_000_000_u64).prop_map(|length| StateChange::Block(Micros(length))),
        Just(StateChange::Unblock),
        Just(StateChange::Reset)
    ];
    prop_oneof![
        20 => (kind, any_cost()).prop_map(|(kind, cost)| Event::Take(kind, cost.min(1_000))),
        2 => change.prop_map(Event::Change),
        1 => (0..4_usize).prop_map(Event::Sweep)
    ]
}

fn spread(number: u16) -> Key {
    let hash = u128::from(number).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    Key(hash.to_be_bytes())
}

/// The numbers of a limit; and of its ban: denials, window and duration.
type Limit = (kit::Numbers, Option<(u64, u64, u64)>);

fn policies(all: Vec<Limit>) -> Vec<Policy> {
    let policy = |(place, (numbers, ban)): (usize, Limit)| {
        let ban =
            ban.map(|(after, within, length)| Ban { after, within: Micros(within), length: Micros(length) });
        kit::with(numbers.policy(&format!("p{place}")), ban, false)
    };
    all.into_iter().enumerate().map(policy).collect()
}

/// The bound holds after every single step, with entries of all kinds; long after the last arrival a sweep removes
/// everything.
#[test]
fn max_keys_is_never_exceeded_and_a_sweep_removes_all() {
    let ban = || prop::option::of((1..4_u64, 1..5_000_000_u64, 1..5_000_000_u64));
    let limits = prop::collection::vec((any_numbers(), ban()), 1..5).prop_map(policies);
    let bound = prop_oneof![1..4_usize, 1..80_usize, Just(700)];
    let arrival = (any_jump(), any_event(), prop::collection::vec((0..5_u32, 0..300_u16, 0..5_u64), 1..4));
    let arrivals = prop::collection::vec(arrival, 1..400);
    for_all(40, &(limits, bound, arrivals), |(policies, bound, arrivals)| {
        let memory = Memory::new(bound, Clock::manual(Timestamp(kit::START)));
        let (mut course, mut last) = (Course::any(), None);
        for (step, event, asked) in arrivals {
            memory.clock().set(Timestamp(course.go(step, 1_000_000, last.as_ref())));
            let place = |policy: u32| policy % u32::try_from(policies.len()).unwrap();
            let ids: Vec<_> = asked.iter().map(|(p, k, _)| (PolicyId(place(*p)), spread(*k))).collect();
            match event {
                Event::Take(kind, cost) => {
                    let charge = |&(policy, key, holder): &(u32, u16, u64)| Charge {
                        key: spread(key),
                        ..kit::held(place(policy), 0, cost, holder, kind)
                    };
                    let charges: Vec<Charge> = asked.iter().map(charge).collect();
                    last = memory.take(&policies, &charges).first().copied();
                }
                Event::Change(change) => drop(memory.change(&policies, &ids, change)),
                Event::Sweep(part) => memory.sweep(part, 4),
            }
            prop_assert!(memory.len() <= bound, "{} keys of {}", memory.len(), bound);
            for policy in &policies {
                prop_assert!(memory.keys(policy, 3).len() <= 3);
            }
        }
        // Ten thousand years later.
        memory.clock().set(Timestamp(kit::START * 176));
        memory.sweep(0, 1);
        prop_assert!(memory.is_empty(), "{} keys for ever", memory.len());
        Ok(())
    });
}

/// The same with concurrent threads.
#[test]
fn max_keys_is_never_exceeded_by_concurrent_threads() {
    let memory = Memory::new(300, Clock::System);
    let pace = super::rules::Pace { units: 3, period: 200_000 };
    let all = [
        kit::Numbers::Token(pace, 3),
        kit::Numbers::Log(vec![pace]),
        kit::Numbers::Sliding(pace, 4),
        kit::Numbers::Slots(3, 50_000),
        kit::Numbers::First(pace),
    ];
    let policies = policies(all.into_iter().map(|numbers| (numbers, Some((2, 100_000, 100_000)))).collect());
    std::thread::scope(|scope| {
        for thread in 0..4_u16 {
            let (memory, policies) = (&memory, &policies);
            scope.spawn(move || {
                for round in 0..5_000_u16 {
                    let key = round.wrapping_mul(31).wrapping_add(thread) % 1_000;
                    let charge = |policy| Charge {
                        key: spread(key),
                        ..kit::held(policy, 0, 1, u64::from(round), ChargeKind::Take)
                    };
                    let _ = memory.take(policies, &[0, 1, 2, 3, 4].map(charge));
                    if round % 97 == 0 {
                        memory.sweep(usize::from(thread), 4);
                    }
                    assert!(round % 50 != 0 || memory.len() <= 300);
                }
            });
        }
    });
    assert!(memory.len() <= 300);
}
