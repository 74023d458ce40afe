//! Random limits, demands, networks, clocks and crashes: never more is admitted than the limit allows.

use std::cell::Cell;
use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::load::{Phase, Target};
use super::process::Place;
use super::simulation::{Network, Setup};
use crate::limit::{Ahead, Align, Calendar, CalendarUnit, Policy, Quota, Rate};
use crate::time::Micros;

/// How many cases there are, without `PROOF_FACTOR`.
const CASES: u32 = 300;

/// Any limit that grants units, mostly with numbers that do not divide evenly.
fn any_quota() -> impl Strategy<Value = Quota> {
    let period = prop_oneof![
        2 => Just(1_000_000_u64),
        2 => 100_000..3_000_000_u64,
        1 => 1_000..100_000_u64,
        1 => Just(10_000_000)
    ];
    let units = || prop_oneof![3 => 20..400_u64, 1 => 400..4_000_u64];
    (period, units(), units(), 1..12_u64, 0..10_u8).prop_map(|(period, units, burst, parts, which)| {
        let rate = Rate::new(units, Micros(period)).unwrap();
        let part = Rate::new(units / 2 + 1, Micros(period / 3)).unwrap();
        let quota = match which {
            0 | 1 => Quota::token_bucket(rate, burst),
            2 => Quota::gcra(rate, burst),
            3 => Quota::interval_bucket(rate, burst),
            4 => Quota::fixed_window(rate, Align::Clock),
            5 => Quota::fixed_window(rate, Align::FirstRequest),
            6 => {
                let day = Align::Calendar(Calendar::new(CalendarUnit::Day, "UTC").unwrap());
                Quota::fixed_window(Rate::new(units, Micros(86_400_000_000)).unwrap(), day)
            }
            7 => Quota::sliding_log(&[rate]),
            8 => Quota::sliding_log(&[rate, part]),
            _ => {
                let rate = Rate::new(units, Micros(period / parts * parts)).unwrap();
                Quota::sliding_window(rate, parts)
            }
        };
        quota.unwrap()
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let span = prop_oneof![1 => Just(100_000_u64), 3 => 100_000..3_000_000_u64];
    (any_quota(), span, 1..10_u64).prop_map(|(quota, span, share)| {
        let share = NonZeroU64::new(share).unwrap();
        Policy::new("a", quota).with_ahead(Ahead { span: Micros(span), share })
    })
}

/// Silences, bursts of requests at once, and steady demands, of one process mostly or of all.
fn any_phase() -> impl Strategy<Value = Phase> {
    let length = prop_oneof![
        1 => Just(0_u64),
        2 => 0..50_000_u64,
        4 => 0..1_000_000_u64,
        2 => 0..3_000_000_u64
    ];
    let requests = prop_oneof![2 => Just(0_u64), 3 => 0..60_u64, 3 => 0..400_u64];
    let target = prop_oneof![Just(Target::All), (0..5_usize).prop_map(Target::Mostly)];
    (length, requests, target, any::<bool>()).prop_map(|(length, requests, target, has_costs)| Phase {
        length: Micros(length),
        requests,
        target,
        has_costs,
    })
}

fn any_place() -> impl Strategy<Value = Place> {
    let travel = prop_oneof![4 => 10..2_000_u64, 1 => 2_000..30_000_u64, 1 => Just(100_000)];
    let drift = prop_oneof![2 => -500..=500_i64, 1 => Just(-500), 1 => Just(500)];
    (travel, drift).prop_map(|(travel, drift)| Place { travel: Micros(travel), drift })
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let places = prop::collection::vec(any_place(), 1..6);
    let lost = prop_oneof![2 => Just(0_u16), 1 => 0..20_u16, 1 => 20..200_u16];
    let slow = prop_oneof![1 => Just(0_u16), 1 => 0..50_u16, 1 => 50..300_u16];
    let network = (lost, slow).prop_map(|(lost, slow)| Network { lost, slow });
    let phases = prop::collection::vec(any_phase(), 1..10);
    let crash = (0..5_usize, (0..5_000_000_u64).prop_map(Micros));
    let crashes = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(crash, 0..6)];
    (any_policy(), places, network, phases, crashes, any::<u64>()).prop_map(
        |(policy, places, network, phases, crashes, seed)| Setup {
            policy,
            places,
            network,
            phases,
            crashes,
            seed,
        },
    )
}

#[test]
fn no_schedule_admits_more_than_the_limit() {
    let factor = std::env::var("PROOF_FACTOR").ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let config =
        ProptestConfig { cases: CASES * factor, failure_persistence: None, ..ProptestConfig::default() };
    let (admitted, spent) = (Cell::new(0), Cell::new(0));
    let result = TestRunner::new(config).run(&any_setup(), |setup| {
        let totals = setup.run();
        admitted.set(admitted.get() + totals.admitted);
        spent.set(spent.get() + totals.spent);
        prop_assert_eq!(totals.over, 0);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let (admitted, spent) = (admitted.get(), spent.get());
    assert!(spent > admitted / 4, "of {admitted} units {spent} were spent from grants");
}
