//! Rates as the file writes them: `100/minute`, `5/s`, `5/10m`, `5/10 minutes`.

use super::item::{Item, TextItem};
use super::rate_form::{meant, with_burst, with_key};
use crate::http1::is_digits;
use crate::limit::{CalendarUnit, Rate};
use crate::suggest::nearest;
use crate::time::Micros;

const DAY: u64 = 86_400_000_000;
const WEEK: u64 = 7 * DAY;
/// Without calendar windows, a month has 30 days and a year 365.
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;

/// Units of time with their microseconds: the names first, then the short forms.
const UNITS: [(&str, u64); 22] = [
    ("microsecond", 1),
    ("millisecond", 1_000),
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", DAY),
    ("week", WEEK),
    ("month", MONTH),
    ("year", YEAR),
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("sec", 1_000_000),
    ("m", 60_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("hr", 3_600_000_000),
    ("d", DAY),
    ("w", WEEK),
    ("mo", MONTH),
    ("y", YEAR),
    ("yr", YEAR),
];

const FORM: &str = "write it as units each period: \"100/minute\", \"5/s\", \"5/10 minutes\"";

/// A rate and how it was written.
#[derive(Clone)]
pub(super) struct WrittenRate<'a> {
    pub rate: Rate,
    pub text: TextItem<'a>,
    /// The unit of its period, where that is one of the calendar and has no number.
    pub calendar: Option<CalendarUnit>,
    /// A month or a year with the number of days that it counts as.
    pub fixed_days: Option<(&'static str, u64)>,
}

/// A parsed rate.
#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    rate: Rate,
    unit: u64,
    has_number: bool,
}

/// Why a text is not a rate.
#[derive(Debug, PartialEq, Eq)]
enum RateError {
    Form,
    ZeroUnits,
    ZeroPeriod,
    Unit(String),
    TooLarge,
}

/// Reads a rate.
pub(super) fn rate(item: Item<'_>) -> Option<WrittenRate<'_>> {
    let help = item.integer_text().map_or_else(|| FORM.to_owned(), without_period);
    let text = item.string_like("a rate", &help)?;
    let Parsed { rate, unit, has_number } = match parse(&text.value) {
        Ok(parsed) => parsed,
        Err(error) => return invalid_rate(&text, &error),
    };
    let calendar = match unit {
        DAY => Some(CalendarUnit::Day),
        WEEK => Some(CalendarUnit::Week),
        MONTH => Some(CalendarUnit::Month),
        YEAR => Some(CalendarUnit::Year),
        _ => None,
    };
    let fixed_days = match unit {
        MONTH => Some(("month", 30)),
        YEAR => Some(("year", 365)),
        _ => None,
    };
    Some(WrittenRate { rate, text, calendar: calendar.filter(|_| !has_number), fixed_days })
}

fn invalid_rate<T>(text: &TextItem<'_>, error: &RateError) -> Option<T> {
    let quoted = text.quoted();
    let problem = match error {
        RateError::Form => text.error(format!("{quoted} is not a rate")).help(cure(text)),
        RateError::ZeroUnits => text.error("a rate of zero would deny every request").help(
            "allow at least one request each period, such as \"1/minute\"; to deny everything, give the \
             route `respond = { status = 403 }`",
        ),
        RateError::ZeroPeriod => {
            text.error("a rate needs a period longer than zero").help("write \"1/s\" or \"5/10 minutes\"")
        }
        RateError::Unit(unit) => {
            let problem = if text.from_env {
                text.error("this value has no unit of time after its slash")
            } else {
                text.error(format!("`{unit}` is not a unit of time"))
            };
            let names = UNITS.iter().map(|(name, _)| *name);
            match nearest(unit.trim_end_matches('s'), names) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem.help(
                    "the units are us, ms, s, m, h, d, w, mo, y, or second, minute, hour, day, week, month, year",
                ),
            }
        }
        RateError::TooLarge => text
            .error(format!("{quoted} is more than can be counted exactly"))
            .help("the units, and the microseconds of the period, must stay below 2^53"),
    };
    text.reject(problem)
}

/// How to write a rate that has another form.
fn cure(text: &TextItem<'_>) -> String {
    let is_number = !text.from_env && is_digits(text.value.trim().as_bytes());
    if is_number {
        without_period(text.value.trim())
    } else {
        proposal(text).unwrap_or_else(|| FORM.to_owned())
    }
}

fn without_period(units: &str) -> String {
    format!("add its period, in quotes: \"{units}/s\", \"{units}/minute\" or \"{units}/hour\"")
}

/// The rate that a text may mean, in the right form. Messages do not repeat values from the environment.
fn proposal(text: &TextItem<'_>) -> Option<String> {
    let right = |text: &str| {
        if is_rate(text) { Some(text.to_owned()) } else { meant(text).filter(|text| is_rate(text)) }
    };
    let written = Some(&*text.value).filter(|_| !text.from_env)?;
    if let Some((rate, burst)) = with_burst(written) {
        return right(rate).map(|rate| format!("write \"{rate}\", and as a key of its own: burst = {burst}"));
    }
    if let Some(rate) = with_key(written).and_then(right) {
        return Some(format!(
            "write \"{rate}\", and what it counts by as a key of its own: key = \"client_ip\""
        ));
    }
    right(written).map(|rate| format!("write \"{rate}\""))
}

fn parse(text: &str) -> Result<Parsed, RateError> {
    let (units, period) = text.split_once('/').ok_or(RateError::Form)?;
    let units = number(units.trim())?.ok_or(RateError::Form)?;
    let period = period.trim();
    let digits = period.find(|character: char| !character.is_ascii_digit() && character != '_');
    let (count, unit) = period.split_at(digits.unwrap_or(period.len()));
    let count = number(count)?;
    let unit = unit_length(unit.trim())?;
    if units == 0 {
        return Err(RateError::ZeroUnits);
    }
    if count == Some(0) {
        return Err(RateError::ZeroPeriod);
    }
    let period = count.unwrap_or(1).checked_mul(unit).ok_or(RateError::TooLarge)?;
    let rate = Rate::new(units, Micros(period)).map_err(|_| RateError::Form)?;
    Ok(Parsed { rate, unit, has_number: count.is_some() })
}

/// A number, `None` for an empty text.
fn number(text: &str) -> Result<Option<u64>, RateError> {
    let digits: String = text.chars().filter(|&character| character != '_').collect();
    if digits.is_empty() {
        return Ok(None);
    }
    if !is_digits(digits.as_bytes()) {
        return Err(RateError::Form);
    }
    digits.parse().map(Some).map_err(|_| RateError::TooLarge)
}

fn unit_length(unit: &str) -> Result<u64, RateError> {
    if unit.is_empty() {
        return Err(RateError::Form);
    }
    let lower = unit.to_ascii_lowercase();
    let singular = lower.strip_suffix('s').filter(|rest| rest.len() > 1).unwrap_or(&lower);
    let known = UNITS.iter().find(|(name, _)| *name == lower || (name.len() > 2 && *name == singular));
    let is_word = unit.chars().all(char::is_alphabetic);
    let unknown = || if is_word { RateError::Unit(unit.to_owned()) } else { RateError::Form };
    known.map(|(_, length)| *length).ok_or_else(unknown)
}

/// Whether a text is a rate.
pub(super) fn is_rate(text: &str) -> bool {
    parse(text).is_ok()
}

/// How the period of a rate is written, for a message that proposes other units for it.
pub(super) fn written_period(text: &str) -> &str {
    text.split_once('/').map_or("", |(_, period)| period.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, units, period) in [
            ("100/minute", 100, 60_000_000),
            ("5/s", 5, 1_000_000),
            ("5/10m", 5, 600_000_000),
            ("5/10 minutes", 5, 600_000_000),
            ("1 / Second", 1, 1_000_000),
            ("1_000/2hours", 1_000, 7_200_000_000),
            ("7/d", 7, 86_400_000_000),
            ("7/weeks", 7, 604_800_000_000),
            ("3/250ms", 3, 250_000),
            ("3/250 us", 3, 250),
            ("3/15 min", 3, 900_000_000),
            ("5/month", 5, MONTH),
            ("5/2 years", 5, 2 * YEAR),
            ("5/mo", 5, MONTH),
        ] {
            let rate = parse(text).unwrap().rate;
            assert_eq!((rate.units(), rate.period()), (units, Micros(period)), "{text}");
        }
    }

    #[test]
    fn a_number_makes_a_day_24_hours() {
        for (text, has_number) in [("7/day", false), ("7/1 day", true), ("7/1d", true), ("7/d", false)] {
            assert_eq!(parse(text).unwrap().has_number, has_number, "{text}");
        }
    }

    #[test]
    fn wrong_rates_are_errors() {
        for (text, error) in [
            ("", RateError::Form),
            ("100", RateError::Form),
            ("100/", RateError::Form),
            ("100/5", RateError::Form),
            ("/s", RateError::Form),
            ("-1/s", RateError::Form),
            ("1.5/s", RateError::Form),
            ("ten/s", RateError::Form),
            ("0/s", RateError::ZeroUnits),
            ("5/0s", RateError::ZeroPeriod),
            ("5/minite", RateError::Unit("minite".into())),
            ("99999999999999999999/s", RateError::TooLarge),
            ("1/99999999999999 weeks", RateError::TooLarge),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
