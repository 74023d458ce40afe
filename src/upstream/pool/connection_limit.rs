//! The limit of connections to one endpoint over all workers, and the queue of requests that wait for one. Over HTTP/2 each
//! worker has another one, of the streams in its connections to the endpoint.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::connection_use::{ConnectionUse, Wait};
use crate::overload::Turns;

/// How long to skip the search after it found no connection to reclaim: each waiting request repeats it.
const RECLAIM_PAUSE: Duration = Duration::from_millis(50);
/// How long requests have waited when tunnels and open-ended responses give way to them.
const CONTENDED_AFTER: Duration = Duration::from_millis(200);

/// Notifies one worker that requests of other workers wait for connections that it keeps idle, or that endpoints have changed.
pub type WorkerWaker = Arc<Notify>;

/// The limit of connections to one endpoint, shared by all workers. It is locked when a connection is opened or closed;
/// a request over an idle connection only reads whether there are waiters.
#[derive(Debug)]
pub(in crate::upstream) struct ConnectionLimit {
    state: Mutex<ConnectionLimitState>,
    /// The length of the queue, readable without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct ConnectionLimitState {
    max: usize,
    /// Connections that are open or about to be.
    open: Vec<Arc<ConnectionUse>>,
    /// Client addresses take turns.
    waiters: Turns<IpAddr, Waiter>,
    /// The number of the next waiter.
    next_number: u64,
    /// When the last search found no connection to reclaim.
    last_futile_search: Option<Instant>,
    /// Since when requests have waited that may reclaim connections.
    contended_since: Option<Instant>,
}

/// A request that waits for a connection.
#[derive(Debug)]
pub(in crate::upstream) struct Waiter {
    pub number: u64,
    worker: WorkerWaker,
    grant: oneshot::Sender<WaitResult>,
}

/// The result that ends a wait.
#[derive(Debug)]
pub(in crate::upstream) enum WaitResult {
    /// The permit for a new connection.
    Permit(ConnectionPermit),
    /// A released connection of the same worker, which is stored under the waiter's number.
    Connection,
}

/// The waiter at the front of the queue.
#[derive(Debug)]
pub(in crate::upstream) enum NextWaiter {
    /// The queue is empty.
    None,
    /// A waiter of the same worker, removed from the queue.
    Local(Waiter),
    /// A waiter of another worker. Connections don't move between threads, so it can only get the permit.
    Remote,
}

/// The permit for one connection. Dropping it with the connection grants a permit to the next waiter.
#[derive(Debug)]
pub(in crate::upstream) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    connection_use: Arc<ConnectionUse>,
}

/// One client's share of the connections to one endpoint.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Share {
    /// Connections that requests of the client use.
    pub held: usize,
    /// The limit of connections.
    pub max: usize,
    /// Whether requests of other clients wait.
    pub others_wait: bool,
}

impl ConnectionLimit {
    pub fn new(max: usize) -> Arc<Self> {
        let state = ConnectionLimitState { max, ..ConnectionLimitState::default() };
        Arc::new(Self { state: Mutex::new(state), waiting: AtomicUsize::new(0) })
    }

    /// A permit, if one is free and no request waits for it.
    pub fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut state = self.state.lock();
        state.has_free().then(|| self.new_permit(&mut state))
    }

    /// A permit even if none is free.
    pub fn acquire_over_limit(self: &Arc<Self>) -> ConnectionPermit {
        self.new_permit(&mut self.state.lock())
    }

    /// Changes the limit: of streams it depends on the connections.
    pub fn set_max(self: &Arc<Self>, max: usize) {
        let mut state = self.state.lock();
        state.max = max;
        self.grant_free(state);
    }

    fn new_permit(self: &Arc<Self>, state: &mut ConnectionLimitState) -> ConnectionPermit {
        let connection_use = Arc::new(ConnectionUse::new());
        state.open.push(Arc::clone(&connection_use));
        ConnectionPermit { limit: Arc::clone(self), connection_use }
    }

    /// Whether [`ConnectionLimit::try_acquire`] would return a permit.
    pub fn has_free(&self) -> bool {
        self.state.lock().has_free()
    }

    /// The number of connections that are open or about to be.
    pub fn open_connections(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Whether any request waits.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// This client's share of the connections.
    pub fn share(&self, client: IpAddr) -> Share {
        let state = self.state.lock();
        Share { held: state.count(client), max: state.max, others_wait: state.waiters.has_others(client) }
    }

    /// Takes a connection for a waiting request of `client` from a client that has more than a quarter of all, and makes
    /// that request the next one; returns whether there was one. The connections of slow clients come first, then
    /// tunnels and open-ended responses, then those whose servers send nothing. For the last two the other client must
    /// have two more than `client`. A client that has more than a quarter itself gets none.
    pub fn reclaim(&self, client: IpAddr, now: Instant) -> bool {
        let mut state = self.state.lock();
        if state.last_futile_search.is_some_and(|at| now < at + RECLAIM_PAUSE) {
            return false;
        }
        let (own, max) = (state.count(client), state.max);
        if own * 4 > max {
            return false;
        }
        let mut held = HashMap::<u128, usize>::new();
        for connection in &state.open {
            *held.entry(connection.client()).or_default() += 1;
            if connection.is_reclaimed() {
                // Again: a wake-up while a connection is polled may be lost.
                connection.wake();
            }
            connection.observe(now);
        }
        let held = |client| held.get(&client).copied().unwrap_or(0);
        let is_contended = now >= *state.contended_since.get_or_insert(now) + CONTENDED_AFTER;
        let candidates = state.open.iter().filter_map(|other| {
            let (wait, since) = other.reclaimable(now, is_contended)?;
            let held = held(other.client());
            let has_too_many = held * 4 > max && (wait == Wait::Client || held >= own + 2);
            has_too_many.then_some((wait, since, other))
        });
        // The one that has waited for longest. If it has just continued, the next call finds another.
        let longest = candidates.min_by_key(|(wait, since, _)| (*wait, *since));
        let Some((.., longest)) = longest else {
            state.last_futile_search = Some(now);
            return false;
        };
        let is_reclaimed = longest.reclaim(now, is_contended);
        if is_reclaimed {
            state.waiters.bring_forward(client);
        }
        is_reclaimed
    }

    /// Rejects the newest waiting request of the client with the most of them, in favour of `client`; returns whether one
    /// was rejected.
    pub fn displace(&self, client: IpAddr) -> bool {
        let mut state = self.state.lock();
        // With only one more, the new request would make `client` the one with the most.
        let is_lighter = state.waiters.len_of(client) + 2 <= state.waiters.heaviest();
        let displaced = is_lighter.then(|| state.waiters.pop_newest_of_heaviest()).flatten();
        self.publish_waiting(&mut state);
        drop(state);
        // Dropping the sender of its channel rejects the displaced request.
        displaced.is_some()
    }

    /// Joins the queue behind other requests of the same client, under the number that is returned.
    pub fn enqueue(
        self: &Arc<Self>,
        worker: &WorkerWaker,
        client: IpAddr,
    ) -> (u64, oneshot::Receiver<WaitResult>) {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        if state.has_free() {
            // A permit was released since the caller checked.
            let permit = self.new_permit(&mut state);
            drop(state);
            // This can't fail: the receiver still exists.
            let _ = grant.send(WaitResult::Permit(permit));
            return (number, granted);
        }
        state.waiters.push(client, number, Waiter { number, worker: Arc::clone(worker), grant });
        self.publish_waiting(&mut state);
        (number, granted)
    }

    /// Leaves the queue, if the waiter is still in it.
    pub fn dequeue(&self, client: IpAddr, number: u64) {
        let mut state = self.state.lock();
        let waiter = state.waiters.remove(client, number);
        self.publish_waiting(&mut state);
        drop(state);
        drop(waiter);
    }

    /// The waiter that gets a connection which this worker has released.
    pub fn next_waiter(&self, worker: &WorkerWaker) -> NextWaiter {
        let mut state = self.state.lock();
        let Some((_, first)) = state.waiters.front() else { return NextWaiter::None };
        if !Arc::ptr_eq(&first.worker, worker) {
            return NextWaiter::Remote;
        }
        let first = state.waiters.pop_next();
        self.publish_waiting(&mut state);
        first.map_or(NextWaiter::None, |(_, waiter)| NextWaiter::Local(waiter))
    }

    /// Grants the free permits to the next waiters.
    fn grant_free(self: &Arc<Self>, mut state: MutexGuard<'_, ConnectionLimitState>) {
        let mut granted = SmallVec::<[(Waiter, ConnectionPermit); 1]>::new();
        while state.open.len() < state.max
            && let Some((_, waiter)) = state.waiters.pop_next()
        {
            granted.push((waiter, self.new_permit(&mut state)));
        }
        self.publish_waiting(&mut state);
        drop(state);
        for (waiter, permit) in granted {
            // If that request has stopped waiting, the permit is dropped here, and goes to the one after it.
            let _ = waiter.grant(WaitResult::Permit(permit));
        }
    }

    fn publish_waiting(&self, state: &mut ConnectionLimitState) {
        if state.waiters.is_empty() {
            state.contended_since = None;
        }
        self.waiting.store(state.waiters.len(), Ordering::Relaxed);
    }
}

impl ConnectionLimitState {
    /// The connections that requests of this client use.
    fn count(&self, client: IpAddr) -> usize {
        self.open.iter().filter(|connection| connection.is_used_by(client)).count()
    }

    /// Whether a permit is free, and no request waits for it.
    fn has_free(&self) -> bool {
        self.open.len() < self.max && self.waiters.is_empty()
    }
}

impl ConnectionPermit {
    /// The use of the connection.
    pub fn connection_use(&self) -> &Arc<ConnectionUse> {
        &self.connection_use
    }
}

impl Waiter {
    /// Ends the wait; returns whether the request still waited.
    pub fn grant(self, grant: WaitResult) -> bool {
        self.grant.send(grant).is_ok()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let limit = &self.limit;
        let mut state = limit.state.lock();
        if let Some(own) = state.open.iter().position(|other| Arc::ptr_eq(other, &self.connection_use)) {
            state.open.swap_remove(own);
        }
        limit.grant_free(state);
    }
}

#[cfg(test)]
mod tests;
