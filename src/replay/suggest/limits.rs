//! Limits that belong together: against bursts, by the minute and by the day.

use serde::Serialize;

use super::peaks::DAY;
use crate::limit::{Align, Quota, QuotaError, Rate};
use crate::time::Micros;

/// What a suggested limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It bounds what arrives within seconds: a token bucket per second or minute with a burst of its own.
    Burst,
    /// It bounds what arrives within minutes: a token bucket of N a minute.
    Minute,
    /// It bounds what arrives within a day: a fixed window of N a day.
    Day,
}

/// A suggested limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitNumbers {
    /// What it is for.
    pub role: Role,
    /// Its rate.
    pub rate: Rate,
    /// What may be spent at once; the units of `rate` unless the role is [`Role::Burst`].
    pub burst: u64,
    /// The least burst or units for the clients of the fit, before headroom and rounding.
    pub least: u64,
}

impl Role {
    /// The name, as a suffix of the limit's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Minute => "minute",
            Self::Day => "day",
        }
    }
}

impl LimitNumbers {
    /// The limit as the limiter has it. Rejects numbers that the limiter can't count exactly.
    pub fn quota(&self) -> Result<Quota, QuotaError> {
        match self.role {
            Role::Burst | Role::Minute => Quota::token_bucket(self.rate, self.burst),
            Role::Day => Quota::fixed_window(self.rate, Align::Clock),
        }
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

/// Formats a rate per second, minute or day as the configuration has it.
pub(super) fn rate_text(rate: Rate) -> String {
    let period = match rate.period() {
        Micros::SECOND => "s",
        DAY => "day",
        _ => "minute",
    };
    format!("{}/{period}", rate.units())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_their_quota_and_text() {
        let of = |role, units, period, burst| {
            let rate = Rate::new(units, Micros(period)).unwrap();
            LimitNumbers { role, rate, burst, least: 1 }
        };
        let burst = of(Role::Burst, 5, 1_000_000, 60);
        let minute = of(Role::Minute, 100, 60_000_000, 100);
        let day = of(Role::Day, 8_000, 86_400_000_000, 8_000);
        assert_eq!([burst, minute, day].map(|limit| limit.rate_text()), ["5/s", "100/minute", "8000/day"]);
        assert_eq!(day.quota(), Quota::fixed_window(day.rate, Align::Clock));
    }
}
