//! Certificates that are obtained from an ACME server.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Timestamp;

/// Attempts to obtain certificates since the start of the process, and what they have left.
#[derive(Debug, Default)]
pub struct AcmeCounts {
    obtained: AtomicU64,
    failed: AtomicU64,
    /// Zero if none has failed.
    last_failure: AtomicU64,
    missing: AtomicU64,
    failing: AtomicU64,
}

/// The values of [`AcmeCounts`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AcmeValues {
    /// Certificates that were obtained, and attempts that have failed.
    pub orders: [u64; 2],
    /// When the last attempt has failed that did; the epoch if none has.
    pub last_failure: Timestamp,
    /// Names without a valid certificate.
    pub missing: u64,
    /// Names whose last attempt has failed.
    pub failing: u64,
}

impl AcmeCounts {
    /// Counts a certificate that was obtained.
    pub fn record_obtained(&self) {
        self.obtained.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt that has failed at this time.
    pub fn record_failed(&self, at: Timestamp) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.last_failure.store(at.0, Ordering::Relaxed);
    }

    /// Sets the number of names without a valid certificate, and of those whose last attempt has failed.
    pub fn set_names(&self, missing: usize, failing: usize) {
        self.missing.store(missing as u64, Ordering::Relaxed);
        self.failing.store(failing as u64, Ordering::Relaxed);
    }

    /// The values at present.
    #[must_use]
    pub fn values(&self) -> AcmeValues {
        AcmeValues {
            orders: [&self.obtained, &self.failed].map(|count| count.load(Ordering::Relaxed)),
            last_failure: Timestamp(self.last_failure.load(Ordering::Relaxed)),
            missing: self.missing.load(Ordering::Relaxed),
            failing: self.failing.load(Ordering::Relaxed),
        }
    }
}
