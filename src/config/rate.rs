//! Rates as the file spells them: `100/minute`, `5/s`, `5/10m`, `5/10 minutes`.

use super::reader::{Item, Text};
use super::suggest::nearest;
use crate::limit::Rate;
use crate::time::Micros;

/// Units of time with their microseconds: the names first, then the short forms.
const UNITS: [(&str, u64); 17] = [
    ("microsecond", 1),
    ("millisecond", 1_000),
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", 86_400_000_000),
    ("week", 604_800_000_000),
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("sec", 1_000_000),
    ("m", 60_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("hr", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

const FORM: &str = "write it as units each period: \"100/minute\", \"5/s\", \"5/10 minutes\"";

/// A rate and how it was written.
pub(super) struct WrittenRate<'a> {
    pub rate: Rate,
    pub text: Text<'a>,
}

/// Why a text is no rate.
#[derive(Debug, PartialEq, Eq)]
enum RateError {
    Form,
    ZeroUnits,
    ZeroPeriod,
    /// Months and years have no fixed length.
    Calendar(&'static str),
    Unit(String),
    TooLarge,
}

/// Reads a rate.
pub(super) fn rate(item: Item<'_>) -> Option<WrittenRate<'_>> {
    if item.is_array() {
        return item.not_yet("a list of rates", "name several limits on the route instead");
    }
    let text = item.string_like("a rate", FORM)?;
    match parse(&text.value) {
        Ok(rate) => Some(WrittenRate { rate, text }),
        Err(error) => refused(&text, &error),
    }
}

fn refused<T>(text: &Text<'_>, error: &RateError) -> Option<T> {
    let quoted = text.quoted();
    let problem = match error {
        RateError::Form => text.error(format!("{quoted} is not a rate")).help(FORM),
        RateError::ZeroUnits => text.error("a rate of zero would refuse every request").help(
            "allow at least one request each period, such as \"1/minute\"; to refuse everything, give the \
             route `respond = { status = 403 }`",
        ),
        RateError::ZeroPeriod => {
            text.error("a rate needs a period longer than zero").help("write \"1/s\" or \"5/10 minutes\"")
        }
        RateError::Calendar(unit) => text
            .error(format!("a {unit} has no fixed length: it is a calendar window"))
            .help("calendar windows (fixed_window) are not supported by this version of tidegate; write the length that you mean, such as \"30 days\" or \"365 days\""),
        RateError::Unit(unit) => {
            let problem = if text.from_env {
                text.error("this value has no unit of time after its slash")
            } else {
                text.error(format!("`{unit}` is not a unit of time"))
            };
            let names = UNITS.iter().map(|(name, _)| *name);
            match nearest(unit.trim_end_matches('s'), names) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem.help("the units are us, ms, s, m, h, d, w, or second, minute, hour, day, week"),
            }
        }
        RateError::TooLarge => text
            .error(format!("{quoted} is more than can be counted exactly"))
            .help("the units, and the microseconds of the period, must stay below 2^53"),
    };
    text.refuse(problem)
}

fn parse(text: &str) -> Result<Rate, RateError> {
    let (units, period) = text.split_once('/').ok_or(RateError::Form)?;
    let units = number(units.trim())?.ok_or(RateError::Form)?;
    let period = period.trim();
    let digits = period.find(|character: char| !character.is_ascii_digit() && character != '_');
    let (count, unit) = period.split_at(digits.unwrap_or(period.len()));
    let count = number(count)?.unwrap_or(1);
    let unit = unit_length(unit.trim())?;
    if units == 0 {
        return Err(RateError::ZeroUnits);
    }
    if count == 0 {
        return Err(RateError::ZeroPeriod);
    }
    let period = count.checked_mul(unit).ok_or(RateError::TooLarge)?;
    Rate::new(units, Micros(period)).map_err(|_| RateError::Form)
}

/// A number, `None` for an empty text.
fn number(text: &str) -> Result<Option<u64>, RateError> {
    let digits: String = text.chars().filter(|&character| character != '_').collect();
    if digits.is_empty() {
        return Ok(None);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
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
    match singular {
        "month" | "mo" => return Err(RateError::Calendar("month")),
        "year" | "y" | "yr" => return Err(RateError::Calendar("year")),
        _ => {}
    }
    let known = UNITS.iter().find(|(name, _)| *name == lower || (name.len() > 2 && *name == singular));
    known.map(|(_, length)| *length).ok_or_else(|| RateError::Unit(unit.to_owned()))
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
        ] {
            let rate = parse(text).unwrap();
            assert_eq!((rate.units(), rate.period()), (units, Micros(period)), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_told_apart() {
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
            ("5/month", RateError::Calendar("month")),
            ("5/2 years", RateError::Calendar("year")),
            ("5/minite", RateError::Unit("minite".into())),
            ("99999999999999999999/s", RateError::TooLarge),
            ("1/99999999999999 weeks", RateError::TooLarge),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
