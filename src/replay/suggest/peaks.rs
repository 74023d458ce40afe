//! The most units of a key in any period, wherever it starts.

use super::arrival_log::Arrival;
use crate::time::Micros;

/// The periods that are reported, with their names.
pub(super) const WINDOWS: [(&str, Micros); 6] = [
    ("1 s", Micros(1_000_000)),
    ("10 s", Micros(10_000_000)),
    ("1 min", Micros(60_000_000)),
    ("10 min", Micros(600_000_000)),
    ("1 h", Micros(3_600_000_000)),
    ("1 d", DAY),
];

/// A day of 24 hours.
pub(super) const DAY: Micros = Micros(86_400_000_000);

/// The most units in each of [`WINDOWS`].
pub(super) fn peaks(arrivals: &[Arrival]) -> [u64; WINDOWS.len()] {
    WINDOWS.map(|(_, length)| peak(arrivals, length))
}

/// The most units in any period of this length. An arrival that is exactly so old has left it, as in a sliding log.
pub(super) fn peak(arrivals: &[Arrival], length: Micros) -> u64 {
    let mut units = 0_u64;
    let mut most = 0;
    let mut leaving = arrivals.iter().peekable();
    for arrival in arrivals {
        units = units.saturating_add(arrival.cost);
        while let Some(old) = leaving.next_if(|old| arrival.at.since(old.at) >= length) {
            units = units.saturating_sub(old.cost);
        }
        most = most.max(units);
    }
    most
}

/// The most units in a day of UTC, as a `fixed_window` per day counts them.
pub(super) fn daily_peak(arrivals: &[Arrival]) -> u64 {
    let same_day = |one: &Arrival, next: &Arrival| one.at.0 / DAY.0 == next.at.0 / DAY.0;
    let days = arrivals.chunk_by(same_day);
    days.map(|day| day.iter().map(|arrival| arrival.cost).fold(0, u64::saturating_add))
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::{Align, Holder, Quota, Rate};
    use crate::time::Timestamp;

    fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
        let gap = prop_oneof![Just(0_u64), Just(500_000), Just(1_000_000), 0..40_000_000_000_u64];
        prop::collection::vec((gap, 1..4_u64), 1..80).prop_map(|steps| {
            let mut at = 1_700_000_000_000_000;
            let arrival = |(gap, cost)| {
                at += gap;
                Arrival { at: Timestamp(at), cost }
            };
            steps.into_iter().map(arrival).collect()
        })
    }

    fn admits_all(arrivals: &[Arrival], quota: &Quota) -> bool {
        let mut state = None;
        arrivals.iter().all(|arrival| {
            let step = quota.step(state.as_ref(), arrival.at, arrival.cost, Holder::default());
            state = step.next.or_else(|| state.take());
            step.decision.allowed
        })
    }

    proptest! {
        #[test]
        fn a_sliding_log_of_the_peak_denies_nothing_and_one_less_does(arrivals in arrivals()) {
            for ((name, length), peak) in WINDOWS.into_iter().zip(peaks(&arrivals)) {
                let log = |units| Quota::sliding_log(&[Rate::new(units, length).unwrap()]).unwrap();
                prop_assert!(admits_all(&arrivals, &log(peak)), "{name}");
                prop_assert!(peak == 1 || !admits_all(&arrivals, &log(peak - 1)), "{name}");
            }
        }

        #[test]
        fn a_fixed_window_of_the_daily_peak_denies_nothing_and_one_less_does(arrivals in arrivals()) {
            let window = |units| Quota::fixed_window(Rate::new(units, DAY).unwrap(), Align::Clock).unwrap();
            let peak = daily_peak(&arrivals);
            prop_assert!(admits_all(&arrivals, &window(peak)));
            prop_assert!(peak == 1 || !admits_all(&arrivals, &window(peak - 1)));
        }
    }

    #[test]
    fn an_arrival_that_is_as_old_as_the_period_has_left_it() {
        let at = |at| Arrival { at: Timestamp(at), cost: 1 };
        let arrivals = [at(0), at(999_999), at(1_000_000), at(1_999_999)];
        assert_eq!(peaks(&arrivals)[..2], [2, 4]);
    }
}
