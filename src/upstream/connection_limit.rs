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
use super::fair_queue::FairQueue;

/// How long to skip the search after it found no connection to reclaim: each waiting request repeats it.
const RECLAIM_PAUSE: Duration = Duration::from_millis(50);
/// How long requests have waited when tunnels and open-ended responses give way to them.
const CONTENDED_AFTER: Duration = Duration::from_millis(200);

/// Notifies one worker that requests of other workers wait for connections that it keeps idle, or that endpoints have changed.
pub type WorkerWaker = Arc<Notify>;

/// The limit of connections to one endpoint, shared by all workers. It is locked when a connection is opened or closed;
/// a request over an idle connection only reads whether there are waiters.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    state: Mutex<LimitState>,
    /// The length of the queue, readable without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct LimitState {
    max: usize,
    /// Connections that are open or about to be.
    open: Vec<Arc<ConnectionUse>>,
    waiters: FairQueue<Waiter>,
    /// The number of the next waiter.
    next_number: u64,
    /// When the last search found no connection to reclaim.
    last_futile_search: Option<Instant>,
    /// Since when requests have waited that may reclaim connections.
    contended_since: Option<Instant>,
}

/// A request that waits for a connection.
#[derive(Debug)]
pub(super) struct Waiter {
    pub number: u64,
    worker: WorkerWaker,
    grant: oneshot::Sender<Grant>,
}

/// The result that ends a wait.
#[derive(Debug)]
pub(super) enum Grant {
    /// The permit for a new connection.
    Permit(ConnectionPermit),
    /// A released connection of the same worker, which is stored under the waiter's number.
    Connection,
}

/// The waiter at the front of the queue.
#[derive(Debug)]
pub(super) enum NextWaiter {
    /// The queue is empty.
    None,
    /// A waiter of the same worker, removed from the queue.
    Local(Waiter),
    /// A waiter of another worker. Connections don't move between threads, so it can only get the permit.
    Remote,
}

/// The permit for one connection. Dropping it with the connection grants a permit to the next waiter.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    connection_use: Arc<ConnectionUse>,
}

/// One client's share of the connections to one endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Connections that requests of the client use.
    pub held: usize,
    /// The limit of connections.
    pub max: usize,
    /// Whether requests of other clients wait.
    pub others_wait: bool,
}

impl ConnectionLimit {
    pub fn new(max: usize) -> Arc<Self> {
        let state = LimitState { max, ..LimitState::default() };
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

    fn new_permit(self: &Arc<Self>, state: &mut LimitState) -> ConnectionPermit {
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
        let displaced = state.waiters.displace(client);
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
    ) -> (u64, oneshot::Receiver<Grant>) {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        if state.has_free() {
            // A permit was released since the caller checked.
            let permit = self.new_permit(&mut state);
            drop(state);
            // This can't fail: the receiver still exists.
            let _ = grant.send(Grant::Permit(permit));
            return (number, granted);
        }
        state.waiters.push(client, Waiter { number, worker: Arc::clone(worker), grant });
        self.publish_waiting(&mut state);
        (number, granted)
    }

    /// Leaves the queue, if the waiter is still in it.
    pub fn dequeue(&self, number: u64) {
        let mut state = self.state.lock();
        state.waiters.retain(|waiter| waiter.number != number);
        self.publish_waiting(&mut state);
    }

    /// The waiter that gets a connection which this worker has released.
    pub fn next_waiter(&self, worker: &WorkerWaker) -> NextWaiter {
        let mut state = self.state.lock();
        let Some(first) = state.waiters.front() else { return NextWaiter::None };
        if !Arc::ptr_eq(&first.worker, worker) {
            return NextWaiter::Remote;
        }
        let first = state.waiters.pop();
        self.publish_waiting(&mut state);
        first.map_or(NextWaiter::None, NextWaiter::Local)
    }

    /// Grants the free permits to the next waiters.
    fn grant_free(self: &Arc<Self>, mut state: MutexGuard<'_, LimitState>) {
        let mut granted = SmallVec::<[(Waiter, ConnectionPermit); 1]>::new();
        while state.open.len() < state.max
            && let Some(waiter) = state.waiters.pop()
        {
            granted.push((waiter, self.new_permit(&mut state)));
        }
        self.publish_waiting(&mut state);
        drop(state);
        for (waiter, permit) in granted {
            // If that request has stopped waiting, the permit is dropped here, and goes to the one after it.
            let _ = waiter.grant(Grant::Permit(permit));
        }
    }

    fn publish_waiting(&self, state: &mut LimitState) {
        if state.waiters.is_empty() {
            state.contended_since = None;
        }
        self.waiting.store(state.waiters.len(), Ordering::Relaxed);
    }
}

impl LimitState {
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
    pub fn grant(self, grant: Grant) -> bool {
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::cached_now;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn permits_are_bounded_and_go_to_the_first_waiter() {
        let (limit, worker) = (ConnectionLimit::new(2), WorkerWaker::default());
        let one = limit.try_acquire().unwrap();
        let _two = limit.try_acquire().unwrap();
        assert!(limit.try_acquire().is_none() && !limit.has_free() && !limit.has_waiters());
        let (_, mut first) = limit.enqueue(&worker, client(1));
        let (number, second) = limit.enqueue(&worker, client(1));
        let (_, mut third) = limit.enqueue(&worker, client(1));
        // A waiter whose receiver is gone is skipped, even before it leaves the queue.
        drop(second);
        drop(one);
        let Ok(Grant::Permit(permit)) = first.try_recv() else { panic!() };
        assert!(third.try_recv().is_err());
        drop(permit);
        assert!(matches!(third.try_recv(), Ok(Grant::Permit(_))));
        limit.dequeue(number);
        assert!(!limit.has_waiters());
        assert_eq!(limit.open_connections(), 1);
        drop(limit.enqueue(&worker, client(1)));
        assert_eq!(limit.open_connections(), 1);
    }

    #[test]
    fn a_released_permit_belongs_to_the_waiter() {
        let (limit, worker) = (ConnectionLimit::new(1), WorkerWaker::default());
        let permit = limit.try_acquire().unwrap();
        let (number, _granted) = limit.enqueue(&worker, client(1));
        assert!(limit.has_waiters());
        drop(permit);
        // Even before the waiter has received it.
        assert!(limit.try_acquire().is_none());
        limit.dequeue(number);
    }

    #[test]
    fn connections_stay_on_their_worker_and_permits_go_to_any() {
        let (limit, here, there) = (ConnectionLimit::new(1), WorkerWaker::default(), WorkerWaker::default());
        let permit = limit.try_acquire().unwrap();
        assert!(matches!(limit.next_waiter(&here), NextWaiter::None));
        let (_, mut first) = limit.enqueue(&there, client(1));
        let (number, mut second) = limit.enqueue(&here, client(1));
        assert!(matches!(limit.next_waiter(&here), NextWaiter::Remote));
        drop(permit);
        let Ok(Grant::Permit(_permit)) = first.try_recv() else { panic!() };
        let NextWaiter::Local(waiter) = limit.next_waiter(&here) else { panic!() };
        assert_eq!(waiter.number, number);
        assert!(waiter.grant(Grant::Connection));
        assert!(matches!(second.try_recv(), Ok(Grant::Connection)));
    }

    #[test]
    fn waiting_clients_take_turns() {
        let (limit, worker) = (ConnectionLimit::new(1), WorkerWaker::default());
        let mut permit = limit.try_acquire();
        let mut granted: Vec<_> =
            [1, 1, 1, 2].map(|number| limit.enqueue(&worker, client(number)).1).into_iter().collect();
        for next in [0, 3, 1, 2] {
            drop(permit.take());
            let Ok(Grant::Permit(next_permit)) = granted[next].try_recv() else { panic!("{next}") };
            permit = Some(next_permit);
        }
    }

    #[test]
    fn connections_are_reclaimed_from_slow_clients_with_more_than_a_quarter() {
        let limit = ConnectionLimit::new(8);
        let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| limit.try_acquire()).collect();
        for (number, permit) in [1, 1, 2, 3, 3, 3, 3, 3].into_iter().zip(&permits) {
            permit.connection_use().start(client(number), false);
        }
        let later = cached_now() + Duration::from_mins(1);
        // Each call is late enough not to be skipped after a search without a result.
        let mut calls = 0;
        let mut next_time = || {
            calls += 1;
            later + calls * RECLAIM_PAUSE
        };
        let reclaimed = || permits.iter().position(|permit| permit.connection_use().is_reclaimed());
        // At first no client is slow, and then only clients that hold at most a quarter.
        assert!(!limit.reclaim(client(4), next_time()));
        let make_slow = |permit: &ConnectionPermit| {
            permit.connection_use().wait_for_client(Some(Duration::from_secs(1)));
        };
        permits[..3].iter().for_each(make_slow);
        assert!(!limit.reclaim(client(4), next_time()));
        make_slow(&permits[6]);
        assert!(!limit.reclaim(client(3), next_time()), "the client has too many itself");
        assert!(!limit.reclaim(client(4), cached_now()), "the connection is not slow yet");
        assert!(limit.reclaim(client(4), next_time()) && reclaimed() == Some(6));
        assert!(!limit.reclaim(client(4), next_time()));
        let share = limit.share(client(3));
        assert_eq!((share.held, share.max, share.others_wait), (5, 8, false));
    }

    #[test]
    fn lasting_and_unanswered_requests_give_way_to_waiting_ones() {
        let limit = ConnectionLimit::new(8);
        let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| limit.try_acquire()).collect();
        for (number, permit) in [1, 1, 2, 2, 2, 3, 3, 3].into_iter().zip(&permits) {
            permit.connection_use().start(client(number), false);
        }
        let reclaimed = || permits.iter().filter(|permit| permit.connection_use().is_reclaimed()).count();
        let begin = cached_now() + Duration::from_secs(1);
        let at = |millis| begin + Duration::from_millis(millis);
        permits[6].connection_use().record_lasting();
        assert!(!limit.reclaim(client(4), at(0)) && reclaimed() == 0);
        // Tunnels and open-ended responses come first.
        assert!(limit.reclaim(client(4), at(250)) && permits[6].connection_use().is_reclaimed());
        // Then requests whose servers have sent nothing for longer, but not for a client with almost as many.
        assert!(!limit.reclaim(client(4), at(300)) && !limit.reclaim(client(1), at(3_000)));
        assert!(limit.reclaim(client(4), at(3_100)) && reclaimed() == 2);
    }

    #[test]
    fn a_reclaimed_connection_goes_to_the_request_that_needed_it() {
        let (limit, worker) = (ConnectionLimit::new(4), WorkerWaker::default());
        let mut permits: Vec<ConnectionPermit> = std::iter::from_fn(|| limit.try_acquire()).collect();
        for permit in &permits {
            permit.connection_use().start(client(1), false);
            permit.connection_use().record_lasting();
        }
        let (_, mut own) = limit.enqueue(&worker, client(1));
        let (_, mut other) = limit.enqueue(&worker, client(2));
        let now = cached_now();
        assert!(!limit.reclaim(client(2), now) && limit.reclaim(client(2), now + CONTENDED_AFTER));
        permits.retain(|permit| !permit.connection_use().is_reclaimed());
        assert!(other.try_recv().is_ok() && own.try_recv().is_err());
    }

    #[test]
    fn a_raised_limit_serves_waiting_requests() {
        let (limit, worker) = (ConnectionLimit::new(0), WorkerWaker::default());
        let mut granted = [(); 3].map(|()| limit.enqueue(&worker, client(1)).1);
        limit.set_max(2);
        let grants = granted.each_mut().map(|granted| granted.try_recv());
        assert_eq!(grants.each_ref().map(Result::is_ok), [true, true, false]);
    }
}
