//! Scales: where values are on an axis, and which of them have a label.

use jiff::tz::TimeZone;
use tidegate_limit::time::Timestamp;

/// The most labels of a linear axis of time.
const MOST_TIMES: u64 = 6;
/// The most decades of an axis that has a label for each.
const MOST_DECADES: i32 = 6;
/// Shares of less than this part are not drawn beyond the axis if there are few.
const LARGEST_TAIL: f64 = 0.1;

/// How values are mapped to an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From zero to a round number.
    Linear {
        /// The end.
        end: f64,
    },
    /// Equal distances for equal factors.
    Logarithmic {
        /// The start, more than zero.
        start: f64,
        /// The end.
        end: f64,
    },
    /// Shares from none to all, with equal distances from 0 to 90 %, to 99 %, to 99.9 % and so on.
    Tail {
        /// The least share that is missing to all.
        least: f64,
    },
    /// Times in microseconds since 1970.
    Time {
        /// The start.
        start: f64,
        /// The end.
        end: f64,
    },
}

/// A label of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisTick {
    /// Its place: 0 is the start of the axis, 1 its end.
    pub place: f64,
    /// The text.
    pub label: String,
}

impl Scale {
    /// A scale from zero to a round number that is at least `largest`.
    #[must_use]
    pub fn linear(largest: f64) -> Self {
        let power = 10_f64.powf(largest.max(f64::MIN_POSITIVE).log10().floor());
        let rounded = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].map(|step| step * power);
        let end = rounded.into_iter().find(|end| *end >= largest * 0.999);
        Self::Linear { end: end.filter(|_| largest > 0.0).unwrap_or(1.0) }
    }

    /// A logarithmic scale with all of these numbers, and room for another half of the largest. It starts at 1 or less.
    #[must_use]
    pub fn logarithmic(numbers: impl IntoIterator<Item = f64>) -> Self {
        let (start, end) = numbers
            .into_iter()
            .filter(|number| *number > 0.0)
            .fold((1.0_f64, 6.0_f64), |(start, end), number| (start.min(number), end.max(number)));
        Self::Logarithmic { start, end: end * 1.5 }
    }

    /// A scale for the shares of this number of things.
    #[must_use]
    pub fn tail(count: f64) -> Self {
        Self::Tail { least: (0.5 / count.max(1.0)).min(LARGEST_TAIL) }
    }

    /// A scale for the time from one instant to another.
    #[must_use]
    pub fn time(start: Timestamp, end: Timestamp) -> Self {
        let (start, end) = (super::drawing::float(start.0), super::drawing::float(end.0));
        Self::Time { start, end: end.max(start + 1.0) }
    }

    /// Where a value is: 0 is the start of the axis, 1 its end. Values beyond the axis are at its ends.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let place = match *self {
            Self::Linear { end } => value / end,
            Self::Logarithmic { start, end } => (value.max(start) / start).ln() / (end / start).ln(),
            Self::Tail { least } => (1.0 - value).max(least).ln() / least.ln(),
            Self::Time { start, end } => (value - start) / (end - start),
        };
        // Adding zero makes a negative zero a plain one.
        place.clamp(0.0, 1.0) + 0.0
    }

    /// Whether a value is within the axis.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        match *self {
            Self::Linear { end } => (0.0..=end).contains(&value),
            Self::Logarithmic { start, end } | Self::Time { start, end } => (start..=end).contains(&value),
            Self::Tail { .. } => (0.0..=1.0).contains(&value),
        }
    }

    /// The labels, from the start.
    #[must_use]
    pub fn ticks(&self) -> Vec<AxisTick> {
        match *self {
            Self::Linear { end } => {
                self.labelled([0.0, end / 2.0, end].map(|number| (number, short(number))))
            }
            Self::Logarithmic { start, end } => {
                self.labelled(decades(start, end).into_iter().map(|number| (number, short(number))))
            }
            Self::Tail { least } => {
                let powers = (0..12).map(|power| 10_f64.powi(-power)).take_while(|missing| *missing > least);
                let mut ticks = self.labelled(powers.map(|missing| (1.0 - missing, percent(missing))));
                // The label of all needs room.
                ticks.retain(|tick| tick.place < 0.92);
                ticks.push(AxisTick { place: 1.0, label: "all".to_owned() });
                ticks
            }
            Self::Time { start, end } => self.labelled(calendar_ticks((start, end), MOST_TIMES)),
        }
    }

    fn labelled(&self, values: impl IntoIterator<Item = (f64, String)>) -> Vec<AxisTick> {
        values.into_iter().map(|(value, label)| AxisTick { place: self.place(value), label }).collect()
    }
}

/// Powers of ten, or 1, 2 and 5 times these if there are few.
fn decades(start: f64, end: f64) -> Vec<f64> {
    let (first, last) = (exponent(start), exponent(end));
    let count = last - first;
    let factors: &[f64] = if count < 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    // Every second or third power, if there are many.
    let step = (count / MOST_DECADES + 1).unsigned_abs() as usize;
    let powers = (first..=last).step_by(step).map(|power| 10_f64.powi(power));
    let numbers = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
    numbers.filter(|number| (start * 0.999..=end).contains(number)).collect()
}

#[allow(clippy::cast_possible_truncation)]
fn exponent(number: f64) -> i32 {
    number.log10().floor() as i32
}

/// All but this part, a power of ten, as a percentage.
fn percent(missing: f64) -> String {
    let decimals = usize::try_from(-2 - exponent(missing * 1.001)).unwrap_or_default();
    format!("{:.decimals$} %", 100.0 * (1.0 - missing))
}

/// A number with at most three digits, such as `0.25`, `120`, `2.5k` or `10M`.
#[must_use]
pub fn short(number: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, name) = units.into_iter().find(|(unit, _)| number >= *unit).unwrap_or((1.0, ""));
    let number = number / unit;
    let decimals = if number < 1.0 { 3 } else { usize::from(number < 10.0) };
    let text = format!("{number:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{name}")
}

/// Steps of more than a day, in microseconds.
const LONG_STEPS: [u64; 6] = [2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 365 * DAY];

/// Times between two others, all in microseconds since 1970, with their labels; at most `most`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn calendar_ticks((start, end): (f64, f64), most: u64) -> Vec<(f64, String)> {
    let (start, end) = (start as u64, end as u64);
    let first = |step: u64| {
        // Every second day is counted from the first midnight, so that the first day has a label.
        if step > DAY { start.next_multiple_of(DAY) } else { start.next_multiple_of(step) }
    };
    let fits = |step: &u64| end.saturating_sub(first(*step)) / step < most;
    let step = STEPS.into_iter().chain(LONG_STEPS).find(fits).unwrap_or(end.max(1));
    let times = (0..most).map(|number| first(step).saturating_add(number.saturating_mul(step)));
    times.take_while(|time| *time <= end).map(|time| (time as f64, label(time, step))).collect()
}

/// The date of midnight, otherwise the time of the day.
fn label(time: u64, step: u64) -> String {
    let format = if time.is_multiple_of(DAY) {
        "%-d %b"
    } else if step.is_multiple_of(MINUTE) {
        "%H:%M"
    } else {
        "%H:%M:%S"
    };
    let instant = i64::try_from(time).ok().and_then(|time| jiff::Timestamp::from_microsecond(time).ok());
    instant.map_or_else(String::new, |instant| instant.to_zoned(TimeZone::UTC).strftime(format).to_string())
}

/// Microseconds of a second.
pub(super) const SECOND: u64 = 1_000_000;
/// Microseconds of a minute.
pub(super) const MINUTE: u64 = 60 * SECOND;
/// Microseconds of an hour.
pub(super) const HOUR: u64 = 60 * MINUTE;
/// Microseconds of a day.
pub(super) const DAY: u64 = 24 * HOUR;
/// Round steps from a second to a day.
pub(super) const STEPS: [u64; 16] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_axes_end_at_round_numbers() {
        assert_eq!(labels(Scale::linear(37.0)), ["0", "20", "40"]);
        assert_eq!(labels(Scale::linear(0.3)), ["0", "0.15", "0.3"]);
        assert_eq!(labels(Scale::linear(0.0)), ["0", "0.5", "1"]);
        assert_eq!(labels(Scale::linear(1_200_000.0)), ["0", "1M", "2M"]);
    }

    #[test]
    fn logarithmic_axes_have_powers_of_ten() {
        assert_eq!(labels(Scale::logarithmic([3.0, 900.0])), ["1", "10", "100", "1k"]);
        assert_eq!(labels(Scale::logarithmic([3.0])), ["1", "2", "5"]);
        assert_eq!(labels(Scale::logarithmic([])), ["1", "2", "5"]);
        assert!(labels(Scale::logarithmic([1e17])).len() < 9);
        let scale = Scale::Logarithmic { start: 1.0, end: 100.0 };
        let places = [0.0, 1.0, 10.0, 100.0, 1e9].map(|value| scale.place(value).to_string());
        assert_eq!(places, ["0", "0", "0.5", "1", "1"]);
    }

    #[test]
    fn axes_of_shares_show_the_few() {
        assert_eq!(labels(Scale::tail(4_000.0)), ["0 %", "90 %", "99 %", "99.9 %", "all"]);
        assert_eq!(labels(Scale::tail(1.0)), ["0 %", "all"]);
        let scale = Scale::Tail { least: 0.0001 };
        let places = [0.0, 0.9, 0.99, 0.9999, 1.0].map(|share| (scale.place(share) * 100.0).round());
        assert_eq!(places.map(|place| place.to_string()), ["0", "25", "50", "100", "100"]);
    }

    #[test]
    fn short_numbers_have_at_most_three_digits() {
        let numbers = [0.0, 0.125, 2.5, 10.0, 999.0, 1_000.0, 2_500.0, 1e7, 1e12];
        let texts = ["0", "0.125", "2.5", "10", "999", "1k", "2.5k", "10M", "1T"];
        assert_eq!(numbers.map(short), texts);
    }

    const MONDAY: u64 = 1_767_571_200 * SECOND;

    #[allow(clippy::cast_precision_loss)]
    fn calendar_labels(from: u64, until: u64) -> Vec<String> {
        calendar_ticks((from as f64, until as f64), 6).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn calendar_ticks_are_few_and_at_round_times() {
        assert_eq!(
            calendar_labels(MONDAY, MONDAY + 5 * DAY),
            ["5 Jan", "6 Jan", "7 Jan", "8 Jan", "9 Jan", "10 Jan"]
        );
        assert_eq!(calendar_labels(MONDAY + HOUR, MONDAY + 7 * DAY), ["6 Jan", "8 Jan", "10 Jan", "12 Jan"]);
        assert_eq!(
            calendar_labels(MONDAY + 20 * HOUR, MONDAY + 30 * HOUR),
            ["20:00", "22:00", "6 Jan", "02:00", "04:00", "06:00"]
        );
        assert_eq!(calendar_labels(MONDAY + 1, MONDAY + 2 * SECOND), ["00:00:01", "00:00:02"]);
        for power in 0..57 {
            let count = calendar_labels(MONDAY, MONDAY + (1 << power)).len();
            assert!((1..=6).contains(&count), "2^{power}: {count}");
        }
    }
}
