//! Certificates that are obtained from an ACME server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Attempts to obtain certificates since the start of the process, and certificates that are missing.
#[derive(Debug, Default)]
pub struct AcmeCounts {
    obtained: AtomicU64,
    failed: AtomicU64,
    missing: AtomicU64,
}

/// The values of [`AcmeCounts`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AcmeValues {
    /// Certificates that were obtained, and attempts that have failed.
    pub orders: [u64; 2],
    /// Names without a valid certificate.
    pub missing: u64,
}

impl AcmeCounts {
    /// Counts a certificate that was obtained.
    pub fn record_obtained(&self) {
        self.obtained.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt that has failed.
    pub fn record_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of names without a valid certificate.
    pub fn set_missing(&self, count: usize) {
        self.missing.store(count as u64, Ordering::Relaxed);
    }

    /// The values at present.
    #[must_use]
    pub fn values(&self) -> AcmeValues {
        AcmeValues {
            orders: [&self.obtained, &self.failed].map(|count| count.load(Ordering::Relaxed)),
            missing: self.missing.load(Ordering::Relaxed),
        }
    }
}
