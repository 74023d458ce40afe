//! Well-known examples of the algorithms, with all their decisions, on both stores.

use tidegate::limit::Decision;
use tidegate::time::Micros;

use super::kit::{self, Numbers, START};
use super::rules::Pace;
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

const MINUTE: u64 = 60_000_000;
const SECOND: u64 = 1_000_000;

/// The first whole minute after START.
const FULL_MINUTE: u64 = (START / MINUTE + 1) * MINUTE;

fn pace(units: u64, period: u64) -> Pace {
    Pace { units, period }
}

/// Plays arrivals of cost 1, in microseconds after a full minute, to both stores.
fn play(numbers: &[Numbers], arrivals: &[u64]) -> Vec<Vec<Decision>> {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let policies: Vec<_> =
        numbers.iter().enumerate().map(|(place, numbers)| numbers.policy(&format!("l{place}"))).collect();
    let charges: Vec<_> =
        (0..policies.len()).map(|place| kit::charge(u32::try_from(place).unwrap(), 1, 1)).collect();
    let ask = |&at: &u64| {
        stores.set_clock(FULL_MINUTE + at);
        stores.take(&policies, &charges).to_vec()
    };
    arrivals.iter().map(ask).collect()
}

fn allowed(said: &[Vec<Decision>]) -> Vec<bool> {
    said.iter().map(|all| all.iter().all(|decision| decision.allowed)).collect()
}

/// Three a minute: the fourth of a minute is denied until the next minute begins.
#[test]
fn three_a_minute_in_two_windows() {
    let arrivals = [0, 20, 40, 50, 59, 60, 61, 62, 63].map(|second| second * SECOND);
    let said = play(&[Numbers::Fixed(pace(3, MINUTE))], &arrivals);
    assert_eq!(allowed(&said), [true, true, true, false, false, true, true, true, false]);
    assert_eq!(said[3][0].retry_after, Some(Micros(10 * SECOND)));
    assert_eq!(said[4][0].retry_after, Some(Micros(SECOND)));
    assert_eq!(said[8][0].retry_after, Some(Micros(57 * SECOND)));
}

/// A hundred in the last second of a window and a hundred in the first of the next: the fixed window admits
/// twice its units within two seconds; the log denies the second hundred, until the first is a minute old.
#[test]
fn the_log_denies_a_double_burst_at_a_window_edge() {
    let arrivals: Vec<u64> = [59 * SECOND, 60 * SECOND].into_iter().flat_map(|at| vec![at; 100]).collect();
    let admitted = |numbers| {
        let said = play(&[numbers], &arrivals);
        (allowed(&said).into_iter().filter(|allowed| *allowed).count(), said)
    };
    assert_eq!(admitted(Numbers::Fixed(pace(100, MINUTE))).0, 200);
    let (count, said) = admitted(Numbers::Log(vec![pace(100, MINUTE)]));
    assert_eq!(count, 100);
    assert_eq!(said[199][0].retry_after, Some(Micros(59 * SECOND)));
    // The weighted window begins with all of the hundred before it.
    assert_eq!(admitted(Numbers::Sliding(pace(100, MINUTE), 1)).0, 100);
}

/// One a second and five a minute: after five, at 0, 14, 28, 42 and 56 s, the sixth at 56.5 s waits 3.5 s for
/// the minute and half a second for the second. `retry_after` is the longer wait; in whole seconds that is 4.
#[test]
fn one_a_second_and_five_a_minute_wait_four_seconds() {
    let mut arrivals = [0, 14, 28, 42, 56].map(|second| second * SECOND).to_vec();
    arrivals.push(56 * SECOND + SECOND / 2);
    arrivals.push(60 * SECOND - 1);
    arrivals.push(60 * SECOND);
    let (second, minute) = (pace(1, SECOND), pace(5, MINUTE));
    let said = play(&[Numbers::Log(vec![second, minute])], &arrivals);
    assert_eq!(allowed(&said), [true, true, true, true, true, false, false, true]);
    let wait = said[5][0].retry_after.unwrap();
    assert_eq!((wait, wait.ceil_secs()), (Micros(3_500_000), 4));
    // The same with two limits on one request: the stricter one decides.
    let said = play(&[Numbers::Log(vec![second]), Numbers::Log(vec![minute])], &arrivals);
    assert_eq!(allowed(&said), [true, true, true, true, true, false, false, true]);
    let waits: Vec<_> = said[5].iter().map(|decision| decision.retry_after.unwrap().0).collect();
    assert_eq!(waits, [500_000, 3_500_000]);
    let binding = tidegate::limit::binding(&said[5]).unwrap();
    assert_eq!(said[5][binding].retry_after.unwrap().ceil_secs(), 4);
}

/// GCRA, a hundred a second with five early: six at once, then one each 10 ms.
#[test]
fn a_gcra_of_100_a_second_with_burst_5() {
    let mut arrivals = vec![0; 7];
    arrivals.extend([
        9_999, 10_000, 10_000, 19_999, 20_000, 80_000, 80_000, 80_000, 80_000, 80_000, 80_000, 80_000,
    ]);
    let said = play(&[Numbers::Gcra(pace(100, SECOND), 5)], &arrivals);
    let expected = [
        vec![true; 6],
        vec![false, false, true, false, false, true],
        // 60 ms after the last all six are there again.
        vec![true; 6],
        vec![false],
    ];
    assert_eq!(allowed(&said), expected.concat());
    assert_eq!(said[0][0].limit, 6);
    assert_eq!(said[6][0].retry_after, Some(Micros(10_000)));
    assert_eq!(said[6][0].reset_after, Micros(60_000));
    assert_eq!(said[7][0].retry_after, Some(Micros(1)));
}

/// Ten a second, capacity a hundred: of 150 at once a hundred pass, and ten in each second after.
#[test]
fn ten_a_second_with_capacity_100_hit_by_150() {
    let mut arrivals = vec![0; 150];
    arrivals.extend(vec![SECOND; 15]);
    arrivals.extend(vec![20 * SECOND; 150]);
    let said = play(&[Numbers::Token(pace(10, SECOND), 100)], &arrivals);
    let allowed = allowed(&said);
    let count = |part: &[bool]| part.iter().filter(|allowed| **allowed).count();
    assert_eq!(count(&allowed[..150]), 100);
    assert!(allowed[..100].iter().all(|allowed| *allowed));
    assert_eq!(said[149][0].retry_after, Some(Micros(100_000)));
    assert_eq!(said[149][0].reset_after, Micros(10 * SECOND));
    assert_eq!(count(&allowed[150..165]), 10);
    // Full after ten seconds, and never more than full.
    assert_eq!(count(&allowed[165..]), 100);
}

/// Sixty a minute, 45 of them in the minute before. A quarter into this one three quarters of those count:
/// 33.75, so that 26 fit (59.75) and the 27th does not (60.75); it does when the weight has fallen to 33/45:
/// 16 s into the minute, a second later.
#[test]
fn the_weighted_window_part_way_into_a_minute() {
    let mut arrivals = vec![0; 45];
    arrivals.extend(vec![75 * SECOND; 27]);
    arrivals.extend([76 * SECOND - 1, 76 * SECOND]);
    let said = play(&[Numbers::Sliding(pace(60, MINUTE), 1)], &arrivals);
    let allowed = allowed(&said);
    assert!(allowed[..71].iter().all(|allowed| *allowed));
    assert_eq!(allowed[71..], [false, false, true]);
    assert_eq!(said[45][0].remaining, 25);
    assert_eq!(said[70][0].remaining, 0);
    assert_eq!(said[71][0].retry_after, Some(Micros(SECOND)));
    // All units are available again when this minute is over as well.
    assert_eq!(said[71][0].reset_after, Micros(105 * SECOND));
}

/// A queue of three that drains ten a second: the first goes on at once, the next three each 100 ms later, and
/// the fifth is denied until the queue has room.
#[test]
fn a_queue_of_three() {
    let arrivals = [0, 0, 0, 0, 0, 99_999, 100_000];
    let said = play(&[Numbers::Leaky(pace(10, SECOND), 3)], &arrivals);
    assert_eq!(allowed(&said), [true, true, true, true, false, false, true]);
    let delays: Vec<u64> = said.iter().map(|all| all[0].delay.0).collect();
    assert_eq!(delays, [0, 100_000, 200_000, 300_000, 0, 0, 300_000]);
    assert_eq!(said[4][0].retry_after, Some(Micros(100_000)));
}

/// Five each minute at intervals: all five come back at once, a minute after the first was taken.
#[test]
fn five_each_minute_at_intervals() {
    let arrivals = [0, 10, 20, 30, 40, 50, 59, 60, 61].map(|second| second * SECOND);
    let said = play(&[Numbers::Interval(pace(5, MINUTE), 5)], &arrivals);
    assert_eq!(allowed(&said), [true, true, true, true, true, false, false, true, true]);
    assert_eq!(said[5][0].retry_after, Some(Micros(10 * SECOND)));
    assert_eq!(said[8][0].remaining, 3);
}
