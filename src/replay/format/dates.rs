//! Times and durations in logs.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::scanner::number;
use crate::time::{Micros, Timestamp};

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
/// The length of the date and the time of day in the Common Log Format: `06/Feb/2009:12:14:14`.
const CLF: usize = 20;
/// The length of the date and the time of day in RFC 3339: `2009-02-06T12:14:14`.
const ISO: usize = 19;
/// How many seconds a time of a line may be before that of the line before it. In the hour that is repeated when clocks are
/// set back, an earlier time is that of the second pass.
const MAX_BACKWARD: i64 = 600;

/// A time as a line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTime {
    /// The time.
    pub time: Timestamp,
    /// Whether it has no fraction of a second.
    pub is_second: bool,
}

/// The unit of a number in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    #[default]
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// Parses times. It remembers the last date: most lines of a log have the second of the line before.
#[derive(Clone, Debug)]
pub struct Dates {
    zone: TimeZone,
    last: Option<LastDate>,
}

/// A date and a time of day, and what they are in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
struct LastDate {
    text: [u8; CLF],
    is_local: bool,
    seconds: i64,
}

impl LogTime {
    /// A point in time, in seconds since the Unix epoch and microseconds of that second.
    fn new(seconds: i64, micros: Option<u64>) -> Option<Self> {
        let whole = u64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
        Some(Self { time: Timestamp(whole + micros.unwrap_or(0)), is_second: micros.is_none() })
    }

    /// The seconds since the Unix epoch, if it has no fraction.
    #[must_use]
    pub fn second(self) -> Option<u64> {
        self.is_second.then_some(self.time.0 / 1_000_000)
    }
}

impl TimeUnit {
    /// The unit with this abbreviation.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "s" => Some(Self::Seconds),
            "ms" => Some(Self::Millis),
            "us" => Some(Self::Micros),
            "ns" => Some(Self::Nanos),
            _ => None,
        }
    }

    fn nanos(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }

    /// The unit of a point in time since the Unix epoch, by its size: seconds until the year 5138, and no other unit
    /// before 1973.
    fn of_time(number: f64) -> Self {
        match number {
            ..1e11 => Self::Seconds,
            ..1e14 => Self::Millis,
            ..1e17 => Self::Micros,
            _ => Self::Nanos,
        }
    }
}

impl Dates {
    /// `zone` is that of times without one.
    #[must_use]
    pub fn new(zone: TimeZone) -> Self {
        Self { zone, last: None }
    }

    /// A time of the Common Log Format, `06/Feb/2009:12:14:14 +0100`; or with a fraction and without an offset, as
    /// `HAProxy` has it.
    pub(super) fn clf(&mut self, text: &[u8]) -> Option<LogTime> {
        let (date, rest) = text.split_at_checked(CLF)?;
        self.stamp(date, rest, civil_clf)
    }

    /// A time of RFC 3339; or with a space instead of `T`, with slashes in the date, or without an offset.
    pub(super) fn rfc3339(&mut self, text: &[u8]) -> Option<LogTime> {
        let (date, rest) = text.split_at_checked(ISO)?;
        self.stamp(date, rest, civil_iso)
    }

    /// A time in any form: one of the above, or a number since the Unix epoch.
    pub(super) fn any(&mut self, text: &[u8]) -> Option<LogTime> {
        match text.get(4) {
            Some(b'-' | b'/') => self.rfc3339(text),
            _ if text.get(2) == Some(&b'/') => self.clf(text),
            _ => unix_text(text),
        }
    }

    fn stamp(&mut self, date: &[u8], rest: &[u8], civil: fn(&[u8]) -> Option<DateTime>) -> Option<LogTime> {
        let (micros, rest) = fraction(rest)?;
        let offset = offset(rest)?;
        let seconds = self.seconds(date, offset.is_none(), civil)?;
        LogTime::new(seconds.checked_sub(offset.unwrap_or(0))?, micros)
    }

    fn seconds(&mut self, date: &[u8], is_local: bool, civil: fn(&[u8]) -> Option<DateTime>) -> Option<i64> {
        if let Some(last) = &self.last
            && last.text.starts_with(date)
            && last.is_local == is_local
        {
            return Some(last.seconds);
        }
        let civil = civil(date)?;
        let seconds = if is_local {
            self.local_seconds(civil)?
        } else {
            TimeZone::UTC.to_timestamp(civil).ok()?.as_second()
        };
        let mut text = [0; CLF];
        text[..date.len()].copy_from_slice(date);
        self.last = Some(LastDate { text, is_local, seconds });
        Some(seconds)
    }

    /// A time without an offset. One that there are two of is the first, unless that is long before the line before.
    fn local_seconds(&self, civil: DateTime) -> Option<i64> {
        let time = self.zone.to_ambiguous_timestamp(civil);
        let first = time.compatible().ok()?.as_second();
        let is_twice = matches!(time.offset(), AmbiguousOffset::Fold { .. });
        let before = self.last.filter(|last| last.is_local && is_twice);
        match before {
            Some(before) if first < before.seconds - MAX_BACKWARD => Some(time.later().ok()?.as_second()),
            _ => Some(first),
        }
    }
}

/// Whether a text has the digits and separators of a time in the Common Log Format, though perhaps not a valid date.
pub(super) fn is_like_clf(text: &[u8]) -> bool {
    let shape = b"00/aaa/0000:00:00:00";
    text.len() >= CLF
        && text.iter().zip(shape).all(|(byte, like)| match like {
            b'0' => byte.is_ascii_digit(),
            b'a' => byte.is_ascii_alphabetic(),
            separator => byte == separator,
        })
}

/// A number since the Unix epoch, in the unit that its size suggests.
pub(super) fn unix(number: u64) -> LogTime {
    #[expect(clippy::cast_precision_loss, reason = "only the magnitude matters")]
    let unit = TimeUnit::of_time(number as f64);
    LogTime { time: Timestamp(micros(number, unit)), is_second: unit == TimeUnit::Seconds }
}

/// A number with a fraction since the Unix epoch, in the unit that its size suggests.
pub(super) fn unix_float(number: f64) -> Option<LogTime> {
    let time = Timestamp(float_micros(number, TimeUnit::of_time(number))?);
    Some(LogTime { time, is_second: false })
}

/// A number in text since the Unix epoch, such as nginx's `$msec`.
fn unix_text(text: &[u8]) -> Option<LogTime> {
    if let Some(number) = number(text) {
        return Some(unix(number));
    }
    let (whole, rest) = text.split_at_checked(text.iter().position(|byte| *byte == b'.')?)?;
    let (micros, rest) = fraction(rest)?;
    let whole = number(whole).filter(|whole| *whole < 100_000_000_000)?;
    rest.is_empty().then(|| LogTime::new(i64::try_from(whole).ok()?, micros))?
}

/// A whole number of units in microseconds.
pub(super) fn micros(number: u64, unit: TimeUnit) -> u64 {
    match unit {
        TimeUnit::Nanos => number / 1_000,
        _ => number.saturating_mul(unit.nanos() / 1_000),
    }
}

/// A number of units in microseconds; none if it is negative.
pub(super) fn float_micros(number: f64, unit: TimeUnit) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "the nanoseconds of a unit are exact")]
    let micros = number * unit.nanos() as f64 / 1_000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked, and casts saturate"
    )]
    (micros >= 0.0).then(|| micros.round() as u64)
}

/// A duration in text: a number of units, or with its own unit as Go writes it (`1.8ms`, `1m2s`).
pub(super) fn duration(text: &[u8], unit: TimeUnit) -> Option<Micros> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(number) = text.parse::<f64>() {
        return float_micros(number, unit).map(Micros);
    }
    let span = text.parse::<SignedDuration>().ok()?;
    std::time::Duration::try_from(span).ok().map(Micros::from)
}

/// The microseconds of a fraction of a second, if there is one, and what follows.
fn fraction(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let Some((b'.' | b',', digits)) = text.split_first() else { return Some((None, text)) };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = digits.split_at(length);
    let mut micros = 0;
    for index in 0..6 {
        micros = micros * 10 + digits.get(index).map_or(0, |digit| u64::from(digit - b'0'));
    }
    (length > 0).then_some((Some(micros), rest))
}

/// The seconds of an offset from UTC; none within if there is no offset.
#[expect(clippy::option_option, reason = "an invalid offset differs from none")]
fn offset(text: &[u8]) -> Option<Option<i64>> {
    let (sign, rest) = match text.trim_ascii_start().split_first() {
        None => return Some(None),
        Some((b'Z' | b'z', [])) => return Some(Some(0)),
        Some((b'+', rest)) => (1, rest),
        Some((b'-', rest)) => (-1, rest),
        Some(_) => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (rest, &b"00"[..]),
        4 => rest.split_at(2),
        5 if rest[2] == b':' => (&rest[..2], &rest[3..]),
        _ => return None,
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let seconds = i64::try_from(hours * 3_600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(Some(sign * seconds))
}

fn civil_clf(text: &[u8]) -> Option<DateTime> {
    let month = MONTHS.iter().position(|month| text[3..6].eq_ignore_ascii_case(month))?;
    let has_separators = [text[2], text[6], text[11], text[14], text[17]] == *b"//:::";
    let time = [digits(&text[12..14])?, digits(&text[15..17])?, digits(&text[18..20])?];
    let date = [i16::try_from(number(&text[7..11])?).ok()?, i16::try_from(month).ok()? + 1];
    has_separators.then(|| civil(date[0], [i8::try_from(date[1]).ok()?, digits(&text[..2])?], time))?
}

fn civil_iso(text: &[u8]) -> Option<DateTime> {
    let has_date = matches!((text[4], text[7]), (b'-', b'-') | (b'/', b'/'));
    let has_time = matches!(text[10], b'T' | b't' | b' ') && [text[13], text[16]] == *b"::";
    let time = [digits(&text[11..13])?, digits(&text[14..16])?, digits(&text[17..19])?];
    let year = i16::try_from(number(&text[..4])?).ok()?;
    (has_date && has_time).then(|| civil(year, [digits(&text[5..7])?, digits(&text[8..10])?], time))?
}

/// A leap second counts as the second before it.
fn civil(year: i16, [month, day]: [i8; 2], [hour, minute, second]: [i8; 3]) -> Option<DateTime> {
    let second = if second == 60 { 59 } else { second };
    DateTime::new(year, month, day, hour, minute, second, 0).ok()
}

fn digits(text: &[u8]) -> Option<i8> {
    number(text).and_then(|number| i8::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(micros: u64, is_second: bool) -> LogTime {
        LogTime { time: Timestamp(micros), is_second }
    }

    #[test]
    fn times_of_all_servers_are_parsed() {
        let mut dates = Dates::new(TimeZone::UTC);
        let second = 1_795_375_447;
        for (text, micros, is_second) in [
            ("22/Nov/2026:19:24:07 +0000", second * 1_000_000, true),
            ("22/Nov/2026:20:24:07 +0100", second * 1_000_000, true),
            ("22/Nov/2026:13:54:07 -0530", second * 1_000_000, true),
            ("22/Nov/2026:19:24:07.727", second * 1_000_000 + 727_000, false),
            ("2026-11-22T19:24:07Z", second * 1_000_000, true),
            ("2026-11-22T19:24:07+00:00", second * 1_000_000, true),
            ("2026-11-22T19:24:07.096316024Z", second * 1_000_000 + 96_316, false),
            ("2026-11-22T20:24:07.5+0100", second * 1_000_000 + 500_000, false),
            ("2026/11/22 19:24:07", second * 1_000_000, true),
            ("1795375447", second * 1_000_000, true),
            ("1795375447.029", second * 1_000_000 + 29_000, false),
            ("1795375447029", second * 1_000_000 + 29_000, false),
            ("1795375447029001", second * 1_000_000 + 29_001, false),
            ("1795375447029001002", second * 1_000_000 + 29_001, false),
            ("30/Jun/2015:23:59:60 +0000", 1_435_708_799_000_000, true),
        ] {
            assert_eq!(dates.any(text.as_bytes()), Some(stamp(micros, is_second)), "{text}");
        }
        for text in [
            "",
            "-",
            "31/Nov/2026:19:24:07 +0000",
            "22/Foo/2026:19:24:07 +0000",
            "2026-11-22T19:24:07.Z",
            "2026-11-22T25:24:07Z",
            "1969-12-31T23:59:59Z",
            "1795375447.x",
        ] {
            assert_eq!(dates.any(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn times_without_an_offset_have_that_of_the_zone() {
        let mut dates = Dates::new(TimeZone::fixed(jiff::tz::offset(2)));
        let (local, utc) = (dates.clf(b"22/Nov/2026:19:24:07.5"), dates.clf(b"22/Nov/2026:19:24:07 +0000"));
        assert_eq!(local, Some(stamp(1_795_368_247_500_000, false)));
        assert_eq!(utc, Some(stamp(1_795_375_447_000_000, true)));
    }

    #[test]
    fn times_of_a_repeated_hour_do_not_go_back() {
        let mut dates = Dates::new(TimeZone::get("Europe/Berlin").unwrap());
        // Clocks were set back from 03:00 to 02:00, at this time.
        let change = 1_792_890_000;
        for (text, after) in [
            ("01:59:59.5", -3_601),
            ("02:00:01.5", -3_599),
            ("02:59:59.5", -1),
            ("02:55:00.5", -300),
            ("02:00:01.5", 1),
            ("02:45:00.5", 2_700),
            ("02:40:00.5", 2_400),
            ("03:00:00.5", 3_600),
            ("02:59:00.5", 3_540),
        ] {
            let found = dates.clf(format!("25/Oct/2026:{text}").as_bytes()).unwrap();
            let expected = u64::try_from(change + after).unwrap() * 1_000_000 + 500_000;
            assert_eq!(found.time, Timestamp(expected), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, unit, micros) in [
            ("0.256", TimeUnit::Seconds, Some(256_000)),
            ("256", TimeUnit::Millis, Some(256_000)),
            ("1.815306ms", TimeUnit::Seconds, Some(1_815)),
            ("1m2.5s", TimeUnit::Seconds, Some(62_500_000)),
            ("43µs", TimeUnit::Seconds, Some(43)),
            ("-1", TimeUnit::Seconds, None),
            ("-", TimeUnit::Seconds, None),
            ("nan", TimeUnit::Seconds, None),
        ] {
            assert_eq!(duration(text.as_bytes(), unit), micros.map(Micros), "{text}");
        }
        assert_eq!(micros(1_410_325, TimeUnit::Nanos), 1_410);
    }
}
