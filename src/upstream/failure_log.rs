//! Whether requests fail at a server, so that the log has one line when that begins and one when it is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// For so long no request may have failed before a server counts as well again: one that fails now and then would
/// otherwise fill the log.
const QUIET: Duration = Duration::from_secs(5);

/// Whether requests fail at one address of a server, as all workers see it.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// Read without the lock by those who see the server respond.
    is_failing: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

#[derive(Debug)]
struct Failure {
    last: Instant,
    /// Whether the server has responded to a request since.
    has_responded: bool,
}

impl FailureLog {
    /// Notes that a request has failed; says whether that is the beginning.
    pub fn record_failure(&self, now: Instant) -> bool {
        let mut failure = self.failure.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        failure.replace(Failure { last: now, has_responded: false }).is_none()
    }

    /// Notes that the server has responded to a request.
    pub fn record_response(&self) {
        if self.is_failing.load(Ordering::Relaxed)
            && let Some(failure) = &mut *self.failure.lock()
        {
            failure.has_responded = true;
        }
    }

    /// Ends it if the server responds and no request has failed for a while; says whether that is so.
    pub fn check_recovery(&self, now: Instant) -> bool {
        if !self.is_failing.load(Ordering::Relaxed) {
            return false;
        }
        let mut failure = self.failure.lock();
        let is_over = |failure: &Failure| failure.has_responded && now - failure.last >= QUIET;
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
    fn it_begins_and_ends_once() {
        let (failing, start) = (FailureLog::default(), monotonic());
        failing.record_response();
        assert!(!failing.check_recovery(start));
        assert!(failing.record_failure(start));
        assert!(!failing.record_failure(start + SECOND));
        assert!(!failing.check_recovery(start + 60 * SECOND), "it has not responded");
        failing.record_response();
        assert!(failing.check_recovery(start + 60 * SECOND));
        assert!(!failing.check_recovery(start + 61 * SECOND));
        assert!(failing.record_failure(start + 62 * SECOND));
    }

    #[test]
    fn one_that_fails_now_and_then_is_failing_all_the_time() {
        let (failing, start) = (FailureLog::default(), monotonic());
        for seconds in 0..100 {
            assert_eq!(failing.record_failure(start + seconds * SECOND), seconds == 0);
            failing.record_response();
            assert!(!failing.check_recovery(start + seconds * SECOND + SECOND / 2));
        }
        assert!(!failing.check_recovery(start + 103 * SECOND));
        assert!(failing.check_recovery(start + 104 * SECOND));
    }
}
