//! A sliding window against one that counts in fractions over a map of all its parts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const START: u64 = 1_790_000_000_000_000;
const MINUTE: u64 = 60_000_000;

type Numbers = (u64, u64, u64);

fn window((units, width, buckets): Numbers) -> SlidingWindow {
    SlidingWindow::new(Rate::new(units, Micros(width * buckets)).unwrap(), buckets).unwrap()
}

/// A limit, and the state of one key.
struct Account {
    quota: SlidingWindow,
    state: Option<PartCounts>,
}

impl Account {
    fn new(numbers: Numbers) -> Self {
        Self { quota: window(numbers), state: None }
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

/// The reference, from the definition: all parts that ever counted units.
#[derive(Clone, Default, PartialEq)]
struct Model {
    width: u64,
    stamp: u64,
    counts: BTreeMap<i128, i128>,
}

impl Model {
    fn moved(&self, now: u64, width: u64) -> Self {
        if self.width != width || self.counts.is_empty() {
            return Self { width, stamp: 0, counts: BTreeMap::new() };
        }
        if self.stamp <= now + 1_000_000 {
            return self.clone();
        }
        // By whole parts, so that none of them weighs less than before.
        let shift = (self.stamp - now) / width;
        let counts = self.counts.iter().map(|(part, count)| (part - i128::from(shift), *count)).collect();
        Self { width, stamp: self.stamp - shift * width, counts }
    }

    fn at(&self, now: u64) -> u64 {
        self.stamp.max(now)
    }

    /// The largest cost that fits: the largest c with estimate + c ≤ N.
    fn remaining(&self, (units, width, buckets): Numbers, now: u64) -> u64 {
        let (at, width, buckets) = (i128::from(self.at(now)), i128::from(width), i128::from(buckets));
        let part = at / width;
        let full: i128 = self.counts.range(part - buckets + 1..=part).map(|(_, count)| *count).sum();
        let old = self.counts.get(&(part - buckets)).copied().unwrap_or(0);
        let share = (part + 1) * width - at;
        let room = (i128::from(units) - full) * width - old * share;
        u64::try_from(room.div_euclid(width)).unwrap_or(0)
    }

    fn charge(&mut self, now: u64, cost: u64) {
        self.stamp = self.at(now);
        *self.counts.entry(i128::from(self.stamp / self.width)).or_default() += i128::from(cost);
    }

    fn cut(&mut self, buckets: u64) {
        let oldest = i128::from(self.stamp / self.width) - i128::from(buckets);
        self.counts.retain(|part, _| *part >= oldest);
    }
}

/// Plays arrivals to both, each under one of the windows.
fn play(policies: &[Numbers], start: u64, arrivals: Vec<(i64, u64, usize)>) -> Result<(), TestCaseError> {
    let (mut state, mut model, mut now) = (None, Model::default(), start);
    for (step, cost, policy) in arrivals {
        now = now.saturating_add_signed(step);
        let numbers = policies[policy % policies.len()];
        let limit = numbers.0;
        let Step { decision, next } = window(numbers).step(state.as_ref(), Timestamp(now), cost);
        let moved = model.moved(now, numbers.1);
        let was_moved = moved.stamp < model.stamp && !moved.counts.is_empty();
        let remaining = moved.remaining(numbers, now);
        prop_assert_eq!(decision.limit, limit);
        prop_assert_eq!(decision.allowed, cost <= remaining);
        prop_assert_eq!(decision.remaining, if cost <= remaining { remaining - cost } else { remaining });
        let mut after = moved.clone();
        if decision.allowed && cost > 0 {
            after.charge(now, cost);
            if policies.len() > 1 {
                after.cut(numbers.2);
            }
        }
        let reset = now + decision.reset_after.0;
        prop_assert_eq!(after.remaining(numbers, reset), limit);
        if reset > now {
            prop_assert!(after.remaining(numbers, reset - 1) < limit);
        }
        match decision.retry_after {
            None => prop_assert!(cost > limit),
            Some(Micros::ZERO) => prop_assert!(decision.allowed),
            Some(wait) => {
                prop_assert!(moved.remaining(numbers, now + wait.0) >= cost);
                prop_assert!(moved.remaining(numbers, now + wait.0 - 1) < cost);
            }
        }
        prop_assert_eq!(next.is_some(), if decision.allowed { cost > 0 } else { was_moved });
        if let Some(next) = next {
            prop_assert!(next.timeline.len() as u64 <= numbers.2 + 1 || !decision.allowed);
            (state, model) = (Some(next), after);
        }
    }
    Ok(())
}

fn any_numbers() -> impl Strategy<Value = Numbers> {
    let width = prop_oneof![1..9_u64, 2..500_u64, Just(16_667), Just(1_000_000), Just(MINUTE)];
    let buckets = prop_oneof![3 => Just(1_u64), 2 => Just(3), 3 => Just(60), 1 => Just(10_000)];
    (prop_oneof![4 => 1..9_u64, 3 => 1..300_u64, 1 => (1_u64 << 25)..1 << 27], width, buckets)
}

fn any_arrivals() -> impl Strategy<Value = Vec<(i64, u64, usize)>> {
    let step = prop_oneof![
        4 => Just(0_i64),
        4 => 0..30_i64,
        4 => 0..400_000_i64,
        3 => 0..30_000_000_i64,
        2 => 0..900_000_000_i64,
        1 => 0..1_i64 << 50,
        1 => -900_000..0_i64,
        1 => -50_000_000..-1_000_000_i64,
    ];
    let cost = prop_oneof![
        8 => Just(1_u64),
        1 => Just(0),
        3 => 0..10_u64,
        2 => 0..300_u64,
        2 => 0..1_u64 << 27,
        1 => Just(u64::MAX),
    ];
    prop::collection::vec((step, cost, 0..2_usize), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_decides_as_fractions_over_all_parts(
        numbers in any_numbers(),
        near_epoch: bool,
        arrivals in any_arrivals(),
    ) {
        play(&[numbers], if near_epoch { 3 } else { START }, arrivals)?;
    }

    #[test]
    fn counts_stay_as_long_as_the_width_does(
        (a, b) in (any_numbers(), any_numbers()),
        same_width: bool,
        arrivals in any_arrivals(),
    ) {
        play(&[a, if same_width { (b.0, a.1, b.2) } else { b }], START, arrivals)?;
    }

    #[test]
    fn counters_at_the_end_of_their_life_equal_none(
        numbers in any_numbers(),
        arrivals in prop::collection::vec((0..2_000_000_u64, 1..9_u64), 1..80),
    ) {
        let (mut kept, mut dropped, mut now) = (Account::new(numbers), Account::new(numbers), START);
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
fn the_previous_window_counts_by_the_share_that_is_left_of_it() {
    let mut account = Account::new((60, MINUTE, 1));
    let minute = START - START % MINUTE + MINUTE;
    assert_eq!(account.take(minute - 1, 45).remaining, 15);
    // A third of the way in, two thirds of 45 are left.
    assert_eq!(account.decide(minute + 20_000_000, 0).remaining, 30);
    assert_eq!(account.take(minute + 20_000_000, 30).remaining, 0);
    let denied = account.decide(minute + 20_000_000, 1);
    // 45 · s/60 s is no more than 29 once s is 38.666… s.
    assert_eq!(denied.retry_after, Some(Micros(1_333_334)));
    assert_eq!(denied.reset_after, Micros(100_000_000));
    assert!(account.take(minute + 21_333_334, 1).allowed);
}

#[test]
fn a_wait_may_end_in_a_later_part() {
    let mut account = Account::new((10, 1_000_000, 3));
    let second = START - START % 1_000_000;
    for (after, cost) in [(0, 4), (1, 4), (2, 2)] {
        assert!(account.take(second + after * 1_000_000, cost).allowed);
    }
    let now = second + 2_500_000;
    assert_eq!(account.decide(now, 1).retry_after, Some(Micros(750_000)));
    assert_eq!(account.decide(now, 4).retry_after, Some(Micros(1_500_000)));
    assert_eq!(account.decide(now, 5).retry_after, Some(Micros(1_750_000)));
    assert_eq!(account.decide(now, 10).retry_after, Some(Micros(3_500_000)));
    assert_eq!(account.decide(now, 11).retry_after, None);
}

#[test]
fn a_part_in_which_nothing_was_spent_takes_no_space() {
    let mut account = Account::new((1_000, 1_000_000, 60));
    for second in [0, 1, 50, 51, 59] {
        assert!(account.take(START + second * 1_000_000, 1).allowed);
        assert!(account.take(START + second * 1_000_000 + 5, 1).allowed);
    }
    assert_eq!(account.state.as_ref().unwrap().timeline.len(), 5);
    assert!(account.take(START + 100_000_000, 1).allowed);
    assert_eq!(account.state.as_ref().unwrap().timeline.len(), 4);
}

#[test]
fn a_period_is_cut_into_whole_microseconds() {
    let error = |period, buckets| {
        SlidingWindow::new(Rate::new(5, Micros(period)).unwrap(), buckets).unwrap_err().to_string()
    };
    let cut = "the period can't be cut into so many equal parts; it can be cut into ";
    assert_eq!(error(1_000_000, 60), format!("{cut}50 or 64"));
    assert_eq!(error(MINUTE, 0), format!("{cut}1"));
    assert_eq!(error(MINUTE, 70_000), format!("{cut}10000"));
    assert_eq!(error(999_983, 7), format!("{cut}1"));
    assert!(error(LONGEST_PERIOD + 1, 1).contains("407 days"));
}

#[test]
fn numbers_that_are_not_exact_are_rejected_with_the_largest_that_is() {
    let of = |units, period| SlidingWindow::new(Rate::new(units, Micros(period)).unwrap(), 1);
    for (period, largest) in [(1, MOST_UNITS), (86_400_000_000, (1 << 53) / 86_400_000_000)] {
        assert_eq!(of(largest + 1, period), Err(QuotaError::TooLarge { largest }));
        assert!(of(largest, period).is_ok());
    }
}

#[test]
fn a_share_is_in_whole_units() {
    let shared = |numbers, by| window(numbers).shared_by(NonZeroU64::new(by).unwrap()).numbers();
    assert_eq!(shared((100, 1_000_000, 60), 3)[..], [33, 1_000_000, 60]);
    assert_eq!(shared((2, 1_000_000, 60), 5)[..], [1, 3_000_000, 60]);
    assert_eq!(shared((100, LONGEST_PERIOD / 64, 64), 3)[..], [33, LONGEST_PERIOD / 64, 64]);
    assert_eq!(shared((2, LONGEST_PERIOD, 1), 3)[..], [1, LONGEST_PERIOD, 1]);
    assert_eq!(window((100, 1_000_000, 60)).advertised(), (100, 60));
}

#[test]
fn counters_of_another_width_equal_none() {
    let mut minute = Account::new((5, MINUTE, 1));
    minute.take(START, 5);
    let (parts, hour) = (minute.state.unwrap(), window((5, 60 * MINUTE, 1)));
    assert!(minute.quota.lifetime(&parts, Timestamp(START)) > Micros::ZERO);
    assert_eq!(hour.lifetime(&parts, Timestamp(START)), Micros::ZERO);
}
