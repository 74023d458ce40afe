//! The breaker before the store: when nothing comes back, nothing more is sent, and nobody waits.
//!
//! Failures in a row open it. While it is open the worker's keeper probes the store now and then; the first answer
//! closes it, on trial: until a request has been answered too, one failure opens it again. Where several proxies share the
//! store, the trial also lasts until all of them have had the time to notice and to charge what they admitted. The keeper
//! also probes an idle store, so that a failure is known before a request needs the store.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::{Store, StoreError};
use crate::time::{Micros, cached_now, monotonic};

/// So many failures in a row open it. Each may have kept a request waiting for the deadline; a store that misses
/// one now and then should not lose all others for it.
const FAILURES: u32 = 10;
/// They must span so much time: many requests go in one call, and it is one hiccup that fails all of them. A lost
/// connection is often there again sooner.
const SPAN: Duration = Duration::from_millis(100);
/// Between two probes. Longer than the client library's patience with a silent server, so that it notices and
/// connects anew: it does not while something is being sent.
const PAUSE: Duration = Duration::from_millis(500);
/// A store that has answered nobody for so long is probed. Every worker does that, also of a hundred idle proxies.
const IDLE: Duration = Duration::from_secs(5);
/// How long the first connection may take before it counts as a failure.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the log does not say again that some calls are refused.
const SILENCE: Duration = Duration::from_mins(1);
/// After so long without an answer, looked at after each probe, the connection is built anew, whatever it believes of
/// itself.
const RECONNECT: Duration = Duration::from_millis(750);

/// One worker's breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    all: Arc<Breakers>,
    /// How long a trial lasts at least.
    trial: Duration,
    failures: Cell<u32>,
    /// When the row of failures began.
    since: Cell<Option<Instant>>,
    /// When the next probe is due; none while it is closed.
    probe: Cell<Option<Instant>>,
    /// While it is on trial: when the first answer ends that.
    trial_until: Cell<Option<Instant>>,
    /// Whether there was an answer since the keeper looked last.
    has_heard: Cell<bool>,
    /// What a call was refused with, while it was closed.
    refused: RefCell<Option<String>>,
    opened: Notify,
}

/// The breakers of all workers. One on trial counts as open here: the log says so when the first opens, and when
/// none is open any more.
#[derive(Debug, Default)]
pub struct Breakers {
    open: AtomicUsize,
    openings: AtomicU64,
    /// When the log said last that some calls are refused.
    refused: Mutex<Option<Instant>>,
}

impl Breakers {
    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many times one has opened since the start.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }
}

impl Breaker {
    /// One of these, whose trials last so long at least.
    pub fn of(all: &Arc<Breakers>, trial: Duration) -> Self {
        let mut breaker = Self::default();
        (breaker.all, breaker.trial) = (Arc::clone(all), trial);
        breaker
    }

    /// Whether no worker of this process has one that is open or on trial.
    pub fn are_all_closed(&self) -> bool {
        self.all.open() == 0
    }

    /// Whether nothing is to be sent.
    pub fn is_open(&self) -> bool {
        self.probe.get().is_some()
    }

    /// Time until the next probe.
    pub fn until_probe(&self) -> Micros {
        let left = self.probe.get().map(|due| due.saturating_duration_since(cached_now()));
        left.map_or(Micros::ZERO, Micros::from)
    }

    /// A request was answered.
    pub fn answered(&self) {
        self.has_heard.set(true);
        if self.failures.replace(0) > 0 {
            self.since.set(None);
        }
        self.end_trial();
    }

    /// Ends a trial that has lasted long enough; a request was answered since.
    fn end_trial(&self) {
        if self.trial_until.get().is_some_and(|until| until <= cached_now()) {
            self.trial_until.set(None);
            if self.all.open.fetch_sub(1, Ordering::Relaxed) == 1 {
                tracing::info!("the store answers again");
            }
        }
    }

    /// A request was not, which may open it.
    pub fn failed(&self, error: &StoreError) {
        if let StoreError::Busy | StoreError::SlotMoving = error {
            // It was not asked, or is only waiting for a slot.
            return;
        }
        if let StoreError::Refused(words) = error {
            self.refused.borrow_mut().get_or_insert_with(|| words.clone());
        }
        let lasts = self.lasts();
        // Where there is no connection there is nothing to try.
        let is_out = self.failures.get() >= FAILURES || matches!(error, StoreError::Away(_));
        if lasts && is_out {
            self.open(error);
        }
    }

    /// Counts a failure, and says whether the row of them is more than a hiccup.
    fn lasts(&self) -> bool {
        let now = cached_now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        self.failures.set(self.failures.get().saturating_add(1));
        now.saturating_duration_since(since) >= SPAN
    }

    /// Opens it because of `error`.
    pub fn open(&self, error: &StoreError) {
        if self.is_open() {
            return;
        }
        let now = cached_now();
        self.since.set(self.since.get().or(Some(now)));
        self.probe.set(Some(now + PAUSE));
        self.opened.notify_one();
        self.refused.take();
        self.all.openings.fetch_add(1, Ordering::Relaxed);
        if self.trial_until.take().is_none() && self.all.open.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "the store can't be asked: {error}; each limit does what its on_store_failure says"
            );
        }
    }

    /// Says that calls were refused while others were answered, as by one node of a cluster.
    fn say_refused(&self) {
        let Some(words) = self.refused.take() else { return };
        let (now, mut said) = (cached_now(), self.all.refused.lock());
        if said.is_none_or(|said| now.saturating_duration_since(said) >= SILENCE) {
            *said = Some(now);
            tracing::warn!(
                "the store refuses some calls: {words}; each limit does what its on_store_failure says"
            );
        }
    }

    /// Lets requests through again, on trial: the row of failures goes on.
    pub fn close(&self) {
        self.failures.set(FAILURES - 1);
        self.trial_until.set(Some(cached_now() + self.trial));
        self.probe.set(None);
    }

    /// Asks the store for the first time: who comes after that need not find out by waiting whether it is there.
    pub async fn begin(&self, store: &Store) {
        let reached = match store.wait_connected(PATIENCE).await {
            Ok(()) => store.probe().await,
            Err(error) => Err(error),
        };
        match reached {
            Ok(()) => self.answered(),
            Err(error) => self.open(&error),
        }
    }

    /// Waits until it is open; a store that nobody asks meanwhile is probed. A probe that fails is worth as many
    /// requests as it takes, if the next one fails too.
    pub async fn opened(&self, store: &Store) {
        let mut heard = monotonic();
        loop {
            // It wakes up at once when a request opens it.
            let _ = tokio::time::timeout(PAUSE, self.opened.notified()).await;
            let now = monotonic();
            if self.is_open() {
                return;
            }
            if self.has_heard.replace(false) {
                heard = now;
            }
            // A failure may have been the last word, and a trial nobody takes part in.
            if self.failures.get() == 0 {
                self.end_trial();
                self.say_refused();
                if now.saturating_duration_since(heard) < IDLE {
                    continue;
                }
            }
            match store.probe().await {
                Ok(()) => self.answered(),
                Err(error) if self.lasts() => self.open(&error),
                Err(_) => {}
            }
        }
    }

    /// Waits until a probe is answered; it stays open.
    pub async fn recovered(&self, store: &Store) {
        let mut reconnect = reconnect_at();
        loop {
            tokio::time::sleep(PAUSE).await;
            self.probe.set(Some(monotonic() + PAUSE));
            match store.probe().await {
                Ok(()) => return,
                // It answers, and would say the same over another connection.
                Err(StoreError::Refused(_)) => reconnect = reconnect_at(),
                Err(_) if monotonic() >= reconnect => {
                    store.reconnect();
                    reconnect = reconnect_at();
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        if self.is_open() || self.trial_until.get().is_some() {
            self.all.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// When a connection is given up that does not come back; not all workers and proxies at once.
fn reconnect_at() -> Instant {
    monotonic() + RECONNECT + RECONNECT.mul_f64(fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Memory;
    use crate::time::Clock;

    fn away() -> StoreError {
        StoreError::Away("nobody is there".to_owned())
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
        let _ = monotonic();
    }

    /// A store in this process always answers.
    fn store() -> Store {
        Store::Memory(Arc::new(Memory::new(1, Clock::System)))
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_single_ones_do_not() {
        let breaker = Breaker::default();
        let fails = |error| {
            breaker.failed(&error);
            breaker.is_open()
        };
        for _ in 0..3 {
            for _ in 1..FAILURES {
                assert!(!fails(StoreError::Deadline));
                pass(SPAN / 4).await;
            }
            breaker.answered();
        }
        // One hiccup, however many were waiting for it.
        for _ in 0..5 * FAILURES {
            assert!(!fails(StoreError::Deadline));
        }
        pass(SPAN).await;
        assert!(!fails(StoreError::Busy));
        assert!(fails(StoreError::Deadline));
        assert!(breaker.until_probe() > Micros::ZERO);
        assert!(fails(StoreError::Deadline));
        assert_eq!((breaker.all.open(), breaker.all.openings()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_soon_there_again_does_not_open_it_and_one_that_is_not_does() {
        let breaker = Breaker::default();
        (0..5 * FAILURES).for_each(|_| breaker.failed(&away()));
        assert!(!breaker.is_open());
        breaker.answered();
        breaker.failed(&away());
        pass(SPAN).await;
        breaker.failed(&away());
        assert!(breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn it_closes_on_trial() {
        let breaker = Breaker::default();
        breaker.open(&away());
        for _ in 0..3 {
            breaker.recovered(&store()).await;
            assert!(breaker.is_open());
            breaker.close();
            assert!(!breaker.is_open());
            // Nothing is well yet.
            assert_eq!(breaker.all.open(), 1);
            pass(SPAN).await;
            breaker.failed(&StoreError::Deadline);
            assert!(breaker.is_open());
        }
        breaker.recovered(&store()).await;
        breaker.close();
        breaker.answered();
        pass(SPAN).await;
        breaker.failed(&StoreError::Deadline);
        assert!(!breaker.is_open());
        assert_eq!((breaker.all.open(), breaker.all.openings()), (0, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_lasts_as_long_as_other_proxies_may_take_to_recover() {
        let breaker = Breaker::of(&Arc::default(), 4 * SPAN);
        breaker.open(&away());
        breaker.close();
        for _ in 0..4 {
            breaker.answered();
            assert!(!breaker.is_open() && !breaker.are_all_closed());
            pass(SPAN).await;
        }
        breaker.answered();
        assert!(breaker.are_all_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_moves_is_no_failure() {
        let breaker = Breaker::default();
        for _ in 0..5 * FAILURES {
            breaker.failed(&StoreError::SlotMoving);
            pass(SPAN).await;
        }
        assert!(!breaker.is_open() && breaker.failures.get() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_gone_is_not_counted() {
        let all = Arc::default();
        let (first, second) = (Breaker::of(&all, Duration::ZERO), Breaker::of(&all, Duration::ZERO));
        first.open(&away());
        second.open(&away());
        assert_eq!(all.open(), 2);
        drop(first);
        second.close();
        drop(second);
        assert_eq!(all.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_keeper_ends_a_trial_that_nobody_takes_part_in() {
        let breaker = Breaker::default();
        breaker.open(&away());
        breaker.close();
        let store = store();
        // It waits for ever for a store that answers.
        let watching = tokio::time::timeout(PAUSE + SPAN, breaker.opened(&store));
        assert!(watching.await.is_err());
        assert_eq!(breaker.all.open(), 0);
    }
}
