//! How much limits admit in a period.

use crate::limit::{Quota, Rate};
use crate::time::Micros;

/// The most units that all of these limits together admit in a period of this length that starts with unused limits; none
/// without a limit that counts by time.
pub(super) fn admitted_in(quotas: &[Quota], period: Micros) -> Option<u64> {
    quotas.iter().filter_map(|quota| admitted(quota, period)).min()
}

fn admitted(quota: &Quota, period: Micros) -> Option<u64> {
    // Units that come back from time to time, a period of the limit after they were taken.
    let at_once = |units: u64, length: u64| units.saturating_mul(period.0.div_ceil(length.max(1)));
    match quota {
        Quota::TokenBucket(bucket) | Quota::Gcra(bucket) | Quota::LeakyBucket(bucket) => {
            Some(bucket.limit().saturating_add(refilled(bucket.rate(), period)))
        }
        Quota::IntervalBucket(interval) => {
            let rate = interval.rate();
            let ticks = period.0.div_ceil(rate.period().0.max(1)).saturating_sub(1);
            Some(interval.limit().saturating_add(rate.units().saturating_mul(ticks)))
        }
        Quota::FixedWindow(window) => Some(at_once(window.limit(), window.rate().period().0)),
        Quota::SlidingLog(log) => {
            let rates = log.numbers();
            rates.chunks_exact(2).map(|rate| at_once(rate[0], rate[1])).min()
        }
        Quota::SlidingWindow(window) => {
            let numbers = window.numbers();
            Some(at_once(window.limit(), numbers[1].saturating_mul(numbers[2])))
        }
        Quota::Concurrency(_) => None,
    }
}

/// The whole units that come back in a period at this rate.
fn refilled(rate: Rate, period: Micros) -> u64 {
    let units = u128::from(rate.units()) * u128::from(period.0) / u128::from(rate.period().0.max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Align, Holder};
    use crate::time::Timestamp;

    const MINUTE: Micros = Micros(60_000_000);

    fn rate(units: u64, period: Micros) -> Rate {
        Rate::new(units, period).unwrap()
    }

    /// What a limit admits of one request in each millisecond.
    fn played(quota: &Quota, period: Micros) -> u64 {
        let start = 1_767_571_200_000_000;
        let mut state = None;
        let mut admitted = 0;
        for at in (0..period.0).step_by(1_000) {
            let step = quota.step(state.as_ref(), Timestamp(start + at), 1, Holder::default());
            admitted += u64::from(step.decision.allowed);
            state = step.next.or_else(|| state.take());
        }
        admitted
    }

    #[test]
    fn limits_admit_as_much_as_is_computed() {
        let quotas = [
            Quota::token_bucket(rate(5, Micros::SECOND), 20).unwrap(),
            Quota::interval_bucket(rate(10, Micros(10_000_000)), 15).unwrap(),
            Quota::fixed_window(rate(100, MINUTE), Align::Clock).unwrap(),
            Quota::sliding_log(&[rate(100, MINUTE), rate(10, Micros::SECOND)]).unwrap(),
            Quota::sliding_window(rate(60, MINUTE), 6).unwrap(),
        ];
        for quota in &quotas {
            for period in [Micros::SECOND, Micros(10_000_000), MINUTE] {
                let (computed, played) = (admitted(quota, period).unwrap(), played(quota, period));
                // A bucket gets its last whole unit at the end of the period.
                assert!(computed.abs_diff(played) <= 1, "{quota:?}: {computed}, {played} in {period:?}");
            }
        }
    }

    #[test]
    fn the_strictest_limit_decides() {
        let quotas = [
            Quota::token_bucket(rate(5, Micros::SECOND), 20).unwrap(),
            Quota::fixed_window(rate(100, MINUTE), Align::Clock).unwrap(),
        ];
        assert_eq!(
            [Micros::SECOND, MINUTE].map(|period| admitted_in(&quotas, period)),
            [Some(25), Some(100)]
        );
        assert_eq!(admitted_in(&[Quota::concurrency(5, MINUTE).unwrap()], MINUTE), None);
    }
}
