//! Labels of times of the calendar, in UTC.

use jiff::tz::TimeZone;

use super::steps::{DAY, MINUTE, STEPS};

/// Steps of more than a day, in microseconds.
const LONG_STEPS: [u64; 6] = [2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 365 * DAY];

/// Times between two others, all in microseconds since 1970, with their labels; at most `most`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn ticks((start, end): (f64, f64), most: u64) -> Vec<(f64, String)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{HOUR, SECOND};

    const MONDAY: u64 = 1_767_571_200 * SECOND;

    #[allow(clippy::cast_precision_loss)]
    fn labels(from: u64, until: u64) -> Vec<String> {
        ticks((from as f64, until as f64), 6).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_few_and_at_round_times() {
        assert_eq!(labels(MONDAY, MONDAY + 5 * DAY), ["5 Jan", "6 Jan", "7 Jan", "8 Jan", "9 Jan", "10 Jan"]);
        assert_eq!(labels(MONDAY + HOUR, MONDAY + 7 * DAY), ["6 Jan", "8 Jan", "10 Jan", "12 Jan"]);
        assert_eq!(
            labels(MONDAY + 20 * HOUR, MONDAY + 30 * HOUR),
            ["20:00", "22:00", "6 Jan", "02:00", "04:00", "06:00"]
        );
        assert_eq!(labels(MONDAY + 1, MONDAY + 2 * SECOND), ["00:00:01", "00:00:02"]);
        for power in 0..57 {
            let count = labels(MONDAY, MONDAY + (1 << power)).len();
            assert!((1..=6).contains(&count), "2^{power}: {count}");
        }
    }
}
