//! Steps between the ticks of axes of time.

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
