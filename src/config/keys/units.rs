//! Durations that bound ranges.

use std::time::Duration;

pub const ZERO: Duration = Duration::ZERO;
pub const MILLISECOND: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_mins(1);
pub const DAY: Duration = Duration::from_hours(24);
/// 365 days.
pub const YEAR: Duration = Duration::from_hours(365 * 24);
