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
pub(super) struct Failing {
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

impl Failing {
    /// Notes that a request has failed; says whether that is the beginning.
    pub fn begin(&self, now: Instant) -> bool {
        let mut failure = self.failure.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        failure.replace(Failure { last: now, has_responded: false }).is_none()
    }

    /// Notes that the server has responded to a request.
    pub fn responded(&self) {
        if self.is_failing.load(Ordering::Relaxed)
            && let Some(failure) = &mut *self.failure.lock()
        {
            failure.has_responded = true;
        }
    }

    /// Ends it if the server responds and no request has failed for a while; says whether that is so.
    pub fn end(&self, now: Instant) -> bool {
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
        let (failing, start) = (Failing::default(), monotonic());
        failing.responded();
        assert!(!failing.end(start));
        assert!(failing.begin(start));
        assert!(!failing.begin(start + SECOND));
        assert!(!failing.end(start + 60 * SECOND), "it has not responded");
        failing.responded();
        assert!(failing.end(start + 60 * SECOND));
        assert!(!failing.end(start + 61 * SECOND));
        assert!(failing.begin(start + 62 * SECOND));
    }

    #[test]
    fn one_that_fails_now_and_then_is_failing_all_the_time() {
        let (failing, start) = (Failing::default(), monotonic());
        for seconds in 0..100 {
            assert_eq!(failing.begin(start + seconds * SECOND), seconds == 0);
            failing.responded();
            assert!(!failing.end(start + seconds * SECOND + SECOND / 2));
        }
        assert!(!failing.end(start + 103 * SECOND));
        assert!(failing.end(start + 104 * SECOND));
    }
}
