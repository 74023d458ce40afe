//! Units of time of rate limits.

/// A unit of time: of a limit in a response, and, with the same numbers, of one in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ::prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None of the others.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// Seven days.
    Week = 7,
}

impl Unit {
    /// All units with their length in seconds and their names in JSON.
    const ALL: [(Self, u64, &'static str); 7] = [
        (Self::Second, 1, "SECOND"),
        (Self::Minute, 60, "MINUTE"),
        (Self::Hour, 3_600, "HOUR"),
        (Self::Day, 86_400, "DAY"),
        (Self::Week, 604_800, "WEEK"),
        (Self::Month, 2_592_000, "MONTH"),
        (Self::Year, 31_536_000, "YEAR"),
    ];

    /// The length in seconds; none of an unknown unit.
    pub fn seconds(self) -> Option<u64> {
        Self::ALL.iter().find(|(unit, ..)| *unit == self).map(|(_, seconds, _)| *seconds)
    }

    /// The unit of so many seconds.
    pub fn of_seconds(seconds: u64) -> Self {
        Self::ALL.iter().find(|(_, length, _)| *length == seconds).map_or(Self::Unknown, |(unit, ..)| *unit)
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(unit, ..)| *unit == self).map_or("UNKNOWN", |(.., name)| *name)
    }

    /// The unit of this name.
    pub fn named(text: &str) -> Option<Self> {
        let unknown = (text == "UNKNOWN").then_some(Self::Unknown);
        Self::ALL.iter().find(|(.., name)| *name == text).map(|(unit, ..)| *unit).or(unknown)
    }
}
