//! The windows of a few calendars, from the rules of the calendar alone.

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;

fn micros(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

fn pair(start: i64, end: i64) -> (u64, u64) {
    (u64::try_from(start).unwrap(), u64::try_from(end).unwrap())
}

/// Days of a Gregorian month.
fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The day since the epoch on which a month begins: 719,162 days lie before 1970.
fn first_of(year: i64, month: i64) -> i64 {
    let before = year - 1;
    let leap = before / 4 - before / 100 + before / 400;
    before * 365 + leap - 719_162 + (1..month).map(|month| days_in(year, month)).sum::<i64>()
}

/// The year that a day since the epoch lies in.
fn year_of(day: i64) -> i64 {
    let mut year = 1970 + day / 366;
    while first_of(year + 1, 1) <= day {
        year += 1;
    }
    year
}

/// The last Sunday of a month of 31 days; 1970-01-01 was a Thursday.
fn last_sunday(year: i64, month: i64) -> i64 {
    let last = first_of(year, month) + 30;
    last - (last + 4) % 7
}

/// How far Berlin is ahead of UTC: two hours from the last Sunday in March to the last in October, at 01:00
/// UTC, and one otherwise.
fn ahead_in_berlin(at: i64) -> i64 {
    let year = year_of(at / DAY);
    let summer = last_sunday(year, 3) * DAY + HOUR..last_sunday(year, 10) * DAY + HOUR;
    if summer.contains(&at) { 2 * HOUR } else { HOUR }
}

/// When a day of Berlin begins; neither change of its clock is near midnight.
fn midnight_in_berlin(day: i64) -> i64 {
    let about = day * DAY - HOUR;
    day * DAY - ahead_in_berlin(about - HOUR)
}

pub fn days_in_utc(at: u64) -> (u64, u64) {
    let day = micros(at) / DAY;
    pair(day * DAY, (day + 1) * DAY)
}

pub fn days_in_berlin(at: u64) -> (u64, u64) {
    let day = (micros(at) + ahead_in_berlin(micros(at))) / DAY;
    pair(midnight_in_berlin(day), midnight_in_berlin(day + 1))
}

pub fn weeks_in_berlin(at: u64) -> (u64, u64) {
    let day = (micros(at) + ahead_in_berlin(micros(at))) / DAY;
    let monday = day - (day + 3) % 7;
    pair(midnight_in_berlin(monday), midnight_in_berlin(monday + 7))
}

pub fn months_in_utc(at: u64) -> (u64, u64) {
    let day = micros(at) / DAY;
    let (year, mut month) = (year_of(day), 1);
    while first_of(year, month) + days_in(year, month) <= day {
        month += 1;
    }
    pair(first_of(year, month) * DAY, (first_of(year, month) + days_in(year, month)) * DAY)
}
