//! Rates: units per period.

use std::num::NonZeroU64;

use crate::time::Micros;

/// The largest product that a state may hold: every step must stay exact in a double, because
/// that is the only number that a Lua script has.
pub const MAX_TICKS: u64 = 1 << 53;

/// The largest debt, or wait in microseconds: by a clock that is a second behind, a wait is a second longer and must be
/// exact as well.
pub(super) const MAX_WAIT: u64 = MAX_TICKS - Micros::SECOND.0;

/// `units` each `period`, neither of them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    units: NonZeroU64,
    period: NonZeroU64,
}

/// Why a rate and a capacity can't make a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// A rate of zero units, or over no time.
    #[error("a rate needs at least one unit and a period of at least one microsecond")]
    ZeroRate,
    /// A capacity of zero would deny every request.
    #[error("a capacity of zero would deny every request")]
    ZeroCapacity,
    /// Capacity × reduced period is beyond 2^53, where doubles stop being exact.
    #[error("capacity × period can't be counted exactly; the largest capacity that can is {largest}")]
    TooLarge {
        /// The largest capacity that fits this rate; zero if none does.
        largest: u64,
    },
    /// A period that is too long for a sliding log or a sliding window.
    #[error("the period is too long to slide; the longest that can is {} days", longest.ceil_secs() / 86_400)]
    TooLong {
        /// The longest period that fits.
        longest: Micros,
    },
    /// More rates than one log takes.
    #[error("one log keeps at most {most} rates")]
    TooManyRates {
        /// How many it takes.
        most: usize,
    },
    /// Parts of a window that would not be whole microseconds, or none or too many of them.
    #[error("the period can't be cut into so many equal parts; it can be cut into {}", either(*below, *above))]
    Uneven {
        /// The nearest number of parts that fits, and is not larger if there is one.
        below: u64,
        /// The nearest number of parts that fits, and is not smaller if there is one.
        above: u64,
    },
}

fn either(below: u64, above: u64) -> String {
    if below == above { below.to_string() } else { format!("{below} or {above}") }
}

impl Rate {
    /// A rate of `units` each `period`.
    ///
    /// # Errors
    /// [`QuotaError::ZeroRate`] if either is zero.
    pub fn new(units: u64, period: Micros) -> Result<Self, QuotaError> {
        match (NonZeroU64::new(units), NonZeroU64::new(period.0)) {
            (Some(units), Some(period)) => Ok(Self { units, period }),
            _ => Err(QuotaError::ZeroRate),
        }
    }

    /// Units each period, as written.
    #[must_use]
    pub fn units(self) -> u64 {
        self.units.get()
    }

    /// The period, as written.
    #[must_use]
    pub fn period(self) -> Micros {
        Micros(self.period.get())
    }

    /// `(N', P')`: the same rate in lowest terms. `P'` ticks are one unit and `N'` ticks drain each
    /// microsecond, so that every state is a whole number.
    #[must_use]
    pub fn reduced(self) -> (u64, u64) {
        let (n, p) = (self.units.get(), self.period.get());
        let divisor = gcd(n, p);
        (n / divisor, p / divisor)
    }

    /// N per k·P, without rounding: the share of one of k `instances`.
    #[must_use]
    pub fn shared_by(self, instances: NonZeroU64) -> Self {
        Self { units: self.units, period: self.period.saturating_mul(instances) }
    }

    /// The share of one of k `instances` in whole units, so that all of them together never have more than N at once:
    /// N/k per P; or if that is zero, one per as many P as needed.
    #[must_use]
    pub fn whole_share(self, instances: NonZeroU64) -> Self {
        if self.units >= instances {
            return self.divided_by(instances);
        }
        let periods = NonZeroU64::new(instances.get().div_ceil(self.units())).unwrap_or(NonZeroU64::MIN);
        Self { units: NonZeroU64::MIN, period: self.period.saturating_mul(periods) }
    }

    /// N/k, but at least one, per P: the share of one of k `instances` if no longer period can be counted.
    #[must_use]
    pub fn divided_by(self, instances: NonZeroU64) -> Self {
        let units = NonZeroU64::new(self.units.get() / instances).unwrap_or(NonZeroU64::MIN);
        Self { units, period: self.period }
    }
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_rate() {
        assert_eq!(Rate::new(0, Micros::SECOND), Err(QuotaError::ZeroRate));
        assert_eq!(Rate::new(1, Micros::ZERO), Err(QuotaError::ZeroRate));
    }

    #[test]
    fn rates_reduce() {
        let rate = Rate::new(100, Micros(60_000_000)).unwrap();
        assert_eq!(rate.reduced(), (1, 600_000));
    }
}
