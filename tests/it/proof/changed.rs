//! Limits whose numbers change while their states exist.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::kit::{self, Course, Move, Numbers, START, any_move, any_numbers, for_all, memory, take};
use super::rules::Pace;
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

fn any_pace() -> impl Strategy<Value = Pace> {
    let period = prop_oneof![Just(1_000_000_u64), 2..50_000_u64, Just(60_000_000)];
    (1..40_u64, period).prop_map(|(units, period)| Pace { units, period })
}

fn spending() -> impl Strategy<Value = Vec<(Move, u64)>> {
    prop::collection::vec((any_move(), 1..5_u64), 1..40)
}

/// The remaining units under the old numbers and, at the same instant, under the new ones; and the new limit.
fn changed(before: &Numbers, after: &Numbers, spending: &[(Move, u64)]) -> (u64, u64) {
    let (memory, old, new) = (memory(), before.policy("a"), after.policy("a"));
    let (mut course, mut last, mut charged) = (Course::behind(0), None, START);
    for &(step, cost) in spending {
        let now = course.go(step, before.period(), last.as_ref());
        let said = take(&memory, now, &old, cost);
        if said.allowed {
            charged = now;
        }
        last = Some(said);
    }
    // From then on units refill at the new rate.
    let left = take(&memory, charged, &old, 0);
    (left.limit - left.remaining, take(&memory, charged, &new, 0).remaining)
}

/// Spent units stay spent, rounded up to whole units, at most the new limit.
fn stays_spent(before: &Numbers, after: &Numbers, spending: &[(Move, u64)]) -> Result<(), TestCaseError> {
    let (spent, left) = changed(before, after, spending);
    let limit = after.quota().limit();
    prop_assert_eq!(
        left,
        limit.saturating_sub(spent),
        "{} were spent of {:?}, now {:?}",
        spent,
        before,
        after
    );
    Ok(())
}

#[test]
fn spent_units_survive_a_change_of_numbers() {
    let numbers = (any_pace(), 1..40_u64, any_pace(), 1..40_u64, 0..7_u8);
    for_all(800, &(numbers, spending()), |((old, burst, new, other, which), spending)| {
        let same_period = Pace { period: old.period, ..new };
        let (before, after) = match which {
            0 => (Numbers::Token(old, burst), Numbers::Token(new, other)),
            1 => (Numbers::Gcra(old, burst), Numbers::Gcra(new, other)),
            2 => (Numbers::Leaky(old, burst), Numbers::Leaky(new, other)),
            3 => (Numbers::Fixed(old), Numbers::Fixed(same_period)),
            4 => (Numbers::First(old), Numbers::First(same_period)),
            5 => (Numbers::Log(vec![old]), Numbers::Log(vec![same_period])),
            _ => (Numbers::Sliding(old, 1), Numbers::Sliding(same_period, 1)),
        };
        stays_spent(&before, &after, &spending)
    });
}

/// With `refill = "interval"`, spent tokens are missing until a tick of the new period, counted from the last tick of the old.
#[test]
fn missing_tokens_survive_a_change_of_numbers() {
    let numbers = (any_pace(), 1..40_u64, any_pace(), 1..40_u64);
    for_all(300, &(numbers, spending()), |((old, burst, new, other), spending)| {
        let same_period = Pace { period: old.period, ..new };
        stays_spent(&Numbers::Interval(old, burst), &Numbers::Interval(same_period, other), &spending)
    });
}

/// Windows of another period or alignment start empty; so do parts of another width.
#[test]
fn counts_of_other_windows_are_ignored() {
    let numbers = (any_pace(), any_pace(), 0..5_u8);
    for_all(300, &(numbers, spending()), |((old, new, which), spending)| {
        if old.period == new.period {
            return Ok(());
        }
        let even = Pace { period: old.period / 2 * 2, ..new };
        let (before, after) = match which {
            0 => (Numbers::Fixed(old), Numbers::Fixed(new)),
            1 => (Numbers::First(old), Numbers::First(new)),
            2 => (Numbers::Fixed(old), Numbers::First(Pace { period: old.period, ..new })),
            3 => (Numbers::Sliding(old, 1), Numbers::Sliding(new, 1)),
            _ => (Numbers::Sliding(Pace { period: even.period, ..old }, 1), Numbers::Sliding(even, 2)),
        };
        let (_, left) = changed(&before, &after, &spending);
        prop_assert_eq!(left, after.quota().limit());
        Ok(())
    });
}

/// Another algorithm starts with all its units.
#[test]
fn another_algorithm_starts_fresh() {
    for_all(300, &(any_numbers(), any_numbers(), spending()), |(before, after, spending)| {
        if before.quota().letter() == after.quota().letter() {
            return Ok(());
        }
        let (_, left) = changed(&before, &after, &spending);
        prop_assert_eq!(left, after.quota().limit());
        Ok(())
    });
}

/// A rate that goes up and a burst that goes down, in figures, on both stores.
#[test]
fn rates_and_bursts_change_in_both_stores() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let bucket = |units, burst| Numbers::Token(Pace { units, period: 1_000_000 }, burst).policy("a");
    let policies = [bucket(10, 100), bucket(40, 100), bucket(10, 30), bucket(3, 100)];
    let send = |policy, cost| stores.take(&policies, &[kit::charge(policy, 1, cost)])[0];
    assert_eq!(send(0, 95).remaining, 5);
    // At four times the rate, the missing units refill in a quarter of the time.
    assert_eq!((send(0, 0).reset_after.0, send(1, 0).reset_after.0), (9_500_000, 2_375_000));
    // A smaller bucket is empty, and no more than empty.
    assert_eq!((send(2, 0).remaining, send(2, 0).reset_after.0), (0, 3_000_000));
    // A slower rate continues from the state of the faster one: 45 of the 95 have been refilled.
    stores.set_clock(START + 4_500_000);
    assert_eq!(send(0, 0).remaining, 50);
    assert_eq!(send(1, 1).remaining, 99);
    assert_eq!(send(3, 0).remaining, 99);
}
