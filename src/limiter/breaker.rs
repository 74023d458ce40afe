//! The circuit breaker before the store: while the store does not reply, no requests are sent to it, so none wait.
//!
//! Consecutive failures open it. While it is open, the worker's maintenance probes the store periodically; the first reply
//! closes it on trial (half-open): until a request has had a reply too, one failure opens it again. If several proxies share
//! the store, the trial also lasts until all of them have had the time to notice and to pay their debts. An idle store is
//! probed as well, so that a failure is known before a request needs the store.
//!
//! Error replies of a cluster open the breaker only if a probe fails as well: a node may fail for its keys alone, and requests
//! for the keys of other nodes may be rare, since held grants decide most of them.
//!
//! Each worker has one for each server of the store. Ten failures in a row within at least 100 ms, or a connection that is missing
//! for 100 ms, open it. A request that was not sent does not count as a failure, so a short stall does not open it, however many
//! requests fail; if the server is still stalled half a second after the first failure, a failed probe does. Then only probes are sent,
//! and each limit follows `on_store_failure` without waiting. A probe is a real charge, so that a server that can't write fails
//! it too. A successful probe makes the breaker half-open ("on trial"), and only a successful request closes it: the log has
//! one line for each change even if a slow store replies to every probe. Probes also run before the worker accepts connections,
//! after a failure that no request followed, and when the store was silent for five seconds.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::{Store, StoreError};
use crate::time::{Micros, cached_now, monotonic};

/// How many consecutive failures open the breaker. Each may have delayed a request by the whole timeout; but a store that
/// misses single deadlines must not lose all other requests.
const FAILURES: u32 = 10;
/// The time that the failures must span: many requests share a call, and one hiccup fails them all. A lost connection is
/// often replaced sooner.
const SPAN: Duration = Duration::from_millis(100);
/// The interval of probes. Longer than the client library's timeout of an unresponsive server, which it does not detect
/// while commands are being sent.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// A store without a reply for so long is probed, by every worker; earlier if another connection has had no reply.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the first connection may take before it counts as a failure.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The least interval between log messages about error replies.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// After so long without a reply, checked after each probe, the connection is replaced, even if it seems to be open.
const RECONNECT_AFTER: Duration = Duration::from_millis(750);

/// One worker's breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    all: Arc<Breakers>,
    /// The least duration of a trial.
    trial: Duration,
    /// Whether the store has several nodes, which fail independently.
    has_several_nodes: bool,
    failures: Cell<u32>,
    /// When the first of the consecutive failures was.
    first_failure: Cell<Option<Instant>>,
    /// When the next probe is due; `None` while the breaker is closed.
    probe: Cell<Option<Instant>>,
    /// On trial: when a reply may end it.
    trial_until: Cell<Option<Instant>>,
    /// Whether other proxies may owe the store units.
    debts_of_others: Cell<DebtsOfOthers>,
    /// The last reply since the last check.
    replied: Cell<Option<Instant>>,
    /// An error reply while the breaker was closed.
    error_reply: RefCell<Option<String>>,
    opened: Notify,
    /// Notified at the first of consecutive failures, after which the store is probed.
    failed: Notify,
}

/// Whether other proxies may have admitted requests without the store, and not have paid for them yet, although the breaker of
/// this worker has not opened: in the same time, a proxy with more requests has more failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DebtsOfOthers {
    /// They owe nothing.
    #[default]
    None,
    /// Calls fail, and no reply has shown yet that this was only a hiccup.
    Possible,
    /// Calls have failed for long enough to open a breaker; after this time all debts are taken to be paid.
    Until(Instant),
}

/// The breakers of all workers. A breaker on trial counts as open here: a message is logged when the first opens, and when
/// the last closes.
#[derive(Debug, Default)]
pub struct Breakers {
    /// The address of the server, if the store has several.
    server: Option<Box<str>>,
    open: AtomicUsize,
    /// How many workers have seen failures for which other proxies may owe units.
    unsettled: AtomicUsize,
    openings: AtomicU64,
    /// When error replies were last logged.
    logged: Mutex<Option<Instant>>,
    /// Notified when a connection beside those of the workers has had no reply.
    suspected: Notify,
}

impl Breakers {
    /// The breakers before one of several servers, with its address.
    #[must_use]
    pub(super) fn of_server(address: String) -> Self {
        Self { server: Some(address.into()), ..Self::default() }
    }

    /// The address of the server, if the store has several.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The store, or the server of several, in messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.server.as_ref().map_or_else(|| "the store".to_owned(), |server| format!("the store at {server}"))
    }

    /// What follows `on_store_failure` while it is unavailable.
    fn affected(&self) -> &'static str {
        if self.server.is_some() { "for its keys each limit" } else { "each limit" }
    }

    /// How many breakers are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Makes every worker probe the store: a connection beside theirs has had no reply.
    pub(super) fn suspect(&self) {
        self.suspected.notify_waiters();
    }

    /// How often a breaker has opened since the start.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }
}

impl Breaker {
    /// A closed breaker, whose trials last for `trial` at least.
    pub fn new(all: &Arc<Breakers>, trial: Duration, has_several_nodes: bool) -> Self {
        let mut breaker = Self::default();
        (breaker.all, breaker.trial) = (Arc::clone(all), trial);
        breaker.has_several_nodes = has_several_nodes;
        breaker
    }

    /// Whether no breaker of this process is open or on trial, and no failed calls suggest that other proxies owe units.
    pub fn are_all_settled(&self) -> bool {
        self.all.open() == 0 && self.all.unsettled.load(Ordering::Relaxed) == 0
    }

    /// Whether the breaker is open: then only probes are sent.
    pub fn is_open(&self) -> bool {
        self.probe.get().is_some()
    }

    /// Time until the next probe.
    pub fn until_probe(&self) -> Micros {
        let left = self.probe.get().map(|due| due.saturating_duration_since(cached_now()));
        left.map_or(Micros::ZERO, Micros::from)
    }

    /// Records the reply to a request.
    pub fn record_success(&self) {
        self.replied.set(Some(cached_now()));
        if self.failures.replace(0) > 0
            && let Some(first) = self.first_failure.take()
        {
            self.judge_failures(cached_now().saturating_duration_since(first));
        }
        self.end_trial();
    }

    /// Judges by how long calls have failed whether other proxies may owe units. A hiccup after an outage does not end the wait
    /// for them.
    fn judge_failures(&self, length: Duration) {
        match self.debts_of_others.get() {
            DebtsOfOthers::None => {}
            _ if length >= SPAN => self.set_debts_of_others(DebtsOfOthers::Until(cached_now() + self.trial)),
            DebtsOfOthers::Possible => self.set_debts_of_others(DebtsOfOthers::None),
            DebtsOfOthers::Until(_) => {}
        }
    }

    fn set_debts_of_others(&self, debts: DebtsOfOthers) {
        let before = self.debts_of_others.replace(debts);
        match (before, debts) {
            (DebtsOfOthers::None, DebtsOfOthers::None) => {}
            (DebtsOfOthers::None, _) => drop(self.all.unsettled.fetch_add(1, Ordering::Relaxed)),
            (_, DebtsOfOthers::None) => drop(self.all.unsettled.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Ends a trial that has lasted long enough, after a reply.
    fn end_trial(&self) {
        if matches!(self.debts_of_others.get(), DebtsOfOthers::Until(until) if until <= cached_now()) {
            self.set_debts_of_others(DebtsOfOthers::None);
        }
        if self.trial_until.get().is_some_and(|until| until <= cached_now()) {
            self.trial_until.set(None);
            if self.all.open.fetch_sub(1, Ordering::Relaxed) == 1 {
                tracing::info!("{} is available again", self.all.name());
            }
        }
    }

    /// Records the failure of a request, which may open the breaker.
    pub fn record_failure(&self, error: &StoreError) {
        if let StoreError::QueueFull | StoreError::Unsent | StoreError::SlotMoving = error {
            // Not sent, which only follows from a call without a reply, or delayed by the migration of a slot.
            return;
        }
        if let StoreError::ErrorReply(message) = error {
            self.error_reply.borrow_mut().get_or_insert_with(|| message.clone());
            self.failed.notify_one();
            if self.has_several_nodes {
                // Nothing waits for such a reply; `wait_until_open` probes the other nodes.
                return;
            }
        }
        let is_long = self.count_failure();
        // Without a connection further attempts are pointless.
        let is_enough = self.failures.get() >= FAILURES || matches!(error, StoreError::NotConnected(_));
        if is_long && is_enough {
            self.open(error);
        }
    }

    /// Counts a failure; returns whether the consecutive failures span more than a hiccup.
    fn count_failure(&self) -> bool {
        let now = cached_now();
        let first = self.first_failure.get().unwrap_or(now);
        self.first_failure.set(Some(first));
        if self.trial > Duration::ZERO && self.debts_of_others.get() == DebtsOfOthers::None {
            self.set_debts_of_others(DebtsOfOthers::Possible);
        }
        if self.failures.get() == 0 {
            self.failed.notify_one();
        }
        self.failures.set(self.failures.get().saturating_add(1));
        now.saturating_duration_since(first) >= SPAN
    }

    /// Opens the breaker because of `error`.
    pub fn open(&self, error: &StoreError) {
        if self.is_open() {
            return;
        }
        let now = cached_now();
        self.first_failure.set(self.first_failure.get().or(Some(now)));
        self.probe.set(Some(now + PROBE_INTERVAL));
        self.opened.notify_one();
        self.error_reply.take();
        self.all.openings.fetch_add(1, Ordering::Relaxed);
        if self.trial_until.take().is_none() && self.all.open.fetch_add(1, Ordering::Relaxed) == 0 {
            let (store, limits) = (self.all.name(), self.all.affected());
            tracing::warn!("{store} is unavailable: {error}; {limits} follows its on_store_failure");
        }
    }

    /// Logs that some calls had error replies while others succeeded, as when one node of a cluster fails.
    fn log_error_replies(&self) {
        let Some(message) = self.error_reply.take() else { return };
        let (now, mut logged) = (cached_now(), self.all.logged.lock());
        if logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_INTERVAL) {
            *logged = Some(now);
            let (store, limits) = (self.all.name(), self.all.affected());
            tracing::warn!("some calls to {store} fail: {message}; {limits} follows its on_store_failure");
        }
    }

    /// Closes the breaker on trial: one more failure opens it.
    pub fn close(&self) {
        self.failures.set(FAILURES - 1);
        self.trial_until.set(Some(cached_now() + self.trial));
        self.probe.set(None);
        // The trial lasts as long as other proxies may owe units.
        self.set_debts_of_others(DebtsOfOthers::None);
    }

    /// Connects and probes the store for the first time, so that the first requests need not wait for an unavailable store.
    pub async fn connect(&self, store: &Store) {
        let reached = match store.wait_connected(CONNECT_TIMEOUT).await {
            Ok(()) => store.probe().await,
            Err(error) => Err(error),
        };
        match reached {
            Ok(()) => self.record_success(),
            Err(error) => self.open(&error),
        }
    }

    /// Waits until the breaker is open, and meanwhile probes the store if it is idle. Failed probes alone open the breaker
    /// if they span more than a hiccup.
    pub async fn wait_until_open(&self, store: &Store) {
        let mut last_reply = monotonic();
        loop {
            let is_suspected = self.wait_until_due(last_reply).await;
            let now = monotonic();
            if self.is_open() {
                return;
            }
            let reply = self.replied.take();
            let has_reply = reply.is_some();
            last_reply = reply.unwrap_or(last_reply);
            // After a failure the store is probed, since no request may follow. A trial without requests ends here.
            let is_unanswered = !has_reply && self.error_reply.borrow().is_some();
            if self.failures.get() == 0 && !is_unanswered {
                self.end_trial();
                self.log_error_replies();
                if !is_suspected && now.saturating_duration_since(last_reply) < IDLE_TIMEOUT {
                    continue;
                }
            }
            match store.probe().await {
                Ok(()) => {
                    self.record_success();
                    self.log_error_replies();
                }
                // The first probes are early, and a short stall must not open the breaker.
                Err(error) if self.count_failure() && self.failing_for() >= PROBE_INTERVAL => {
                    self.open(&error);
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until the state is to be checked: when the breaker opens, periodically after a failure and on trial, and
    /// otherwise when the store has been idle for long enough, or is suspected to have failed; returns whether it is.
    async fn wait_until_due(&self, last_reply: Instant) -> bool {
        let has_failed = || self.failures.get() > 0 || self.error_reply.borrow().is_some();
        let is_settled = self.debts_of_others.get() == DebtsOfOthers::None;
        if !has_failed() && is_settled && self.trial_until.get().is_none() {
            let idle = (last_reply + IDLE_TIMEOUT).max(monotonic() + PROBE_INTERVAL);
            tokio::select! {
                () = tokio::time::sleep_until(idle) => return false,
                () = self.opened.notified() => return false,
                () = self.all.suspected.notified() => return true,
                () = self.failed.notified() => {}
            }
        }
        // After a hiccup no request may follow, which would show that it was one.
        let is_early = self.debts_of_others.get() == DebtsOfOthers::Possible && self.failing_for() < SPAN;
        let pause = if is_early { SPAN / 2 } else { PROBE_INTERVAL };
        // Returns at once when a request opens the breaker.
        let _ = tokio::time::timeout(pause, self.opened.notified()).await;
        false
    }

    /// How long calls have failed.
    fn failing_for(&self) -> Duration {
        self.first_failure.get().map_or(Duration::ZERO, |first| monotonic().saturating_duration_since(first))
    }

    /// Waits until a probe succeeds; the breaker stays open.
    pub async fn wait_until_recovered(&self, store: &Store) {
        let mut reconnect = reconnect_at();
        loop {
            tokio::time::sleep(PROBE_INTERVAL).await;
            self.probe.set(Some(monotonic() + PROBE_INTERVAL));
            match store.probe().await {
                Ok(()) => return,
                // The server replies, so another connection would not help.
                Err(StoreError::ErrorReply(_)) => reconnect = reconnect_at(),
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
        self.set_debts_of_others(DebtsOfOthers::None);
    }
}

/// When a connection without replies is replaced; jittered, so that workers and proxies do not reconnect all at once.
fn reconnect_at() -> Instant {
    monotonic() + RECONNECT_AFTER + RECONNECT_AFTER.mul_f64(fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests;
