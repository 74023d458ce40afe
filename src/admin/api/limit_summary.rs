//! A limit in a few numbers.

use serde::{Deserialize, Serialize};

/// A limit without its tiers and overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSummary {
    /// Its name.
    pub name: String,
    /// Its algorithm, by its name in the configuration.
    pub algorithm: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// The most units that can be available at once.
    pub limit: u64,
    /// The quota that clients are sent: this many units …
    pub quota: u64,
    /// … in this many seconds.
    pub window: u64,
}
