//! Several proxies, whose clocks differ by up to a second, on one store.

use proptest::prelude::*;
use tidegate::limit::Decision;

use super::kit::{self, Move, Numbers, SECOND, START, any_timed, for_all, memory, take};

/// The clocks of three proxies: how far each is ahead of the true time.
fn any_clocks() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(0), Just(SECOND), 0..=SECOND], 3)
}

fn any_arrivals() -> impl Strategy<Value = Vec<(Move, usize, u64)>> {
    let step = kit::any_move().prop_map(|step| match step {
        // The true time does not run backwards.
        Move::By(step) => Move::By(step.abs()),
        other => other,
    });
    prop::collection::vec((step, 0..3_usize, kit::any_cost()), 1..80)
}

/// Each decision is that of one clock which shows the latest time of a charge, neither more generous nor stricter; its
/// `retry_after` and `reset_after` are by the clock of the requesting proxy.
#[test]
fn clock_skew_decides_by_the_latest_clock() {
    for_all(500, &(any_timed(), any_clocks(), any_arrivals()), |(numbers, ahead, arrivals)| {
        let (many, one, policy) = (memory(), memory(), numbers.policy("a"));
        let (mut time, mut stamp, mut last) = (START, 0, None);
        for (step, proxy, cost) in arrivals {
            time = step.from(time, numbers.period(), last.as_ref()).max(time);
            let now = time + ahead[proxy];
            let at = now.max(stamp);
            let (said, expected) = (take(&many, now, &policy, cost), take(&one, at, &policy, cost));
            let shown = |decision: &Decision| (decision.allowed, decision.remaining);
            prop_assert_eq!(shown(&said), shown(&expected));
            let later = |wait: u64| if wait > 0 { wait + at - now } else { 0 };
            prop_assert_eq!(said.reset_after.0, later(expected.reset_after.0));
            prop_assert_eq!(said.delay.0, later(expected.delay.0));
            prop_assert_eq!(
                said.retry_after.map(|wait| wait.0),
                expected.retry_after.map(|wait| later(wait.0))
            );
            if said.allowed && cost > 0 {
                stamp = at;
            }
            last = Some(said);
        }
        Ok(())
    });
}

/// In true time no interval admits more than its length, and the second of clock skew, allow.
#[test]
fn clock_skew_adds_no_units() {
    let pace = (1..30_u64, prop_oneof![1..50_000_u64, Just(1_000_000), Just(60_000_000)]);
    let numbers = (pace, 1..40_u64, any::<bool>());
    for_all(
        500,
        &(numbers, any_clocks(), any_arrivals()),
        |(((units, period), burst, bucket), ahead, arrivals)| {
            let pace = super::rules::Pace { units, period };
            let numbers = if bucket { Numbers::Token(pace, burst) } else { Numbers::Log(vec![pace]) };
            let (memory, policy) = (memory(), numbers.policy("a"));
            let (mut time, mut last, mut admitted) = (START, None, Vec::new());
            for (step, proxy, cost) in arrivals {
                time = step.from(time, period, last.as_ref()).max(time);
                let said = take(&memory, time + ahead[proxy], &policy, cost);
                if said.allowed {
                    admitted.push((time, u128::from(cost)));
                }
                last = Some(said);
            }
            for first in 0..admitted.len() {
                let mut sum = 0;
                for (end, cost) in &admitted[first..] {
                    sum += cost;
                    let span = end - admitted[first].0 + SECOND;
                    let (period, units) = (u128::from(period), u128::from(units));
                    let is_within = if bucket {
                        sum * period <= u128::from(burst) * period + u128::from(span) * units
                    } else {
                        u128::from(span) >= period || sum <= units
                    };
                    prop_assert!(is_within, "{} units in {} µs", sum, span);
                }
            }
            Ok(())
        },
    );
}
