//! Rates that a table has in several keys, as other programs do: `limit = 5` and `window = "1m"`.

use super::limit_keys::LimitKeys;
use crate::config::item::Item;
use crate::config::rate::is_rate;
use crate::config::table::{Name, Table};

/// Names for the units of a rate.
const UNITS: [&str; 11] = [
    "limit",
    "limits",
    "requests",
    "max",
    "max_requests",
    "count",
    "quota",
    "units",
    "average",
    "hits",
    "requests_per_unit",
];
/// Names for the period of a rate.
const PERIODS: [&str; 12] = [
    "window",
    "period",
    "per",
    "interval",
    "duration",
    "within",
    "time",
    "timeframe",
    "every",
    "ttl",
    "unit",
    "window_size",
];
/// Names for a rate with a fixed period, and that period.
const RATES: [(&str, &str); 13] = [
    ("rps", "s"),
    ("qps", "s"),
    ("rpm", "minute"),
    ("rph", "hour"),
    ("per_second", "s"),
    ("per_minute", "minute"),
    ("per_hour", "hour"),
    ("requests_per_second", "s"),
    ("requests_per_minute", "minute"),
    ("second", "s"),
    ("minute", "minute"),
    ("hour", "hour"),
    ("day", "day"),
];

/// Rejects keys that have a part of the rate, and proposes the rate; returns whether there are any.
pub(super) fn reject(table: &mut Table<'_, LimitKeys>) -> bool {
    let found: Vec<(Name<'_>, Item<'_>)> =
        table.entries().into_iter().filter(|(name, _)| is_part(name.text)).collect();
    let Some((first, _)) = found.first() else { return false };
    let has_rate = table.rate().given().is_some_and(Item::is_string);
    let help = match proposal(table, &found) {
        _ if has_rate => "leave it out: `rate` has the units and the period".to_owned(),
        Some(rate) => format!("units and period are one key: rate = \"{rate}\""),
        None => "units and period are one key: rate = \"100/minute\"".to_owned(),
    };
    let problem = table.unknown(first).help(help);
    let problem = match found.get(1) {
        Some((second, _)) => problem.related(second.span.clone(), "the same"),
        None => problem,
    };
    table.reader.report(problem);
    if !has_rate {
        table.exclude("rate");
    }
    for part in UNITS.into_iter().chain(PERIODS).chain(RATES.map(|(name, _)| name)) {
        table.exclude(part);
    }
    true
}

fn is_part(name: &str) -> bool {
    UNITS.contains(&name) || PERIODS.contains(&name) || RATES.iter().any(|(own, _)| *own == name)
}

/// The rate that these keys have together.
fn proposal(table: &Table<'_, LimitKeys>, found: &[(Name<'_>, Item<'_>)]) -> Option<String> {
    let one_of =
        |names: &[&str]| found.iter().find(|(name, _)| names.contains(&name.text)).map(|(_, item)| *item);
    let whole = found.iter().find_map(|(name, item)| {
        let (_, unit) = RATES.iter().find(|(own, _)| *own == name.text)?;
        Some(format!("{}/{unit}", item.integer_text()?))
    });
    let units = one_of(&UNITS).or_else(|| table.rate().given()).and_then(Item::integer_text);
    let period = one_of(&PERIODS).and_then(|item| match item.integer_text() {
        Some(seconds) => Some(format!("{seconds}s")),
        None => item.text().map(str::to_owned),
    });
    let together = units.map(|units| format!("{units}/{}", period.as_deref().unwrap_or("minute")));
    whole.or(together).filter(|rate| is_rate(rate))
}
