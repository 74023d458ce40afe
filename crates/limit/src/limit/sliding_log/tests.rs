//! A sliding log against one that keeps everything in a plain list.

use proptest::prelude::*;

use super::*;

const START: u64 = 1_790_000_000_000_000;
const MINUTE: u64 = 60_000_000;

fn rate(units: u64, period: u64) -> Rate {
    Rate::new(units, Micros(period)).unwrap()
}

fn log(rates: &[(u64, u64)]) -> SlidingLog {
    let rates: Vec<Rate> = rates.iter().map(|&(units, period)| rate(units, period)).collect();
    SlidingLog::new(&rates).unwrap()
}

/// A limit, and the state of one key.
struct Account {
    quota: SlidingLog,
    state: Option<Log>,
}

impl Account {
    fn new(rates: &[(u64, u64)]) -> Self {
        Self { quota: log(rates), state: None }
    }

    fn decide(&self, now: u64, cost: u64) -> Decision {
        self.quota.step(self.state.as_ref(), Timestamp(now), cost).decision
    }

    fn take(&mut self, now: u64, cost: u64) -> Decision {
        let Step { decision, next } = self.quota.step(self.state.as_ref(), Timestamp(now), cost);
        self.state = next.or(self.state.take());
        decision
    }
}

/// The reference, from the definition: sums over all admitted requests.
#[derive(Clone, Default)]
struct Model {
    entries: Vec<(i128, u64)>,
}

impl Model {
    fn moved(&self, now: u64) -> Self {
        let newest = self.entries.last().map_or(0, |entry| entry.0);
        let shift = if newest > i128::from(now) + 1_000_000 { newest - i128::from(now) } else { 0 };
        Self { entries: self.entries.iter().map(|&(time, cost)| (time - shift, cost)).collect() }
    }

    fn at(&self, now: u64) -> i128 {
        self.entries.last().map_or(0, |entry| entry.0).max(now.into())
    }

    fn remaining(&self, rates: &[(u64, u64)], now: u64) -> u64 {
        let inside = |period: u64| {
            let edge = self.at(now) - i128::from(period);
            self.entries.iter().filter(move |entry| entry.0 > edge)
        };
        let sum = |period| inside(period).map(|entry| entry.1).sum();
        rates.iter().map(|&(units, period)| units.saturating_sub(sum(period))).min().unwrap()
    }
}

/// Plays arrivals to both, each under one of the lists of rates.
fn play(
    policies: &[Vec<(u64, u64)>],
    start: u64,
    arrivals: Vec<(i64, u64, usize)>,
) -> Result<(), TestCaseError> {
    let (mut state, mut model, mut now) = (None, Model::default(), start);
    for (step, cost, policy) in arrivals {
        now = now.saturating_add_signed(step);
        let rates = &policies[policy % policies.len()];
        let quota = log(rates);
        let limit = rates.iter().map(|rate| rate.0).min().unwrap();
        let Step { decision, next } = quota.step(state.as_ref(), Timestamp(now), cost);
        let moved = model.moved(now);
        let remaining = moved.remaining(rates, now);
        prop_assert_eq!(decision.limit, limit);
        prop_assert_eq!(decision.allowed, cost <= remaining);
        prop_assert_eq!(decision.remaining, if cost <= remaining { remaining - cost } else { remaining });
        let mut after = moved.clone();
        if decision.allowed && cost > 0 {
            after.entries.push((moved.at(now), cost));
        }
        if policies.len() > 1 && next.is_some() && decision.allowed {
            let longest = rates.iter().map(|rate| rate.1).max().unwrap();
            let oldest = after.at(now) - i128::from(longest);
            after.entries.retain(|entry| entry.0 > oldest);
        }
        let reset = now + decision.reset_after.0;
        prop_assert_eq!(after.remaining(rates, reset), limit);
        if reset > now {
            prop_assert!(after.remaining(rates, reset - 1) < limit);
        }
        match decision.retry_after {
            None => prop_assert!(cost > limit),
            Some(Micros::ZERO) => prop_assert!(decision.allowed),
            Some(wait) => {
                prop_assert!(moved.remaining(rates, now + wait.0) >= cost);
                prop_assert!(moved.remaining(rates, now + wait.0 - 1) < cost);
            }
        }
        let was_moved = moved.entries != model.entries;
        prop_assert_eq!(next.is_some(), if decision.allowed { cost > 0 } else { was_moved });
        if let Some(next) = next {
            model = after;
            prop_assert!(next.len() <= model.entries.len());
            state = Some(next);
        }
    }
    Ok(())
}

fn any_rates() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let units = prop_oneof![4 => 1..9_u64, 3 => 1..80_u64, 1 => 500_000..=MOST_UNITS];
    let period =
        prop_oneof![Just(1_u64), 2..500_u64, 900_000..1_100_000_u64, Just(MINUTE), Just(LONGEST_PERIOD),];
    prop_oneof![
        prop::collection::vec((units.clone(), period.clone()), 1),
        prop::collection::vec((units, period), 2..5),
    ]
}

fn any_arrivals() -> impl Strategy<Value = Vec<(i64, u64, usize)>> {
    let step = prop_oneof![
        4 => Just(0_i64),
        4 => 0..300_i64,
        4 => 0..400_000_i64,
        2 => 0..30_000_000_i64,
        1 => 0..1_i64 << 44,
        1 => -900_000..0_i64,
        1 => -50_000_000..-1_000_000_i64,
    ];
    let cost = prop_oneof![
        8 => Just(1_u64),
        1 => Just(0),
        3 => 0..10_u64,
        2 => 0..100_u64,
        2 => 100_000..MOST_UNITS,
        1 => Just(u64::MAX),
    ];
    prop::collection::vec((step, cost, 0..2_usize), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_decides_as_a_plain_list(rates in any_rates(), near_epoch: bool, arrivals in any_arrivals()) {
        play(&[rates], if near_epoch { 3 } else { START }, arrivals)?;
    }

    #[test]
    fn entries_stay_when_the_numbers_change(a in any_rates(), b in any_rates(), arrivals in any_arrivals()) {
        play(&[a, b], START, arrivals)?;
    }

    #[test]
    fn a_log_at_the_end_of_its_life_equals_none(
        rates in any_rates(),
        arrivals in prop::collection::vec((0..2_000_000_u64, 1..9_u64), 1..80),
    ) {
        let (mut kept, mut dropped, mut now) = (Account::new(&rates), Account::new(&rates), START);
        let mut end = Timestamp(0);
        for (step, cost) in arrivals {
            now += step;
            if Timestamp(now) >= end {
                dropped.state = None;
            }
            prop_assert_eq!(kept.take(now, cost), dropped.take(now, cost));
            if let Some(state) = &dropped.state {
                end = Timestamp(now).after(dropped.quota.lifetime(state, Timestamp(now)));
            }
        }
    }
}

#[test]
fn three_a_minute() {
    let mut account = Account::new(&[(3, MINUTE)]);
    for (second, left) in [(0, 2), (10, 1), (25, 0)] {
        assert_eq!(account.take(START + second * 1_000_000, 1).remaining, left);
    }
    let denied = account.take(START + 40_000_000, 1);
    assert!(!denied.allowed);
    assert_eq!(denied.retry_after, Some(Micros(20_000_000)));
    assert_eq!(denied.reset_after, Micros(45_000_000));
    assert_eq!(account.decide(START + 40_000_000, 2).retry_after, Some(Micros(30_000_000)));
    assert!(!account.take(START + MINUTE - 1, 1).allowed);
    // An entry that is exactly one period old has expired.
    assert!(account.take(START + MINUTE, 1).allowed);
    assert_eq!(account.state.unwrap().len(), 3);
}

#[test]
fn a_burst_at_the_edge_of_a_window_does_not_pass_twice() {
    let mut account = Account::new(&[(100, MINUTE)]);
    let edge = START - START % MINUTE + MINUTE;
    let mut admitted = |from: u64| (0..100).filter(|n| account.take(from + n, 1).allowed).count();
    assert_eq!(admitted(edge - 1_000), 100);
    assert_eq!(admitted(edge + 1_000), 0);
}

#[test]
fn several_rates_share_one_log() {
    let mut account = Account::new(&[(1, 1_000_000), (5, MINUTE)]);
    for second in 0..5 {
        let now = START + second * 11_000_000;
        assert!(account.take(now, 1).allowed);
        let denied = account.take(now + 250_000, 1);
        assert_eq!(denied.limit, 1);
        // Once the minute's five units are spent, the wait is that of the minute.
        let wait = if second < 4 { 750_000 } else { 15_750_000 };
        assert_eq!(denied.retry_after, Some(Micros(wait)));
    }
    let last = START + 56_000_000;
    assert_eq!(account.decide(last, 1).retry_after, Some(Micros(4_000_000)));
    assert_eq!(account.decide(last, 0).reset_after, Micros(4_000_000));
}

#[test]
fn a_rate_that_cannot_decide_is_not_kept() {
    assert_eq!(log(&[(5, 10), (1, 1), (9, 10), (7, 4), (1, 1), (4, 8)]).numbers()[..], [5, 10, 4, 8, 1, 1]);
    assert_eq!(log(&[(5, 10), (5, 11), (60, 9)]).numbers()[..], [5, 11]);
}

#[test]
fn the_advertised_units_are_available_again_after_the_advertised_time() {
    assert_eq!(log(&[(100, MINUTE)]).advertised(), (100, 60));
    assert_eq!(log(&[(5, 1_500_000)]).advertised(), (5, 2));
    assert_eq!(log(&[(10, 1_000_000), (15, MINUTE)]).advertised(), (10, 60));
    assert_eq!(log(&[(10, 1_000_000), (20, MINUTE)]).advertised(), (10, 1));
}

#[test]
fn a_share_is_in_whole_units() {
    let shared = |rates: &[(u64, u64)], by| log(rates).shared_by(NonZeroU64::new(by).unwrap()).numbers();
    assert_eq!(shared(&[(100, MINUTE)], 3)[..], [33, MINUTE]);
    assert_eq!(shared(&[(1, 1_000_000), (5, MINUTE)], 2)[..], [2, MINUTE, 1, 2_000_000]);
    assert_eq!(shared(&[(100, LONGEST_PERIOD)], 3)[..], [33, LONGEST_PERIOD]);
    assert_eq!(shared(&[(2, LONGEST_PERIOD)], 3)[..], [1, LONGEST_PERIOD]);
}

#[test]
fn rates_that_an_entry_cannot_represent_are_rejected() {
    let error = |rates: &[Rate]| SlidingLog::new(rates).unwrap_err();
    assert_eq!(error(&[]), QuotaError::ZeroRate);
    assert_eq!(error(&[rate(1, 1); 17]), QuotaError::TooManyRates { most: 16 });
    assert_eq!(error(&[rate(1, 1), rate(1 << 19, 1)]), QuotaError::TooLarge { largest: 524_287 });
    let too_long = error(&[rate(1, LONGEST_PERIOD + 1)]);
    assert_eq!(too_long.to_string(), "the period is too long to slide; the longest that can is 407 days");
    assert!(SlidingLog::new(&[rate(MOST_UNITS, LONGEST_PERIOD)]).is_ok());
}
