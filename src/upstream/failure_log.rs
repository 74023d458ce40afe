//! Deduplication of log messages about a failing endpoint: one when requests begin to fail, and one when they recover.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long no request may fail before the endpoint counts as recovered: one that fails now and then would otherwise fill
/// the log.
const QUIET: Duration = Duration::from_secs(5);

/// Whether requests to an endpoint fail, over all workers.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// Readable without the lock, since each response reads it.
    is_failing: AtomicBool,
    failure: Mutex<Option<LoggedFailure>>,
}

#[derive(Debug)]
struct LoggedFailure {
    last: Instant,
    /// Whether the endpoint has responded to a request since.
    has_responded: bool,
}

impl FailureLog {
    /// Records a failed request; returns whether it is the first one.
    pub fn record_failure(&self, now: Instant) -> bool {
        let mut failure = self.failure.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        failure.replace(LoggedFailure { last: now, has_responded: false }).is_none()
    }

    /// Records a response.
    pub fn record_response(&self) {
        if self.is_failing.load(Ordering::Relaxed)
            && let Some(failure) = &mut *self.failure.lock()
        {
            failure.has_responded = true;
        }
    }

    /// Resets the state once the endpoint responds and no request has failed for a while; returns whether it did.
    pub fn check_recovery(&self, now: Instant) -> bool {
        if !self.is_failing.load(Ordering::Relaxed) {
            return false;
        }
        let mut failure = self.failure.lock();
        let is_over = |failure: &LoggedFailure| failure.has_responded && now - failure.last >= QUIET;
        let is_over = failure.as_ref().is_some_and(is_over);
        if is_over {
            *failure = None;
            self.is_failing.store(false, Ordering::Relaxed);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::monotonic;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failure_and_a_recovery_are_reported_once() {
        let (log, start) = (FailureLog::default(), monotonic());
        log.record_response();
        assert!(!log.check_recovery(start));
        assert!(log.record_failure(start));
        assert!(!log.record_failure(start + SECOND));
        assert!(!log.check_recovery(start + 60 * SECOND), "no response yet");
        log.record_response();
        assert!(log.check_recovery(start + 60 * SECOND));
        assert!(!log.check_recovery(start + 61 * SECOND));
        assert!(log.record_failure(start + 62 * SECOND));
    }

    #[test]
    fn intermittent_failures_are_reported_once() {
        let (log, start) = (FailureLog::default(), monotonic());
        for seconds in 0..100 {
            assert_eq!(log.record_failure(start + seconds * SECOND), seconds == 0);
            log.record_response();
            assert!(!log.check_recovery(start + seconds * SECOND + SECOND / 2));
        }
        assert!(!log.check_recovery(start + 103 * SECOND));
        assert!(log.check_recovery(start + 104 * SECOND));
    }
}
