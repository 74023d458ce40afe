//! Numbers and times as the page writes them.

use crate::replay::tally::Number;
use crate::text::plural;

/// Units of time, with their lengths in seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

/// A number with commas between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 request`, `2,000 requests`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), plural(count))
}

/// A number that was counted or estimated.
pub(super) fn number(number: Number) -> String {
    let about = if number.relative_error > 0.0 { "about " } else { "" };
    format!("{about}{}", grouped(number.count))
}

/// A share of a whole as a percentage.
#[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
pub(super) fn share(part: u64, whole: u64) -> String {
    percent(part as f64 / whole.max(1) as f64)
}

/// A share as a percentage with at most two decimals. The space does not break.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.01 {
        return "< 0.01\u{a0}%".to_owned();
    }
    let text = format!("{percent:.2}");
    format!("{}\u{a0}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// An instant in microseconds since 1970, as date and time of day in UTC, to the second.
pub(super) fn instant(micros: u64) -> String {
    formatted(micros, "%Y-%m-%d %H:%M:%S")
}

/// An instant in microseconds since 1970, as day and time in UTC to the minute, without the year.
pub(super) fn minute(micros: u64) -> String {
    formatted(micros, "%-d %b %H:%M")
}

fn formatted(micros: u64, format: &str) -> String {
    let instant =
        i64::try_from(micros).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    instant.map_or_else(|| "–".to_owned(), |instant| instant.strftime(format).to_string())
}

/// A length of time in its two largest units, such as `18 h 34 min`.
pub(super) fn length(micros: u64) -> String {
    let seconds = micros.div_ceil(1_000_000);
    let mut larger = u64::MAX;
    let counts = UNITS.map(|(unit, size)| {
        let count = seconds % larger / size;
        larger = size;
        (count, unit)
    });
    let first = counts.iter().position(|(count, _)| *count > 0).unwrap_or(counts.len() - 1);
    let shown = counts.iter().skip(first).take(2).enumerate();
    let shown = shown.filter(|(index, (count, _))| *index == 0 || *count > 0);
    shown.map(|(_, (count, unit))| format!("{count}\u{a0}{unit}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "key"), counted(1_500, "key")), ("1 key".to_owned(), "1,500 keys".to_owned()));
    }

    #[test]
    fn shares_have_at_most_two_decimals() {
        let shares = [0.0, 0.000_05, 0.001, 0.123_456, 1.0].map(percent);
        assert_eq!(shares, ["0\u{a0}%", "< 0.01\u{a0}%", "0.1\u{a0}%", "12.35\u{a0}%", "100\u{a0}%"]);
        assert_eq!(share(3, 0), "300\u{a0}%");
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(instant(1_767_571_261_900_000), "2026-01-05 00:01:01");
        assert_eq!(minute(1_767_571_261_900_000), "5 Jan 00:01");
    }

    #[test]
    fn lengths_have_their_two_largest_units() {
        let lengths = [604_799_500_000, 61_000_000, 3_601_000_000, 0].map(length);
        assert_eq!(lengths, ["7\u{a0}d", "1\u{a0}min 1\u{a0}s", "1\u{a0}h", "0\u{a0}s"]);
    }
}
