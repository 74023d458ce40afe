//! Days, weeks, months and years of a time zone.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ToSpan as _};

use crate::time::Timestamp;

/// A unit of the calendar. The numbers are part of stored states: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day = 1,
    /// From Monday to Sunday.
    Week = 2,
    /// From the first of a month.
    Month = 3,
    /// From the first of January.
    Year = 4,
}

/// An unknown time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such time zone")]
pub struct UnknownZone;

/// The edges of calendar windows in a time zone. On a day without midnight, a window starts at its first
/// instant.
#[derive(Clone, Debug)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    /// The last result, which is nearly always the next one as well.
    last: Arc<ArcSwap<[Timestamp; 4]>>,
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.unit == other.unit && self.zone == other.zone
    }
}

impl Eq for Calendar {}

impl Calendar {
    /// Windows of `unit` in the IANA time zone `zone`.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn new(unit: CalendarUnit, zone: &str) -> Result<Self, UnknownZone> {
        let zone = TimeZone::get(zone).map_err(|_| UnknownZone)?;
        let none = [Timestamp::default(); 4];
        Ok(Self { unit, zone, last: Arc::new(ArcSwap::from_pointee(none)) })
    }

    /// Its unit.
    #[must_use]
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The IANA name of its time zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The names of all time zones.
    #[must_use]
    pub fn zones() -> Vec<String> {
        jiff::tz::db().available().map(|name| name.to_string()).collect()
    }

    /// The starts of the window before the one of `at`, of that one, and of the two after it.
    #[must_use]
    pub fn edges(&self, at: Timestamp) -> [Timestamp; 4] {
        let last = **self.last.load();
        if last[1] <= at && at < last[2] {
            return last;
        }
        let edges = self.edges_around(at);
        self.last.store(Arc::new(edges));
        edges
    }

    /// The start and the end of the window that `at` lies in.
    #[must_use]
    pub fn window(&self, at: Timestamp) -> (Timestamp, Timestamp) {
        let [_, start, end, _] = self.edges(at);
        (start, end)
    }

    fn edges_around(&self, at: Timestamp) -> [Timestamp; 4] {
        let micros = i64::try_from(at.0).unwrap_or(i64::MAX);
        let instant = Instant::from_microsecond(micros).unwrap_or(Instant::MAX);
        let first = self.first_day(self.zone.to_datetime(instant).date());
        [-1, 0, 1, 2].map(|step| self.edge(self.moved(first, step)))
    }

    /// The first day of the window that `date` lies in.
    fn first_day(&self, date: Date) -> Date {
        match self.unit {
            CalendarUnit::Day => date,
            CalendarUnit::Week => {
                let since = date.weekday().since(Weekday::Monday);
                date.saturating_sub(i64::from(since).days())
            }
            CalendarUnit::Month => date.first_of_month(),
            CalendarUnit::Year => date.first_of_year(),
        }
    }

    fn moved(&self, begin: Date, windows: i64) -> Date {
        begin.saturating_add(match self.unit {
            CalendarUnit::Day => windows.days(),
            CalendarUnit::Week => windows.weeks(),
            CalendarUnit::Month => windows.months(),
            CalendarUnit::Year => windows.years(),
        })
    }

    /// The first instant of a day; days before the epoch start at the epoch.
    fn edge(&self, day: Date) -> Timestamp {
        let begin = day.to_zoned(self.zone.clone()).and_then(|zoned| zoned.start_of_day());
        let micros = begin.map_or(i64::MAX, |zoned| zoned.timestamp().as_microsecond());
        Timestamp(u64::try_from(micros).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(unit: CalendarUnit, zone: &str, at: &str) -> [String; 4] {
        let at: Instant = at.parse().unwrap();
        let at = Timestamp(u64::try_from(at.as_microsecond()).unwrap());
        Calendar::new(unit, zone)
            .unwrap()
            .edges(at)
            .map(|edge| Instant::from_microsecond(i64::try_from(edge.0).unwrap()).unwrap().to_string())
    }

    #[test]
    fn a_day_of_23_hours() {
        assert_eq!(
            edges(CalendarUnit::Day, "Europe/Berlin", "2026-03-29T10:00:00Z"),
            ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"]
        );
    }

    #[test]
    fn a_day_without_midnight_starts_at_its_first_instant() {
        // In Santiago the clock went from 23:59:59 to 01:00 on 2022-09-11.
        assert_eq!(
            edges(CalendarUnit::Day, "America/Santiago", "2022-09-11T12:00:00Z")[1],
            "2022-09-11T04:00:00Z"
        );
    }

    #[test]
    fn weeks_start_on_monday_and_months_and_years_on_the_first() {
        let at = "2026-11-20T20:00:00Z";
        assert_eq!(edges(CalendarUnit::Week, "UTC", at)[1], "2026-11-16T00:00:00Z");
        assert_eq!(edges(CalendarUnit::Month, "UTC", at)[0], "2026-10-01T00:00:00Z");
        assert_eq!(edges(CalendarUnit::Year, "UTC", at)[3], "2028-01-01T00:00:00Z");
    }

    #[test]
    fn the_epoch_is_within_a_day() {
        let day = Calendar::new(CalendarUnit::Day, "UTC").unwrap();
        assert_eq!(day.window(Timestamp(5)), (Timestamp(0), Timestamp(86_400_000_000)));
        assert!(Calendar::new(CalendarUnit::Day, "Mars/Olympus").is_err());
    }
}
