//! Raised quotas: the numbers of a quota times a factor, for one key and a time.

use std::fmt;
use std::num::NonZeroU32;

use super::bucket::Bucket;
use super::charge::PolicyId;
use super::interval::Interval;
use super::quota::Quota;
use super::rate::{QuotaError, Rate};
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::window::Window;

/// A factor of 1, in thousandths.
const ONE: u32 = 1_000;

/// How many times the numbers of a quota are raised: more than once, and at most 1,000 times. In thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor(NonZeroU32);

/// The policy that another one was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedFrom {
    /// The policy in the configuration.
    pub policy: PolicyId,
    /// How many times its numbers are raised; none for numbers that a client of the rate-limit service has sent.
    pub factor: Option<Factor>,
}

impl Factor {
    /// Parses a factor with an `x`, such as `2x` or `1.5x`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('x')?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
            return None;
        }
        let thousandths: u32 = format!("{decimals:0<3}").parse().ok()?;
        Self::from_thousandths(whole.parse::<u32>().ok()?.checked_mul(ONE)?.checked_add(thousandths)?)
    }

    /// A factor of so many thousandths; none if it is not more than 1 and at most 1,000.
    #[must_use]
    pub fn from_thousandths(thousandths: u32) -> Option<Self> {
        NonZeroU32::new(thousandths).filter(|it| (ONE + 1..=1_000 * ONE).contains(&it.get())).map(Self)
    }

    /// The factor in thousandths.
    #[must_use]
    pub fn thousandths(self) -> u32 {
        self.0.get()
    }

    /// So many units raised, rounded up to whole ones.
    fn units(self, units: u64) -> u64 {
        let raised = (u128::from(units) * u128::from(self.0.get())).div_ceil(u128::from(ONE));
        u64::try_from(raised).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.get() / ONE, self.0.get() % ONE);
        if rest == 0 {
            return write!(f, "{whole}x");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}x", decimals.trim_end_matches('0'))
    }
}

/// A quota with its rates and its capacity raised, in whole units. Its states are those of `quota`, so what was spent stays
/// spent.
///
/// # Errors
/// If the numbers are larger than the algorithm can count exactly.
pub(super) fn raised(quota: &Quota, factor: Factor) -> Result<Quota, QuotaError> {
    scaled(quota, |number| factor.units(number))
}

impl Quota {
    /// Its rate; of several the one with the longest period. A concurrency limit has none.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => Some(it.rate()),
            Self::IntervalBucket(it) => Some(it.rate()),
            Self::FixedWindow(it) => Some(it.rate()),
            Self::SlidingLog(it) => it.rates().next().copied(),
            Self::SlidingWindow(it) => Some(it.rate()),
            Self::Concurrency(_) => None,
        }
    }

    /// This quota with so many units of its rate, and its other numbers in proportion, rounded up.
    ///
    /// # Errors
    /// If the numbers are zero, or larger than the algorithm can count exactly.
    pub fn with_units(&self, units: u64) -> Result<Self, QuotaError> {
        let own = self.rate().ok_or(QuotaError::ZeroRate)?.units();
        scaled(self, |number| {
            let scaled = (u128::from(number) * u128::from(units)).div_ceil(u128::from(own.max(1)));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        })
    }
}

/// A quota whose rates and capacity are scaled.
fn scaled(quota: &Quota, scale: impl Fn(u64) -> u64) -> Result<Quota, QuotaError> {
    let rate = |rate: Rate| Rate::new(scale(rate.units()), rate.period());
    // The limit is one more than the configured number, which is scaled.
    let beyond_one = |it: &Bucket| {
        let beyond = scale(it.limit().saturating_sub(1));
        Bucket::new(rate(it.rate())?, beyond.saturating_add(1))
    };
    Ok(match quota {
        Quota::TokenBucket(it) => Quota::TokenBucket(Bucket::new(rate(it.rate())?, scale(it.limit()))?),
        Quota::IntervalBucket(it) => {
            Quota::IntervalBucket(Interval::new(rate(it.rate())?, scale(it.limit()))?)
        }
        Quota::Gcra(it) => Quota::Gcra(beyond_one(it)?),
        Quota::LeakyBucket(it) => Quota::LeakyBucket(beyond_one(it)?),
        Quota::FixedWindow(it) => Quota::FixedWindow(Window::new(rate(it.rate())?, it.align().clone())?),
        Quota::SlidingLog(it) => {
            let rates: Result<Vec<Rate>, QuotaError> = it.rates().map(|it| rate(*it)).collect();
            Quota::SlidingLog(SlidingLog::new(&rates?)?)
        }
        Quota::SlidingWindow(it) => Quota::SlidingWindow(SlidingWindow::new(rate(it.rate())?, it.buckets())?),
        Quota::Concurrency(it) => Quota::Concurrency(it.with_limit(scale(it.limit()))?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Align, Holder};
    use crate::time::{Micros, Timestamp};

    fn factor(text: &str) -> Factor {
        Factor::parse(text).unwrap()
    }

    #[test]
    fn factors_are_displayed_as_they_are_parsed() {
        for text in ["2x", "1.5x", "1.001x", "10.25x", "1000x"] {
            assert_eq!(factor(text).to_string(), text);
        }
        assert_eq!(factor("2.50x").to_string(), "2.5x");
        for wrong in
            ["", "x", "2", "1x", "0.5x", "1.0x", "-2x", "1000.001x", "1.0001x", ".5x", "2.x", "1e3x", "+2x"]
        {
            assert_eq!(Factor::parse(wrong), None, "{wrong}");
        }
        assert!(Factor::parse("99999999999x").is_none());
    }

    #[test]
    fn all_numbers_are_raised_in_whole_units() {
        let rate = |units| Rate::new(units, Micros(60_000_000)).unwrap();
        let twice = |quota: Result<Quota, QuotaError>| {
            let raised = raised(&quota.unwrap(), factor("1.5x")).unwrap();
            (raised.limit(), raised.advertised())
        };
        assert_eq!(twice(Quota::token_bucket(rate(60), 60)), (90, (90, 60)));
        assert_eq!(twice(Quota::token_bucket(rate(1), 1)), (2, (2, 60)));
        assert_eq!(twice(Quota::interval_bucket(rate(60), 60)), (90, (90, 60)));
        assert_eq!(twice(Quota::gcra(rate(60), 5)), (9, (9, 6)));
        assert_eq!(twice(Quota::leaky_bucket(rate(60), 0)), (1, (90, 60)));
        assert_eq!(twice(Quota::fixed_window(rate(60), Align::Clock)), (90, (90, 60)));
        assert_eq!(twice(Quota::sliding_log(&[rate(60)])), (90, (90, 60)));
        assert_eq!(twice(Quota::sliding_window(rate(60), 60)), (90, (90, 60)));
        assert_eq!(twice(Quota::concurrency(3, Micros::SECOND)), (5, (5, 1)));
        let too_large = Quota::concurrency(11, Micros::SECOND).unwrap();
        assert!(raised(&too_large, factor("1000x")).is_err());
    }

    #[test]
    fn what_was_spent_stays_spent() {
        let rate = Rate::new(10, Micros(60_000_000)).unwrap();
        let now = Timestamp(120_000_000);
        for quota in [
            Quota::token_bucket(rate, 10),
            Quota::interval_bucket(rate, 10),
            Quota::gcra(rate, 9),
            Quota::fixed_window(rate, Align::Clock),
            Quota::sliding_log(&[rate]),
            Quota::sliding_window(rate, 6),
        ] {
            let quota = quota.unwrap();
            let twice = raised(&quota, factor("2x")).unwrap();
            let remaining =
                |quota: &Quota, state| quota.step(state, now, 0, Holder::default()).decision.remaining;
            let spent = quota.step(None, now, 10, Holder::default()).next;
            let more = twice.limit() - quota.limit();
            assert_eq!(remaining(&twice, spent.as_ref()), more, "{quota:?}");
            // At the end of the raise, what was spent beyond the limit counts as much as the limit.
            let beyond = twice.step(spent.as_ref(), now, 5, Holder::default()).next;
            assert_eq!(remaining(&quota, beyond.as_ref()), 0, "{quota:?}");
        }
    }
}
