//! What the clients of a history need of limits, and the limits that all but some of them fit.

use super::burst::{RATES, RateGrid, least_units_per_minute};
use super::distribution::Distribution;
use super::history::{History, HistoryPart};
use super::limits::{LimitNumbers, Role, with_headroom};
use super::peaks::{DAY, WINDOWS, daily_peak, peaks};
use crate::limit::Rate;
use crate::time::Micros;

const MINUTE_MICROS: u64 = 60_000_000;
/// The position of one minute in [`WINDOWS`].
const MINUTE: usize = 2;
/// Of all pairs of rate and burst that fit the clients, the one is chosen that admits the fewest units in this time.
const BURST_TIME: Micros = Micros(10_000_000);

/// Up to so many clients are few.
const FEW: u64 = 3;
/// How many times more than others an outlier needs.
const OUTLIER_FACTOR: u64 = 3;

/// A few clients that need far more than the others, and are not left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outliers {
    /// How many clients would have to be left out.
    pub left_out: u64,
    /// How many clients there are.
    pub clients: u64,
    /// The units by the minute that the limit needs with them.
    pub units: u64,
    /// And without them.
    pub others: u64,
}

/// What the clients of a part of a history need.
#[derive(Debug)]
pub(super) struct Needs {
    pub clients: u64,
    pub requests: u64,
    /// The length of the part.
    pub length: Micros,
    /// The most units in each of [`WINDOWS`].
    pub peaks: [Distribution; WINDOWS.len()],
    /// The least burst for each rate of the grid.
    pub bursts: [Distribution; RATES],
    /// The least N for a bucket of N a minute.
    minute: Distribution,
    /// The most units in a day of UTC.
    day: Distribution,
    pub grid: RateGrid,
}

impl Needs {
    /// Measures the clients of this part.
    pub fn measure(history: &History, part: HistoryPart) -> Self {
        let mut needs = Self {
            clients: 0,
            requests: 0,
            length: part.length(),
            peaks: Default::default(),
            bursts: std::array::from_fn(|_| Distribution::default()),
            minute: Distribution::default(),
            day: Distribution::default(),
            grid: RateGrid::default(),
        };
        history.visit(part, |key| {
            let requests = key.arrivals.len() as u64;
            needs.clients += 1;
            needs.requests += requests;
            let peaks = peaks(key.arrivals);
            for (distribution, peak) in needs.peaks.iter_mut().zip(peaks) {
                distribution.add(peak, requests);
            }
            for (distribution, burst) in needs.bursts.iter_mut().zip(needs.grid.least_bursts(key.arrivals)) {
                distribution.add(burst, requests);
            }
            needs.minute.add(least_units_per_minute(key.arrivals, peaks[MINUTE]), requests);
            needs.day.add(daily_peak(key.arrivals), requests);
        });
        needs
    }

    /// How many clients more than `exceptions` would have to be left out for the limit by the minute to fall to a third or
    /// less; none if these are many more.
    pub fn outliers(&self, exceptions: u64) -> Option<Outliers> {
        let units = self.minute.exceeded_by(exceptions);
        let most = (exceptions * 2 + FEW).min(self.clients.saturating_sub(1));
        let is_far_below = |count: &u64| self.minute.exceeded_by(*count) * OUTLIER_FACTOR <= units;
        let left_out = (exceptions + 1..=most).find(is_far_below)?;
        Some(Outliers { left_out, clients: self.clients, units, others: self.minute.exceeded_by(left_out) })
    }

    /// Limits each of which at most `exceptions` clients exceed. With `headroom`, so many times that and rounded up to round
    /// numbers; without, exactly that.
    pub fn limits(&self, exceptions: u64, headroom: Option<f64>) -> Vec<LimitNumbers> {
        let enlarge = |least: u64| headroom.map_or(least, |factor| with_headroom(least, factor)).max(1);
        let in_burst_time = |rate: Rate, burst: u64| {
            u128::from(burst) * u128::from(rate.period().0)
                + u128::from(rate.units()) * u128::from(BURST_TIME.0)
        };
        let bursts = self.bursts.iter().map(|bursts| bursts.exceeded_by(exceptions));
        // Products with the period of each rate are compared in the same unit: units in a minute.
        let pairs = self.grid.rates.into_iter().zip(bursts);
        let best = pairs.min_by_key(|(rate, burst)| {
            in_burst_time(*rate, *burst) * u128::from(MINUTE_MICROS / rate.period().0)
        });
        let mut limits = Vec::new();
        if let Some((rate, least)) = best {
            limits.push(LimitNumbers { role: Role::Burst, rate, burst: enlarge(least), least });
        }
        limits.extend(windowed(Role::Minute, self.minute.exceeded_by(exceptions), &enlarge));
        if self.length >= DAY {
            limits.extend(windowed(Role::Day, self.day.exceeded_by(exceptions), &enlarge));
        }
        without_redundant(limits)
    }
}

/// The limit of N a minute or day that has room for `least` units.
fn windowed(role: Role, least: u64, enlarge: &impl Fn(u64) -> u64) -> Option<LimitNumbers> {
    let period = if role == Role::Day { DAY } else { Micros(MINUTE_MICROS) };
    let units = enlarge(least);
    let rate = Rate::new(units, period).ok()?;
    Some(LimitNumbers { role, rate, burst: units, least })
}

/// Leaves out limits that never deny what those before them admit.
fn without_redundant(limits: Vec<LimitNumbers>) -> Vec<LimitNumbers> {
    let mut kept: Vec<LimitNumbers> = Vec::new();
    for limit in limits {
        if !kept.iter().any(|other| other.implies(&limit)) {
            kept.push(limit);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::arrival_log::Arrival;
    use super::*;
    use crate::limit::Key;
    use crate::time::Timestamp;

    /// Ten clients that send `burst` requests at once, each `pause` seconds, for two days, and one that sends 5 a second.
    fn history(burst: u64, pause: u64) -> History {
        let mut history = History::default();
        for second in 0..2 * 86_400 {
            let mut record = |client: u8, count: u64| {
                for _ in 0..count {
                    let arrival = Arrival { at: Timestamp(second * 1_000_000), cost: 1 };
                    history.record(Key([client; 16]), arrival, usize::MAX, || None);
                }
            };
            if second % pause == 0 {
                (0..10).for_each(|client| record(client, burst));
            }
            record(10, if second < 600 { 5 } else { 0 });
        }
        history
    }

    fn numbers(limits: &[LimitNumbers]) -> Vec<(Role, String, u64)> {
        limits.iter().map(|limit| (limit.role, limit.rate_text(), limit.burst)).collect()
    }

    #[test]
    fn limits_fit_all_but_the_exceptions() {
        let history = history(20, 600);
        let needs = Needs::measure(&history, history.span().unwrap());
        assert_eq!(needs.clients, 11);
        let exact = numbers(&needs.limits(1, None));
        // Twenty in ten minutes: 2 a minute suffice with a burst of 20. The bucket of 20 a minute adds nothing to that.
        let expected = [(Role::Burst, "2/minute".to_owned(), 20), (Role::Day, "2880/day".to_owned(), 2_880)];
        assert_eq!(exact, expected);
        let rounded = numbers(&needs.limits(1, Some(1.2)));
        // With a burst of 25 they admit at most 2,905 a day, fewer than the rounded limit by the day.
        assert_eq!(rounded, [(Role::Burst, "2/minute".to_owned(), 25)]);
        let all = needs.limits(0, None);
        assert_eq!((all[0].rate_text(), all[0].burst), ("5/s".to_owned(), 20));
    }

    #[test]
    fn limits_that_others_imply_are_left_out() {
        let limit = |role, units, period, burst| {
            let rate = Rate::new(units, Micros(period)).unwrap();
            LimitNumbers { role, rate, burst, least: 1 }
        };
        let burst = limit(Role::Burst, 1, 1_000_000, 40);
        let minute = |units| limit(Role::Minute, units, MINUTE_MICROS, units);
        let day = |units| limit(Role::Day, units, DAY.0, units);
        for (other, kept) in [(minute(59), 2), (minute(60), 1), (day(86_439), 2), (day(86_440), 1)] {
            assert_eq!(without_redundant(vec![burst, other]).len(), kept, "{other:?}");
        }
    }
}
