//! The quota that the numbers of a limit make, or a problem with the nearest numbers that would make one.

use std::time::Duration;

use super::item::Item;
use super::numbers::Numbers;
use super::rate::{WrittenRate, written_period};
use super::report::Problem;
use crate::limit::{Algorithm, Align, MAX_IN_FLIGHT, MAX_TICKS, Quota, QuotaError, Rate};
use crate::time::format_duration;

/// How many other rates are tried on each side before giving up on a proposal.
const TRIES: u64 = 100_000;

const ANY_RATE: &str = "algorithm = \"fixed_window\" counts every rate exactly";
/// A log of more entries than this gets a warning.
const LONG_LOG: u64 = 10_000;
/// The size of an entry of a log.
const ENTRY_BYTES: u64 = 8;
/// A longer wait in a queue gets a warning.
const LONG_WAIT: Duration = Duration::from_mins(1);

/// Makes the quota of these numbers; `None` if one is missing or wrong, which has been reported. If requests are `settled` by their
/// responses, a key needs room for what it may owe.
pub(super) fn quota(algorithm: Algorithm, numbers: &Numbers<'_>, settled: bool) -> Option<Quota> {
    let rates: Vec<Rate> = numbers.rates.iter().map(|rate| rate.rate).collect();
    let has_all =
        if algorithm == Algorithm::Concurrency { numbers.max_in_flight.is_some() } else { !rates.is_empty() };
    if !has_all {
        return None;
    }
    match make(algorithm, numbers, &rates) {
        Ok(quota) => {
            if settled {
                warn_of_room(algorithm, numbers, &quota);
            }
            Some(quota)
        }
        Err(error) => reject(algorithm, numbers, error, settled),
    }
}

fn make(algorithm: Algorithm, numbers: &Numbers<'_>, rates: &[Rate]) -> Result<Quota, QuotaError> {
    if algorithm == Algorithm::Concurrency {
        // `quota` calls this only if the number is present; `Quota` rejects 0.
        return Quota::concurrency(numbers.max_in_flight.unwrap_or(0), numbers.lease());
    }
    let rate = *rates.first().ok_or(QuotaError::ZeroRate)?;
    let burst = numbers.burst.map(|(burst, _)| burst);
    match algorithm {
        Algorithm::TokenBucket if numbers.is_interval() => {
            Quota::interval_bucket(rate, burst.unwrap_or(rate.units()))
        }
        Algorithm::TokenBucket => Quota::token_bucket(rate, burst.unwrap_or(rate.units())),
        Algorithm::Gcra => Quota::gcra(rate, burst.unwrap_or(0)),
        Algorithm::FixedWindow => Quota::fixed_window(rate, numbers.align()),
        Algorithm::SlidingLog => Quota::sliding_log(rates),
        Algorithm::SlidingWindow => Quota::sliding_window(rate, numbers.buckets()),
        Algorithm::LeakyBucket => Quota::leaky_bucket(rate, numbers.queue()),
        Algorithm::Concurrency => Quota::concurrency(MAX_IN_FLIGHT, numbers.lease()),
    }
}

/// The numbers of a limit in words, as the file has them.
pub(super) fn written(algorithm: Algorithm, numbers: &Numbers<'_>) -> Box<str> {
    let rates: Vec<&str> = numbers.rates.iter().map(|rate| &*rate.text.value).collect();
    let mut words = rates.join(" and ");
    let mut add = |text: String| {
        words.push_str(", ");
        words.push_str(&text);
    };
    if let Some((burst, _)) = numbers.burst {
        add(format!("burst {burst}"));
    }
    if algorithm == Algorithm::TokenBucket && numbers.is_interval() {
        add("refilled at intervals".to_owned());
    }
    if algorithm == Algorithm::FixedWindow {
        match numbers.align() {
            Align::Clock => {}
            Align::FirstRequest => add("from the first request".to_owned()),
            Align::Calendar(calendar) => add(format!("by the calendar of {}", calendar.zone())),
        }
    }
    // The defaults are not named: one bucket, and no queue.
    if let Some((buckets, _)) = numbers.buckets.filter(|(buckets, _)| *buckets > 1) {
        add(format!("buckets {buckets}"));
    }
    if let Some((queue, _)) = numbers.queue.filter(|(queue, _)| *queue > 0) {
        add(format!("queue {queue}"));
    }
    if algorithm == Algorithm::Concurrency {
        let lease = humantime::format_duration(numbers.lease().into());
        // Without the number `quota` returns `None`: the limit is invalid, and this text is not used.
        return format!("{} in flight, lease {lease}", numbers.max_in_flight.unwrap_or(0)).into();
    }
    words.into()
}

/// Warns of suspicious numbers of a table itself; `all` are those that apply, with the limit's own.
pub(super) fn warn(algorithm: Algorithm, own: &Numbers<'_>, all: &Numbers<'_>) {
    let by_calendar = algorithm == Algorithm::FixedWindow && matches!(all.align(), Align::Calendar(_));
    if !by_calendar {
        own.rates.iter().for_each(warn_of_unit);
        own.zone.as_ref().into_iter().for_each(|(_, item)| warn_of_zone(*item));
    }
    if algorithm == Algorithm::SlidingLog {
        own.rates.iter().max_by_key(|rate| rate.rate.units()).into_iter().for_each(warn_of_memory);
    }
    if own.queue.is_some() || !own.rates.is_empty() {
        warn_of_wait(all);
    }
}

/// A month or a year that is not one of the calendar has a fixed number of days.
fn warn_of_unit(rate: &WrittenRate<'_>) {
    let Some((unit, days)) = rate.fixed_days else { return };
    let item = rate.text.item;
    let problem = Problem::warning(item.span(), format!("a {unit} is {days} days here"));
    item.reader.report(problem.help(format!(
        "write \"{days} days\" if you mean that; for windows that follow the calendar, write algorithm = \
         \"fixed_window\" and a rate such as \"800/{unit}\""
    )));
}

fn warn_of_zone(item: Item<'_>) {
    let title = "this time zone changes nothing: no window of this limit follows the calendar";
    let help = "the calendar applies to rates per day, week, month or year, without a number, and with align = \"clock\"";
    item.reader.report(Problem::warning(item.span(), title).help(help));
}

fn warn_of_memory(rate: &WrittenRate<'_>) {
    let units = rate.rate.units();
    if units <= LONG_LOG {
        return;
    }
    let title = format!(
        "this log takes up to {} KB for each key: {units} entries of {ENTRY_BYTES} bytes",
        (units * ENTRY_BYTES).div_ceil(1_000),
    );
    let help =
        "algorithm = \"sliding_window\" with several `buckets` counts nearly as exactly in a few bytes";
    rate.text.item.reader.report(Problem::warning(rate.text.item.span(), title).help(help));
}

fn warn_of_wait(all: &Numbers<'_>) {
    let (Some((positions, item)), Some(rate)) = (all.queue, all.rates.first()) else { return };
    let Some(wait) = longest_wait(rate.rate, positions) else { return };
    let title = format!("the last request in this queue waits for {}", format_duration(wait));
    let help = "most clients give up before that, and their requests still fill the queue: a shorter queue denies at once";
    item.reader.report(Problem::warning(item.span(), title).help(help));
}

/// The wait at the end of a queue, if it is longer than most clients wait.
fn longest_wait(rate: Rate, positions: u64) -> Option<Duration> {
    let micros = u128::from(positions) * u128::from(rate.period().0) / u128::from(rate.units().max(1));
    let wait = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
    (wait > LONG_WAIT).then_some(wait)
}

/// The units that a key can owe beyond its limit, if they are bounded by the numbers of the limit.
fn room(quota: &Quota) -> Option<u64> {
    let [_, unit, limit] = quota.bucket()?.numbers();
    Some((MAX_TICKS / unit).saturating_sub(limit))
}

/// Whether a key can owe as many units as the limit has.
fn has_room(quota: &Quota) -> bool {
    room(quota).is_none_or(|room| room >= quota.limit())
}

/// Warns of a bucket that has little room for what a response charges in addition.
fn warn_of_room(algorithm: Algorithm, numbers: &Numbers<'_>, quota: &Quota) {
    let (Some(room), Some(rate)) = (room(quota).filter(|_| !has_room(quota)), numbers.rates.first()) else {
        return;
    };
    let title =
        format!("a key can owe only {room} units: the response may cost more, and the rest is not charged");
    let problem = Problem::warning(rate.text.item.span(), title);
    let problem = match nearest_rate(algorithm, numbers, rate.rate, true) {
        Some(units) => {
            problem.help(format!("the nearest rate with room for debts is \"{units}/{}\"", period(rate)))
        }
        None => problem,
    };
    rate.text.item.reader.report(problem.help(ANY_RATE));
}

fn reject<T>(algorithm: Algorithm, numbers: &Numbers<'_>, error: QuotaError, settled: bool) -> Option<T> {
    let rate = numbers.rates.first()?;
    match error {
        QuotaError::TooLarge { largest } if has_ticks(algorithm) => {
            let problem = too_large(algorithm, numbers, rate, largest);
            let nearest = nearest_rate(algorithm, numbers, rate.rate, settled);
            let problem = match nearest {
                Some(units) => {
                    problem.help(format!("the nearest rate that fits is \"{units}/{}\"", period(rate)))
                }
                None => problem.help("a rate of rounder numbers, or of a shorter period, fits"),
            };
            rate.text.reject(if settled { problem.help(ANY_RATE) } else { problem })
        }
        QuotaError::TooLarge { largest } => {
            let rate = numbers.rates.iter().find(|rate| rate.rate.units() > largest).unwrap_or(rate);
            let problem = rate.text.error(format!("a {} can't count so many", algorithm.name()));
            let period = period(rate);
            rate.text.reject(problem.help(format!("the most that fits is \"{largest}/{period}\"")))
        }
        QuotaError::TooLong { longest } => {
            let rate = numbers.rates.iter().max_by_key(|rate| rate.rate.period()).unwrap_or(rate);
            let days = longest.ceil_secs() / 86_400;
            let problem = rate.text.error(format!("a {} can't have so long a period", algorithm.name()));
            rate.text.reject(problem.help(format!("the longest period that fits is {days} days")))
        }
        QuotaError::TooManyRates { most } => {
            let extra = numbers.rates.get(most).unwrap_or(rate);
            extra.text.reject(
                extra.text.error(format!("this is one rate too many: a sliding_log has at most {most}")),
            )
        }
        QuotaError::Uneven { below, above } => {
            let problem = rate.text.error("this period can't be divided into so many equal buckets");
            let problem = match numbers.buckets {
                Some((_, item)) => problem.related(item.span(), "the number of buckets"),
                None => problem,
            };
            let nearest = if below == above {
                format!("the nearest number that fits is {below}")
            } else {
                format!("the nearest numbers that fit are {below} and {above}")
            };
            rate.text.reject(problem.help(nearest))
        }
        QuotaError::ZeroRate | QuotaError::ZeroCapacity => {
            rate.text.reject(rate.text.error(error.to_string()))
        }
    }
}

/// Whether the algorithm counts in ticks, so that rate and capacity must fit together.
fn has_ticks(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket)
}

fn too_large(algorithm: Algorithm, numbers: &Numbers<'_>, rate: &WrittenRate<'_>, largest: u64) -> Problem {
    let (key, number) = match algorithm {
        Algorithm::LeakyBucket => ("queue", numbers.queue),
        _ => ("burst", numbers.burst),
    };
    let problem = match number {
        Some((_, item)) => {
            let problem = rate.text.error(format!("this rate can't be counted exactly with this {key}"));
            problem.related(item.span(), format!("with this {key}"))
        }
        None => rate.text.error("this rate can't be counted exactly"),
    };
    // A gcra and a leaky bucket allow one request in addition to `burst` and `queue`.
    let least = u64::from(algorithm == Algorithm::TokenBucket);
    let largest = largest.checked_sub(1 - least).filter(|largest| *largest >= least);
    match largest {
        Some(largest) => problem.help(format!("the largest that fits is `{key} = {largest}`")),
        None => problem,
    }
}

fn period<'r>(rate: &'r WrittenRate<'_>) -> &'r str {
    if rate.text.from_env { "…" } else { written_period(&rate.text.value) }
}

/// The units nearest to those of `rate` that make a quota over the same period, in which a `settled` key has room for what it may owe.
fn nearest_rate(algorithm: Algorithm, numbers: &Numbers<'_>, rate: Rate, settled: bool) -> Option<u64> {
    let fits = |units: u64| {
        let other = Rate::new(units, rate.period()).ok()?;
        make(algorithm, numbers, &[other]).ok().filter(|quota| !settled || has_room(quota)).map(|_| units)
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
        let numbers = Numbers::default();
        let rate = Rate::new(1_000_001, DAY).unwrap();
        assert!(make(Algorithm::TokenBucket, &numbers, &[rate]).is_err());
        let units = nearest_rate(Algorithm::TokenBucket, &numbers, rate, false).unwrap();
        assert!(units.abs_diff(1_000_001) <= 1);
        assert!(make(Algorithm::TokenBucket, &numbers, &[Rate::new(units, DAY).unwrap()]).is_ok());
    }

    #[test]
    fn the_nearest_rate_of_a_settled_limit_has_room_for_debts() {
        let numbers = Numbers::default();
        // 52,127 a day is exact, but a unit is 86,400,000,000 ticks: 104,249 units are the most that can be owed.
        for (units, nearest) in [(5_000_001, 5_000_000), (52_127, 52_126)] {
            let rate = Rate::new(units, DAY).unwrap();
            let found = nearest_rate(Algorithm::TokenBucket, &numbers, rate, true).unwrap();
            assert_eq!(found, nearest, "{units}");
            let quota = make(Algorithm::TokenBucket, &numbers, &[Rate::new(found, DAY).unwrap()]).unwrap();
            assert!(has_room(&quota), "{found}");
        }
    }

    #[test]
    fn where_nothing_near_fits_nothing_is_proposed() {
        let rate = Rate::new(1, Micros(u64::MAX)).unwrap();
        assert_eq!(nearest_rate(Algorithm::TokenBucket, &Numbers::default(), rate, false), None);
    }
}
