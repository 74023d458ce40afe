//! A key with many denials.

use serde::Serialize;

use super::super::tally::KeyDenials;
use crate::limit::Key;

/// A key with many denials.
#[derive(Clone, Debug, Serialize)]
pub struct DeniedKey {
    /// The values of its parts, or its tag.
    pub name: String,
    /// Its denials, perhaps up to `error` too many.
    pub denied: u64,
    /// By how much `denied` may be too high.
    pub error: u64,
    /// Its first denial, in microseconds since 1970.
    pub first_us: u64,
    /// Its last denial.
    pub last_us: u64,
    /// Its denials by the hour of the day, in UTC.
    pub hours: [u64; 24],
}

impl From<KeyDenials> for DeniedKey {
    fn from(denials: KeyDenials) -> Self {
        let tag = || format!("{}{}", Key::TAG, denials.key);
        Self {
            name: denials.label.name.as_deref().map_or_else(tag, str::to_owned),
            denied: denials.count,
            error: denials.error,
            first_us: denials.first.0,
            last_us: denials.last.0,
            hours: denials.hours,
        }
    }
}
