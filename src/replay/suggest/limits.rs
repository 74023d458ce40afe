//! Limits that belong together, against bursts, by the minute and by the day; and round numbers for them.

use serde::Serialize;

use super::peaks::DAY;
use crate::limit::{Align, Quota, Rate};
use crate::time::Micros;

/// The purpose of a suggested limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It bounds what arrives within seconds: a token bucket per second or minute with a burst of its own.
    Burst,
    /// It bounds what arrives within minutes: a token bucket of N a minute.
    Minute,
    /// It bounds what arrives within a day: a fixed window of N a day.
    Day,
    /// The limit of the configuration, with other units of its rate and its other numbers in proportion.
    Present,
}

/// A suggested limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitNumbers {
    /// The purpose of the limit.
    pub role: Role,
    /// Its rate.
    pub rate: Rate,
    /// The units that may be spent at once.
    pub burst: u64,
    /// The least burst or units for the clients of the fit, before headroom and rounding.
    pub least: u64,
    /// The limit as the limiter has it.
    pub quota: Quota,
}

impl Role {
    /// The name of the limit that has this role for the subject of this name.
    #[must_use]
    pub fn limit_name(self, subject: &str) -> String {
        match self {
            Self::Burst => format!("{subject}-burst"),
            Self::Minute => format!("{subject}-minute"),
            Self::Day => format!("{subject}-day"),
            Self::Present => subject.to_owned(),
        }
    }
}

impl LimitNumbers {
    /// A new limit; none of numbers that the limiter can't count exactly.
    pub(super) fn new(role: Role, rate: Rate, burst: u64, least: u64) -> Option<Self> {
        let quota = if role == Role::Day {
            Quota::fixed_window(rate, Align::Clock)
        } else {
            Quota::token_bucket(rate, burst)
        };
        Some(Self { role, rate, burst, least, quota: quota.ok()? })
    }

    /// The limit of the configuration with `units` of its rate; none of numbers that the limiter can't count exactly.
    pub(super) fn present(present: &Quota, units: u64, least: u64) -> Option<Self> {
        let quota = present.with_units(units).ok()?;
        Some(Self { role: Role::Present, rate: quota.rate()?, burst: quota.limit(), least, quota })
    }

    /// Whether all of its units come back within this time, so that a log of this length shows what it does.
    pub(super) fn refills_within(&self, time: Micros) -> bool {
        refills_within(self.rate, self.burst, time)
    }

    /// The time in which all of its units come back.
    pub(super) fn refill_time(&self) -> Micros {
        let micros = u128::from(self.burst) * u128::from(self.rate.period().0);
        Micros(u64::try_from(micros.div_ceil(u128::from(self.rate.units()))).unwrap_or(u64::MAX))
    }

    /// Whether `other` admits all that this limit admits. This limit is a token bucket.
    pub(super) fn implies(&self, other: &Self) -> bool {
        let in_period = |rate: Rate, period: Micros| {
            u128::from(rate.units()) * u128::from(period.0) / u128::from(rate.period().0)
        };
        let period = other.rate.period();
        if other.role == Role::Day {
            let most = in_period(self.rate, period) + u128::from(self.burst);
            return most <= u128::from(other.rate.units());
        }
        // Of two lines one is below the other at all times if it starts below and does not rise faster.
        self.burst <= other.burst && in_period(self.rate, period) <= u128::from(other.rate.units())
    }

    /// The rate as the configuration has it, such as `5/s`.
    #[must_use]
    pub fn rate_text(&self) -> String {
        rate_text(self.rate)
    }
}

/// The whole units of a rate in a minute.
pub(super) fn units_per_minute(rate: Rate) -> u64 {
    let units = u128::from(rate.units()) * 60_000_000 / u128::from(rate.period().0);
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// Whether so many units come back at this rate within this time.
pub(super) fn refills_within(rate: Rate, units: u64, time: Micros) -> bool {
    u128::from(units) * u128::from(rate.period().0) <= u128::from(time.0) * u128::from(rate.units())
}

/// Units of time as rates have them: the length in microseconds, the name, and the short form.
const UNITS: [(u64, &str, &str); 6] = [
    (DAY.0, "day", "d"),
    (3_600_000_000, "hour", "h"),
    (60_000_000, "minute", "m"),
    (1_000_000, "s", "s"),
    (1_000, "ms", "ms"),
    (1, "us", "us"),
];

/// Formats a rate as the configuration has it, such as `5/s` or `5/10m`.
pub(super) fn rate_text(rate: Rate) -> String {
    let (units, period) = (rate.units(), rate.period().0);
    let divides = |(length, ..): &&(u64, &str, &str)| period.is_multiple_of(*length);
    match UNITS.iter().find(divides) {
        Some((length, name, _)) if *length == period => format!("{units}/{name}"),
        Some((length, _, short)) => format!("{units}/{}{short}", period / length),
        None => format!("{units}/{period}us"),
    }
}

/// One to two digits, in ascending order over a decade.
const DECADE: [u64; 12] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120];
/// Numbers below the first decade.
const SMALL: [u64; 8] = [1, 2, 3, 4, 5, 6, 8, 10];

/// The least round number that is at least `number`: 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, …
pub(super) fn round_up(number: u64) -> u64 {
    let least = |numbers: &[u64], scale: u64| {
        numbers.iter().filter_map(|round| round.checked_mul(scale)).find(|round| *round >= number)
    };
    let scales = (0..18).map(|power| 10_u64.pow(power));
    least(&SMALL, 1).or_else(|| scales.into_iter().find_map(|scale| least(&DECADE, scale))).unwrap_or(number)
}

/// The least round number that is at least `factor` times the number.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn with_headroom(number: u64, factor: f64) -> u64 {
    // Doubles are exact far beyond the largest number of units that a limit can count.
    round_up((number as f64 * factor).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_their_quota_and_text() {
        let of = |role, units, period, burst| {
            LimitNumbers::new(role, Rate::new(units, Micros(period)).unwrap(), burst, 1).unwrap()
        };
        let burst = of(Role::Burst, 5, 1_000_000, 60);
        let minute = of(Role::Minute, 100, 60_000_000, 100);
        let day = of(Role::Day, 8_000, 86_400_000_000, 8_000);
        assert_eq!(Ok(&day.quota), Quota::fixed_window(day.rate, Align::Clock).as_ref());
        assert_eq!([burst, minute, day].map(|limit| limit.rate_text()), ["5/s", "100/minute", "8000/day"]);
        let text = |period| rate_text(Rate::new(3, Micros(period)).unwrap());
        assert_eq!([3_600_000_000, 600_000_000, 1].map(text), ["3/hour", "3/10m", "3/us"]);
    }

    #[test]
    fn a_present_limit_keeps_its_proportions() {
        let present = Quota::token_bucket(Rate::new(100, Micros(60_000_000)).unwrap(), 500).unwrap();
        let numbers = LimitNumbers::present(&present, 20, 17).unwrap();
        assert_eq!((&*numbers.rate_text(), numbers.burst, numbers.least), ("20/minute", 100, 17));
        assert!(numbers.refills_within(Micros(300_000_000)) && !numbers.refills_within(Micros(299_999_999)));
        assert_eq!(numbers.refill_time(), Micros(300_000_000));
        assert!(LimitNumbers::present(&present, u64::MAX, u64::MAX).is_none());
    }

    #[test]
    fn numbers_are_rounded_up_to_round_ones() {
        let rounded = [0, 1, 7, 9, 11, 13, 16, 61, 101, 121, 151, 8_001, 1_000_001].map(round_up);
        assert_eq!(rounded, [1, 1, 8, 10, 12, 15, 20, 80, 120, 150, 200, 10_000, 1_200_000]);
    }

    #[test]
    fn rounding_adds_at_most_a_half() {
        for number in 2..100_000 {
            let rounded = round_up(number);
            assert!(rounded >= number && rounded < 2 * number, "{number}: {rounded}");
        }
    }

    #[test]
    fn headroom_comes_before_rounding() {
        assert_eq!([with_headroom(50, 1.2), with_headroom(51, 1.2), with_headroom(1, 1.2)], [60, 80, 2]);
    }
}
