//! Counts what becomes of granted units.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry::GrantEvent;

/// The units of one limit by their event, in the order of [`GrantEvent`].
#[derive(Debug, Default)]
pub(super) struct UnitCounts([AtomicU64; GrantEvent::COUNT]);

impl UnitCounts {
    /// Counts units.
    pub fn add(&self, event: GrantEvent, units: u64) {
        if units > 0 {
            self.0[event as usize].fetch_add(units, Ordering::Relaxed);
        }
    }

    /// The counts.
    pub fn values(&self) -> [u64; GrantEvent::COUNT] {
        self.0.each_ref().map(|units| units.load(Ordering::Relaxed))
    }
}
