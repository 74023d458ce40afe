//! Describes all of a history, chooses limits from its first part, and checks them on the rest.

use serde::Serialize;

use super::burst::RATES;
use super::check::{Check, check};
use super::distribution::{Distribution, Quantiles};
use super::history::{History, HistoryPart, KeyCount};
use super::limits::{LimitNumbers, Role, rate_text, units_per_minute};
use super::needs::{Measure, Needs};
use super::outliers::Remaining;
use super::peaks::WINDOWS;
use super::settings::{SuggestSettings, SuggestionSubject};
use super::shape::{ListedClient, listed};
use super::snippet::toml;
use super::warning::{Warning, allowed_exceptions};
use crate::limit::{Quota, Rate};
use crate::time::Micros;

/// Limits, why they were chosen, and what they would have denied.
#[derive(Clone, Debug, Serialize)]
pub struct Suggestion {
    /// For what they are.
    pub subject: SuggestionSubject,
    /// The settings for which it was chosen.
    pub settings: SuggestSettings,
    /// All of the time.
    pub time: HistoryPart,
    /// All requests that were counted.
    pub requests: u64,
    /// All clients.
    pub clients: KeyCount,
    /// How much clients do in each period, in all of the time.
    pub peaks: Vec<WindowPeaks>,
    /// Pairs of rate and burst that deny none or few of these clients, in all of the time.
    pub curve: Vec<CurvePoint>,
    /// The limits, which belong together.
    pub limits: Vec<SuggestedLimit>,
    /// The result of the limits on the time from which they were chosen.
    pub fit: Check,
    /// The result of the limits on the time that was held back; none if there is none.
    pub held_back: Option<Check>,
    /// What the limit of the configuration denies of the time that was held back, if there is one.
    pub current: Option<Check>,
    /// The clients with the most denied requests, then those with the most requests in a minute, in all of the time.
    pub listed: Vec<ListedClient>,
    /// Reasons to distrust it.
    pub warnings: Vec<Warning>,
    /// The limits as lines of a configuration.
    pub toml: String,
}

/// The most units of clients in any period of one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowPeaks {
    /// The length, such as `1 min`.
    pub window: &'static str,
    /// Quantiles over clients.
    pub clients: Quantiles,
    /// Quantiles over requests: each counts with the value of its client.
    pub requests: Quantiles,
    /// For a plot: values from 0 on, each with the number of clients that have a larger one.
    pub steps: Vec<(u64, u64)>,
    /// The most units that the suggested limits admit in such a period to a client that has not used them.
    pub suggested: Option<u64>,
    /// The most units that the limit of the configuration admits in the same way, if there is one.
    pub current: Option<u64>,
}

/// A rate, and the least bursts with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurvePoint {
    /// The rate, such as `5/s`.
    pub rate: String,
    /// The units of the rate in a minute.
    pub per_minute: u64,
    /// The least burst that denies no request.
    pub for_all: u64,
    /// The least burst that denies requests of at most the share of clients that may be denied.
    pub at_most: u64,
    /// For a plot: bursts, each with the number of clients that need a larger one.
    pub steps: Vec<(u64, u64)>,
}

/// A limit with its numbers as text.
#[derive(Clone, Debug, Serialize)]
pub struct SuggestedLimit {
    /// Its name.
    pub name: String,
    /// The purpose of the limit.
    pub role: Role,
    /// The rate, such as `5/s`.
    pub rate: String,
    /// The units that may be spent at once.
    pub burst: u64,
    /// The least burst or units that the clients of the fit need, before headroom and rounding.
    pub least: u64,
    /// Its numbers.
    #[serde(skip)]
    pub numbers: LimitNumbers,
}

/// Suggests limits for the keys of a history. `current` has the quota of the limit in the configuration, if any: then the
/// suggestion is other numbers for that limit. None if there are no clients to choose from.
#[must_use]
pub fn suggest(
    history: &History,
    subject: SuggestionSubject,
    settings: &SuggestSettings,
    current: &[Quota],
) -> Option<Suggestion> {
    let (time, (fit, held_back)) = (history.span()?, history.split(settings.fit)?);
    let present = current.first().filter(|_| subject.is_configured);
    let measure = Measure { present, ..Measure::default() };
    let all = Measure::default().part(history, time);
    let chosen = Remaining::choose(history, &measure, &measure.part(history, fit), settings);
    let limits = measure.limits(&chosen.needs, Some(settings.headroom));
    let quotas: Vec<Quota> = limits.iter().map(|limit| limit.quota.clone()).collect();
    let limits: Vec<SuggestedLimit> =
        limits.into_iter().map(|limit| SuggestedLimit::new(&subject, limit)).collect();
    let mut warnings = Warning::all(history, &subject, &chosen, settings);
    if limits.is_empty() && !chosen.needs.fits_no_units() {
        let needed = measure.shortest_part(&chosen.needs, settings.headroom);
        let part = chosen.needs.part.length();
        let too_short = |needed| Warning::NoLimit { part, needed, fit: settings.fit };
        warnings.push(needed.map_or(Warning::TooManyUnits, too_short));
    }
    let of_current = |part: HistoryPart| check(history, part, current);
    let checked = held_back.map(|part| check(history, part, &quotas));
    Some(Suggestion {
        settings: *settings,
        time,
        requests: history.requests(),
        clients: history.key_count(),
        peaks: peaks(&all, &quotas, current),
        curve: curve(&measure, &all, allowed_exceptions(settings.deny_at_most, all.clients)),
        toml: toml((&subject, settings), &limits, checked.as_ref(), present),
        limits,
        fit: check(history, fit, &quotas),
        current: held_back.filter(|_| !current.is_empty()).map(of_current),
        listed: listed(history, &quotas),
        warnings,
        held_back: checked,
        subject,
    })
}

impl SuggestedLimit {
    fn new(subject: &SuggestionSubject, numbers: LimitNumbers) -> Self {
        Self {
            name: numbers.role.limit_name(&subject.name),
            role: numbers.role,
            rate: rate_text(numbers.rate),
            burst: numbers.burst,
            least: numbers.least,
            numbers,
        }
    }
}

fn peaks(needs: &Needs, suggested: &[Quota], current: &[Quota]) -> Vec<WindowPeaks> {
    let of = |(distribution, (window, length)): (&Distribution, (&'static str, Micros))| WindowPeaks {
        window,
        clients: distribution.of_clients(),
        requests: distribution.of_requests(),
        steps: std::iter::once((0, needs.clients)).chain(distribution.steps()).collect(),
        suggested: admitted_in(suggested, length),
        current: admitted_in(current, length),
    };
    needs.peaks.iter().zip(WINDOWS).map(of).collect()
}

/// The curve, without rates beyond the first with which the least burst that denies none no longer falls.
fn curve(measure: &Measure<'_>, needs: &Needs, exceptions: u64) -> Vec<CurvePoint> {
    let point = |rate: Rate, place: usize| CurvePoint {
        rate: rate_text(rate),
        per_minute: units_per_minute(rate),
        for_all: needs.bursts[place].exceeded_by(0),
        at_most: needs.bursts[place].exceeded_by(exceptions),
        steps: needs.bursts[place].steps(),
    };
    let mut points: Vec<CurvePoint> =
        (0..RATES).map(|place| point(measure.grid.rates[place], place)).collect();
    let last = points.last().map_or(0, |last| last.for_all);
    let flat = points.iter().position(|point| point.for_all == last).unwrap_or_default();
    points.truncate(flat + 1);
    points
}

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
