//! Counts what becomes of granted units.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limit::GrantReport;
use crate::telemetry::GrantEvent;
use crate::time::Timestamp;

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

    /// Counts the units that a report returns. The store takes them back only before the grant has ended; `decided` is when it
    /// has applied the report, if that is known.
    pub fn add_returned(&self, report: &GrantReport, decided: Option<Timestamp>) {
        let is_in_time = decided.is_some_and(|at| at < report.until);
        self.add(if is_in_time { GrantEvent::Returned } else { GrantEvent::Lapsed }, report.returned);
    }

    /// The counts.
    pub fn values(&self) -> [u64; GrantEvent::COUNT] {
        self.0.each_ref().map(|units| units.load(Ordering::Relaxed))
    }
}
