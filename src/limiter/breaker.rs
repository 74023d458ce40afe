//! The breaker before the store: when nothing comes back, nothing more is sent, and nobody waits.
//!
//! Failures in a row open it. While it is open the worker's keeper probes the store now and then; the first answer
//! closes it, on trial: until a request has been answered too, one failure opens it again.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::{Store, StoreError};
use crate::time::{Micros, monotonic, recent};

/// So many failures in a row open it. Each may have kept a request waiting for the deadline; a store that misses
/// one now and then should not lose all others for it.
const FAILURES: u32 = 10;
/// They must span so much time: many requests go in one call, and it is one hiccup that fails all of them.
const SPAN: Duration = Duration::from_millis(100);
/// Between two probes. Longer than the client library's patience with a silent server, so that it notices and
/// connects anew: it does not while something is being sent.
const PAUSE: Duration = Duration::from_millis(500);

/// One worker's breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: Cell<u32>,
    /// When the row of failures began.
    since: Cell<Option<Instant>>,
    /// When the next probe is due; none while it is closed.
    probe: Cell<Option<Instant>>,
    opened: Notify,
}

impl Breaker {
    /// Whether nothing is to be sent.
    pub fn is_open(&self) -> bool {
        self.probe.get().is_some()
    }

    /// Time until the next probe.
    pub fn until_probe(&self) -> Micros {
        let left = self.probe.get().map(|due| due.saturating_duration_since(recent()));
        left.map_or(Micros::ZERO, Micros::from)
    }

    /// A request was answered.
    pub fn answered(&self) {
        if self.failures.replace(0) > 0 {
            self.since.set(None);
        }
    }

    /// A request was not; says whether that opens it. Where there is no connection there is nothing to try.
    pub fn failed(&self, error: &StoreError) -> bool {
        if let StoreError::Busy = error {
            // It was not asked.
            return false;
        }
        let now = recent();
        let since = self.since.get().unwrap_or(now);
        let failures = self.failures.get() + 1;
        self.failures.set(failures);
        self.since.set(Some(since));
        let is_out = failures >= FAILURES && now.saturating_duration_since(since) >= SPAN;
        if self.is_open() || !(is_out || matches!(error, StoreError::Away)) {
            return false;
        }
        self.probe.set(Some(now + PAUSE));
        self.opened.notify_one();
        true
    }

    /// Waits until it is open, and then until a probe is answered, which closes it.
    pub async fn reopened(&self, store: &Store) {
        self.opened.notified().await;
        while self.is_open() {
            tokio::time::sleep(PAUSE).await;
            self.probe.set(Some(monotonic() + PAUSE));
            if store.probe().await.is_ok() {
                // On trial: the row of failures goes on.
                self.failures.set(FAILURES - 1);
                self.probe.set(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::Memory;
    use crate::time::Clock;

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_single_ones_do_not() {
        let breaker = Breaker::default();
        let pass = || async {
            tokio::time::advance(SPAN / 4).await;
            let _ = monotonic();
        };
        for _ in 0..3 {
            for _ in 1..FAILURES {
                assert!(!breaker.failed(&StoreError::Deadline));
                pass().await;
            }
            breaker.answered();
        }
        // One hiccup, however many were waiting for it.
        for _ in 0..5 * FAILURES {
            assert!(!breaker.failed(&StoreError::Deadline));
        }
        for _ in 0..4 {
            pass().await;
        }
        assert!(breaker.failed(&StoreError::Deadline) && breaker.is_open());
        assert!(!breaker.failed(&StoreError::Deadline));
        assert!(breaker.until_probe() > Micros::ZERO);
    }

    #[test]
    fn without_a_connection_it_opens_at_once() {
        assert!(Breaker::default().failed(&StoreError::Away));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_answered_closes_it_on_trial() {
        let breaker = Breaker::default();
        breaker.failed(&StoreError::Away);
        // A store in this process always answers.
        let store = Store::Memory(Arc::new(Memory::new(1, Clock::System)));
        breaker.reopened(&store).await;
        assert!(!breaker.is_open());
        assert!(breaker.failed(&StoreError::Deadline));
        breaker.reopened(&store).await;
        breaker.answered();
        assert!(!breaker.failed(&StoreError::Deadline));
    }
}
