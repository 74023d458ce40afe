//! Invariants of every algorithm, stated without its definition.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate::limit::{ChargeKind, Decision, Policy};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Move, Numbers, SECOND, any_jump, any_move, any_timed, for_all, memory, take};
use super::rules::Pace;

/// An admitted request: its time by the clock of the key, its cost, and the end of its delay.
struct Admitted {
    at: u64,
    cost: u64,
    release: u64,
}

/// Plays arrivals. The time of a key does not advance while a clock is behind the latest or is set back, so units refill only
/// as time passes.
fn play(numbers: &Numbers, mut course: Course, arrivals: &[(Move, u64)]) -> Vec<Admitted> {
    let (memory, policy) = (memory(), numbers.policy("a"));
    let (mut last, mut admitted) = (None, Vec::new());
    let (mut stamp, mut own) = (0, 0);
    // A window of parts moves by whole parts.
    let grid = if let Numbers::Sliding(pace, buckets) = numbers { pace.period / buckets } else { 1 };
    for &(step, cost) in arrivals {
        let now = course.go(step, numbers.period(), last.as_ref());
        let decision = take(&memory, now, &policy, cost);
        last = Some(decision);
        if cost == 0 {
            continue;
        }
        if stamp > now + SECOND {
            stamp -= (stamp - now) / grid * grid;
        }
        if decision.allowed {
            own += now.max(stamp) - stamp;
            stamp = now.max(stamp);
            admitted.push(Admitted { at: own, cost, release: now + decision.delay.0 });
        }
    }
    admitted
}

fn arrivals(moves: impl Strategy<Value = Move>) -> impl Strategy<Value = Vec<(Move, u64)>> {
    let cost = prop_oneof![8 => Just(1_u64), 2 => 0..9_u64];
    prop::collection::vec((moves, cost), 1..120)
}

fn any_pace() -> impl Strategy<Value = Pace> {
    let period = prop_oneof![Just(1_000_000_u64), 1..50_000_u64, Just(60_000_000)];
    (1..30_u64, period).prop_map(|(units, period)| Pace { units, period })
}

/// Asserts that what any interval of a history admits is bounded by its length.
fn in_every_stretch(
    admitted: &[Admitted],
    is_within: impl Fn(u64, u64) -> bool,
) -> Result<(), TestCaseError> {
    for (first, begin) in admitted.iter().enumerate() {
        let mut sum = 0;
        for end in &admitted[first..] {
            sum += end.cost;
            prop_assert!(is_within(sum, end.at - begin.at), "{} units in {} µs", sum, end.at - begin.at);
        }
    }
    Ok(())
}

/// Bucket and GCRA: at most burst + rate·t in every interval, also if clocks differ, step back or are set back.
#[test]
fn no_interval_admits_more_than_the_burst_and_the_refill() {
    let numbers = (any_pace(), 1..40_u64, 0..4_u8);
    for_all(800, &(numbers, arrivals(any_jump())), |((pace, burst, which), arrivals)| {
        let (numbers, burst) = match which {
            0 => (Numbers::Token(pace, burst), burst),
            1 => (Numbers::Gcra(pace, burst), burst + 1),
            2 => (Numbers::Leaky(pace, burst), burst + 1),
            // All units of a period may refill at once, twice in an interval that is shorter than a period.
            _ => (Numbers::Interval(pace, burst), burst + pace.units),
        };
        in_every_stretch(&play(&numbers, Course::any(), &arrivals), |sum, span| {
            u128::from(sum) * u128::from(pace.period)
                <= u128::from(burst) * u128::from(pace.period) + u128::from(span) * u128::from(pace.units)
        })
    });
}

/// Sliding log: no window of any of its periods admits more than the units of that rate, wherever it starts.
#[test]
fn no_window_of_a_log_admits_more_than_its_units() {
    let rates = prop::collection::vec(any_pace(), 1..4);
    for_all(800, &(rates, arrivals(any_jump())), |(rates, arrivals)| {
        let admitted = play(&Numbers::Log(rates.clone()), Course::any(), &arrivals);
        in_every_stretch(&admitted, |sum, span| {
            rates.iter().all(|rate| span >= rate.period || sum <= rate.units)
        })
    });
}

/// Sliding window: fewer than 2N in any period.
#[test]
fn no_period_of_a_sliding_window_admits_twice_its_units() {
    let numbers = (any_pace(), prop_oneof![Just(1_u64), 2..7_u64, Just(60)]);
    for_all(800, &(numbers, arrivals(any_jump())), |((pace, buckets), arrivals)| {
        let period = (pace.period / buckets).max(1) * buckets;
        let pace = Pace { period, ..pace };
        let admitted = play(&Numbers::Sliding(pace, buckets), Course::any(), &arrivals);
        in_every_stretch(&admitted, |sum, span| span >= period || sum < 2 * pace.units)
    });
}

/// Fixed windows: never more than N in one.
#[test]
fn no_fixed_window_admits_more_than_its_units() {
    for_all(500, &(any_pace(), arrivals(any_move())), |(pace, arrivals)| {
        let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
        for one in play(&Numbers::Fixed(pace), Course::behind(SECOND), &arrivals) {
            *windows.entry(one.at / pace.period).or_default() += one.cost;
        }
        prop_assert!(windows.values().all(|&sum| sum <= pace.units), "{:?}", windows);
        // Windows that a request opens: none of them reaches into the next.
        let (mut begin, mut sum) = (0, 0);
        for one in play(&Numbers::First(pace), Course::behind(SECOND), &arrivals) {
            if one.at >= begin + pace.period {
                (begin, sum) = (one.at, 0);
            }
            sum += one.cost;
            prop_assert!(sum <= pace.units);
        }
        Ok(())
    });
}

/// Leaky bucket: each request is forwarded no sooner than T after the previous one for each unit of that one, up to rounding to
/// a microsecond; and none waits longer than the queue allows.
#[test]
fn queued_requests_are_spaced() {
    for_all(500, &((any_pace(), 0..20_u64), arrivals(any_move())), |((pace, queue), arrivals)| {
        let numbers = Numbers::Leaky(pace, queue);
        let admitted = play(&numbers, Course::behind(SECOND), &arrivals);
        let (period, units) = (u128::from(pace.period), u128::from(pace.units));
        for (first, before) in admitted.iter().enumerate() {
            let mut ahead = u128::from(before.cost);
            for after in &admitted[first + 1..] {
                let apart = u128::from(after.release.saturating_sub(before.release) + 1);
                prop_assert!(apart * units > ahead * period, "{} µs after {} units", apart - 1, ahead);
                ahead += u128::from(after.cost);
            }
            // On a clock that is a little behind, the wait is as much longer.
            let wait = u128::from(before.release.saturating_sub(before.at));
            prop_assert!(wait * units < u128::from(queue) * period + units);
        }
        Ok(())
    });
}

/// `retry_after` of a denial and `reset_after` are exact; `remaining` is how many requests are allowed now.
#[test]
fn decisions_are_exact_to_the_microsecond() {
    let arrivals = prop::collection::vec((any_jump(), kit::any_cost()), 1..25);
    for_all(600, &(any_timed(), arrivals), |(numbers, arrivals)| {
        let policy = numbers.policy("a");
        let mut before: Vec<(u64, u64)> = Vec::new();
        let (mut course, mut last) = (Course::any(), None);
        for (step, cost) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            before.push((now, cost));
            // A history for each, since a call changes it.
            let again = || {
                let memory = memory();
                let said =
                    before.iter().map(|&(now, cost)| take(&memory, now, &policy, cost)).last().unwrap();
                (memory, said)
            };
            let (memory, said) = again();
            last = Some(said);
            // A peek does not change a state whose stamp is ahead of a clock that was set back, so the next peek gets the same
            // decision.
            if cost == 0 && before.iter().any(|(earlier, _)| *earlier > now + SECOND) {
                continue;
            }
            foretold(&policy, &memory, now, cost, &said)?;
            let (memory, _) = again();
            if said.remaining <= 300 {
                let more = (0..400_u64).take_while(|_| take(&memory, now, &policy, 1).allowed).count();
                prop_assert_eq!(u64::try_from(more).unwrap(), said.remaining);
            }
        }
        Ok(())
    });
}

pub(super) fn foretold(
    policy: &Policy,
    memory: &tidegate::store::Memory,
    now: u64,
    cost: u64,
    said: &Decision,
) -> Result<(), TestCaseError> {
    let look = |at: u64| take(memory, at, policy, 0);
    prop_assert_eq!(said.allowed, said.retry_after == Some(Micros::ZERO));
    prop_assert_eq!(said.reset_after == Micros::ZERO, said.remaining == said.limit);
    if said.reset_after.0 > 0 {
        let back = now + said.reset_after.0;
        prop_assert!(look(back - 1).remaining < said.limit);
        prop_assert_eq!(look(back).remaining, said.limit);
        prop_assert_eq!(look(back).reset_after, Micros::ZERO);
    }
    prop_assert_eq!(!said.allowed && said.retry_after.is_none(), cost > said.limit);
    if let (false, Some(Micros(wait))) = (said.allowed, said.retry_after) {
        prop_assert!(!take(memory, now + wait - 1, policy, cost).allowed);
        prop_assert!(take(memory, now + wait, policy, cost).allowed);
    }
    Ok(())
}

/// Concurrency: never more than N in flight, and exactly N as long as no lease expires.
#[test]
fn never_more_in_flight_than_there_are_slots() {
    let arrival = (prop::bool::weighted(0.6), 0..1_000_usize, 1..4_u64, 0..3_000_u64);
    for_all(400, &(1..20_u64, prop::collection::vec(arrival, 1..150)), |(limit, arrivals)| {
        let (memory, policies) = (memory(), [Numbers::Slots(limit, 30_000_000).policy("a")]);
        let mut flying: Vec<(u64, u64)> = Vec::new();
        let mut now = kit::START;
        for (place, (comes, which, cost, step)) in arrivals.into_iter().enumerate() {
            now += step;
            memory.clock().set(Timestamp(now));
            let sum = flying.iter().map(|(_, cost)| cost).sum::<u64>();
            if comes {
                let holder = u64::try_from(place).unwrap();
                let said = memory.take(&policies, &[kit::held(0, 1, cost, holder, ChargeKind::Take)])[0];
                prop_assert_eq!(said.allowed, sum + cost <= limit);
                if said.allowed {
                    flying.push((holder, cost));
                }
            } else if !flying.is_empty() {
                let (holder, cost) = flying.swap_remove(which % flying.len());
                // A second release has no effect.
                for _ in 0..2 {
                    let said =
                        memory.apply(&policies, &[kit::held(0, 1, cost, holder, ChargeKind::Release)])[0];
                    prop_assert_eq!(said.remaining, limit - (sum - cost));
                }
            }
        }
        Ok(())
    });
}

/// Keys have separate counts.
#[test]
fn keys_are_independent() {
    let arrivals = prop::collection::vec((any_move(), 0..5_u8, 1..3_u64), 1..60);
    for_all(200, &(any_timed(), arrivals), |(numbers, arrivals)| {
        let (together, policies) = (memory(), [numbers.policy("a")]);
        let mut apart = HashMap::new();
        let (mut course, mut last) = (Course::any(), None);
        for (step, key, cost) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            together.clock().set(Timestamp(now));
            let said = together.take(&policies, &[kit::charge(0, key, cost)])[0];
            let alone = take(apart.entry(key).or_insert_with(memory), now, &policies[0], cost);
            prop_assert_eq!(said, alone);
            last = Some(said);
        }
        Ok(())
    });
}
