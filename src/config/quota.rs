//! From a rate and a burst to a quota, or to the nearest numbers that make one.

use std::ops::RangeInclusive;

use super::rate::{WrittenRate, written_period};
use super::reader::Item;
use crate::limit::{Algorithm, Quota, QuotaError, Rate};

/// The largest burst that may be asked for: beyond it no number is exact anyway.
const BURST: RangeInclusive<u64> = 0..=1 << 53;

/// How many other rates are tried on each side before giving up on a proposal.
const TRIES: u64 = 100_000;

/// Reads the burst and makes the quota.
pub(super) fn quota(
    algorithm: Algorithm,
    rate: Option<&WrittenRate<'_>>,
    burst: Option<Item<'_>>,
) -> Option<(Quota, Option<u64>)> {
    let written = match burst {
        Some(item) => Some(read_burst(algorithm, item)?),
        None => None,
    };
    let rate = rate?;
    match make(algorithm, rate.rate, written) {
        Ok(quota) => Some((quota, written)),
        Err(QuotaError::TooLarge { largest }) => too_large(algorithm, rate, burst, written, largest),
        Err(error) => rate.text.refuse(rate.text.error(error.to_string())),
    }
}

fn read_burst(algorithm: Algorithm, item: Item<'_>) -> Option<u64> {
    let burst = item.integer(&BURST)?;
    if burst == 0 && algorithm == Algorithm::TokenBucket {
        let problem = item.error("a bucket that holds nothing would refuse every request");
        return item.refuse(problem.help("`burst` is how many requests may come at once: at least 1"));
    }
    Some(burst)
}

fn make(algorithm: Algorithm, rate: Rate, burst: Option<u64>) -> Result<Quota, QuotaError> {
    match algorithm {
        Algorithm::TokenBucket => Quota::token_bucket(rate, burst.unwrap_or(rate.units())),
        Algorithm::Gcra => Quota::gcra(rate, burst.unwrap_or(0)),
        Algorithm::FixedWindow
        | Algorithm::SlidingLog
        | Algorithm::SlidingWindow
        | Algorithm::LeakyBucket
        | Algorithm::Concurrency => Err(QuotaError::ZeroCapacity),
    }
}

fn too_large<T>(
    algorithm: Algorithm,
    rate: &WrittenRate<'_>,
    burst: Option<Item<'_>>,
    written: Option<u64>,
    largest: u64,
) -> Option<T> {
    let problem = match burst {
        Some(item) => {
            let problem = rate.text.error("this rate can't be counted exactly with this burst");
            problem.related(item.span(), "with this burst")
        }
        None => rate.text.error("this rate can't be counted exactly"),
    };
    // What a gcra calls burst comes on top of the one request that is always there.
    let largest = if algorithm == Algorithm::Gcra { largest.checked_sub(1) } else { Some(largest) };
    let problem = match largest {
        Some(largest) if largest > 0 || algorithm == Algorithm::Gcra => {
            problem.help(format!("the largest that fits is `burst = {largest}`"))
        }
        _ => problem,
    };
    let nearest = nearest_rate(algorithm, rate.rate, written);
    rate.text.refuse(match nearest {
        Some(units) => {
            let period = if rate.text.from_env { "…" } else { written_period(&rate.text.value) };
            problem.help(format!("the nearest rate that fits is \"{units}/{period}\""))
        }
        None => problem.help("a rate of rounder numbers, or of a shorter period, fits"),
    })
}

/// The units nearest to those of `rate` that make a quota over the same period.
fn nearest_rate(algorithm: Algorithm, rate: Rate, burst: Option<u64>) -> Option<u64> {
    let fits = |units: u64| {
        let other = Rate::new(units, rate.period()).ok()?;
        make(algorithm, other, burst).ok().map(|_| units)
    };
    (1..=TRIES).find_map(|step| {
        let below = rate.units().checked_sub(step).and_then(fits);
        below.or_else(|| rate.units().checked_add(step).and_then(fits))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    const DAY: Micros = Micros(86_400_000_000);

    #[test]
    fn the_nearest_rate_is_the_nearest_that_fits() {
        let rate = Rate::new(1_000_001, DAY).unwrap();
        assert!(make(Algorithm::TokenBucket, rate, None).is_err());
        let units = nearest_rate(Algorithm::TokenBucket, rate, None).unwrap();
        assert!(units.abs_diff(1_000_001) <= 1);
        assert!(make(Algorithm::TokenBucket, Rate::new(units, DAY).unwrap(), None).is_ok());
    }

    #[test]
    fn where_nothing_near_fits_nothing_is_proposed() {
        let rate = Rate::new(1, Micros(u64::MAX)).unwrap();
        assert_eq!(nearest_rate(Algorithm::Gcra, rate, Some(1 << 53)), None);
    }
}
