//! The least burst with which a token bucket admits all arrivals of a key.
//!
//! A bucket of rate r and burst b admits everything if and only if no interval of length t has more than b + r·t units: b + r·t
//! is an arrival curve of the flow (Le Boudec, Thiran: Network Calculus, Springer 2001, section 1.2). The least such b is the
//! largest level of a queue that is served at rate r (the same, proposition 1.2.4: the "virtual buffer"), here in the ticks
//! in which [`crate::limit::Bucket`] counts, so without rounding.

use super::arrival_log::Arrival;
use crate::limit::Rate;
use crate::time::{Micros, Timestamp};

const MINUTE: Micros = Micros(60_000_000);

/// The number of rates of a [`RateGrid`].
pub(super) const RATES: usize = 24;

/// The rates in ascending order for which bursts are computed: units, and seconds of the period.
const GRID: [(u64, u64); RATES] = [
    (1, 60),
    (2, 60),
    (3, 60),
    (5, 60),
    (10, 60),
    (20, 60),
    (30, 60),
    (1, 1),
    (2, 1),
    (3, 1),
    (5, 1),
    (8, 1),
    (10, 1),
    (15, 1),
    (20, 1),
    (30, 1),
    (50, 1),
    (80, 1),
    (100, 1),
    (150, 1),
    (200, 1),
    (300, 1),
    (500, 1),
    (1000, 1),
];

/// Rates from 1 a minute to 1,000 a second, about 1.5 to 2 times apart.
#[derive(Clone, Debug)]
pub(super) struct RateGrid {
    pub rates: [Rate; RATES],
    /// Ticks that drain each microsecond, for each rate.
    drains: [u64; RATES],
    /// Ticks of one unit, for each rate.
    units: [u64; RATES],
}

impl Default for RateGrid {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "no rate of the grid is zero")]
        let rates = GRID.map(|(units, seconds)| {
            Rate::new(units, Micros(seconds * 1_000_000)).expect("the rate is not zero")
        });
        Self { rates, drains: rates.map(|rate| rate.reduced().0), units: rates.map(|rate| rate.reduced().1) }
    }
}

impl RateGrid {
    /// The least burst that denies none of these arrivals, for each rate: in one pass, in which each rate has its debt.
    pub fn least_bursts(&self, arrivals: &[Arrival]) -> [u64; RATES] {
        let mut debts = [0_u64; RATES];
        let mut most = [0_u64; RATES];
        let mut last = Timestamp::default();
        for arrival in arrivals {
            let gap = arrival.at.since(last).0;
            last = arrival.at;
            for rate in 0..RATES {
                let drained = gap.saturating_mul(self.drains[rate]);
                let ticks = arrival.cost.saturating_mul(self.units[rate]);
                debts[rate] = debts[rate].saturating_sub(drained).saturating_add(ticks);
                most[rate] = most[rate].max(debts[rate]);
            }
        }
        std::array::from_fn(|rate| most[rate].div_ceil(self.units[rate]))
    }
}

/// The least burst with which a bucket of this rate denies none of these arrivals.
pub(super) fn least_burst(arrivals: &[Arrival], rate: Rate) -> u64 {
    let (drain, unit) = rate.reduced();
    let mut debt = 0_u64;
    let mut most = 0;
    let mut last = Timestamp::default();
    for arrival in arrivals {
        let drained = arrival.at.since(last).0.saturating_mul(drain);
        last = arrival.at;
        debt = debt.saturating_sub(drained).saturating_add(arrival.cost.saturating_mul(unit));
        most = most.max(debt);
    }
    most.div_ceil(unit)
}

/// The least N with which a bucket of rate N a minute and burst N, the default, denies none of these arrivals. `peak` is the
/// largest number of units in any minute: the bucket needs at most as many. It needs more than half of them, because it admits
/// less than 2·N in a minute.
pub(super) fn least_units_per_minute(arrivals: &[Arrival], peak: u64) -> u64 {
    let is_enough =
        |units: u64| Rate::new(units, MINUTE).is_ok_and(|rate| least_burst(arrivals, rate) <= units);
    let (mut low, mut high) = (peak / 2, peak);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::peaks;
    use super::*;
    use crate::limit::{Holder, Quota};

    fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
        let gap = prop_oneof![Just(0_u64), 0..50_000_u64, 0..3_000_000_u64, 0..200_000_000_u64];
        let cost = prop_oneof![4 => Just(1_u64), 1 => 1..20_u64];
        prop::collection::vec((gap, cost), 1..120).prop_map(|steps| {
            let mut at = 1_700_000_000_000_000;
            let arrival = |(gap, cost)| {
                at += gap;
                Arrival { at: Timestamp(at), cost }
            };
            steps.into_iter().map(arrival).collect()
        })
    }

    /// Whether the limiter's own bucket admits all arrivals.
    fn admits_all(arrivals: &[Arrival], rate: Rate, burst: u64) -> bool {
        let Ok(quota) = Quota::token_bucket(rate, burst) else { return false };
        let mut state = None;
        arrivals.iter().all(|arrival| {
            let step = quota.step(state.as_ref(), arrival.at, arrival.cost, Holder::default());
            state = step.next.or_else(|| state.take());
            step.decision.allowed
        })
    }

    proptest! {
        #[test]
        fn the_least_burst_denies_nothing_and_one_less_does(arrivals in arrivals(), units in 1..40_u64, period in 0..4_usize) {
            let period = [1_000_000, 7_000_001, 60_000_000, 86_400_000_000][period];
            let rate = Rate::new(units, Micros(period)).unwrap();
            let burst = least_burst(&arrivals, rate);
            prop_assert!(admits_all(&arrivals, rate, burst));
            prop_assert!(!admits_all(&arrivals, rate, burst - 1));
        }

        #[test]
        fn a_pass_over_all_rates_finds_the_burst_of_each(arrivals in arrivals()) {
            let grid = RateGrid::default();
            let bursts = grid.least_bursts(&arrivals);
            for (rate, burst) in grid.rates.into_iter().zip(bursts) {
                prop_assert_eq!(least_burst(&arrivals, rate), burst);
            }
            prop_assert!(bursts.is_sorted_by(|slow, fast| slow >= fast));
        }

        #[test]
        fn the_least_units_per_minute_deny_nothing_and_one_less_does(arrivals in arrivals()) {
            let units = least_units_per_minute(&arrivals, peaks::peak(&arrivals, MINUTE));
            prop_assert!(admits_all(&arrivals, Rate::new(units, MINUTE).unwrap(), units));
            let fewer = Rate::new(units - 1, MINUTE);
            prop_assert!(!fewer.is_ok_and(|rate| admits_all(&arrivals, rate, units - 1)));
        }
    }
}
