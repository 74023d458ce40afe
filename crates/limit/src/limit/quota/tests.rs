//! Tests of what all algorithms have in common.

use super::*;

#[test]
fn advertised_windows_are_whole_seconds() {
    let bucket = |units, period, burst| {
        Quota::token_bucket(Rate::new(units, Micros(period)).unwrap(), burst).unwrap().advertised()
    };
    assert_eq!(bucket(100, 60_000_000, 500), (500, 300));
    assert_eq!(bucket(5, 60_000_000, 5), (5, 60));
    assert_eq!(bucket(100, 1_000_000, 5), (100, 1));
    assert_eq!(bucket(5, 100_000, 7), (50, 1));
    assert_eq!(bucket(7, 1_500_000, 1), (7, 2));
}

#[test]
fn letters_are_unique() {
    let letters: std::collections::HashSet<u8> = Quota::LETTERS.into_iter().collect();
    assert_eq!(letters.len(), Quota::LETTERS.len());
}

#[test]
fn the_limit_of_a_gcra_is_its_burst_and_one() {
    let rate = Rate::new(100, Micros::SECOND).unwrap();
    assert_eq!(Quota::gcra(rate, 5).unwrap().limit(), 6);
    assert_eq!(Quota::gcra(rate, 0).unwrap().limit(), 1);
}
