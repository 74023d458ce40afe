//! One worker's idle connections to one endpoint, and their hand-over to requests that wait for one.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection_limit::{ConnectionLimit, NextWaiter, WaitResult, WorkerWaker};
use crate::telemetry::UpstreamCounts;
use crate::time::{cached_now, monotonic};
use crate::upstream::endpoint::Endpoint;
use crate::upstream::http1::Http1Connection;
use crate::upstream::http2::Http2Pool;
use crate::upstream::shared::{Pending, SharedUpstream};

/// The most idle connections that are kept.
const MAX_IDLE: usize = 256;
/// How long an idle connection is kept: less than most servers keep their end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The idle connections to one endpoint; the most recently used one is reused first.
#[derive(Debug)]
pub(in crate::upstream) struct IdleConnections {
    shared: Arc<SharedUpstream>,
    endpoint: Arc<Endpoint>,
    worker: WorkerWaker,
    #[expect(clippy::vec_box, reason = "a connection is large, and it is moved often")]
    idle: RefCell<Vec<Box<Http1Connection>>>,
    /// Connections that were granted to waiting requests, by the numbers of these in the queue.
    granted: RefCell<Vec<(u64, Box<Http1Connection>)>>,
    /// Connections that requests share, if the upstream uses HTTP/2.
    http2: Option<Http2Pool>,
    /// Whether no more requests follow, so that released connections are closed.
    is_retired: Cell<bool>,
    counts: UpstreamCounts,
}

/// A request that waits for a connection, until it is dropped.
pub(in crate::upstream) struct PendingRequest<'c> {
    connections: &'c IdleConnections,
    since: Instant,
    _pending: Pending<'c>,
}

impl IdleConnections {
    pub fn new(
        shared: &Arc<SharedUpstream>,
        endpoint: &Arc<Endpoint>,
        worker: WorkerWaker,
        counts: UpstreamCounts,
    ) -> Self {
        Self {
            http2: shared.spec().is_http2.then(Http2Pool::default),
            shared: Arc::clone(shared),
            endpoint: Arc::clone(endpoint),
            worker,
            idle: RefCell::default(),
            granted: RefCell::default(),
            is_retired: Cell::new(false),
            counts,
        }
    }

    /// The shared connections, if the upstream uses HTTP/2.
    pub fn http2(&self) -> Option<&Http2Pool> {
        self.http2.as_ref()
    }

    /// Whether there is a connection with room for a request; the server may have closed it already.
    pub fn has_connection(&self) -> bool {
        match &self.http2 {
            Some(http2) => http2.has_capacity(),
            None => !self.idle.borrow().is_empty(),
        }
    }

    /// Whether connections are kept that are to be swept.
    pub fn has_idle(&self) -> bool {
        self.http2.as_ref().is_some_and(|http2| !http2.is_empty()) || !self.idle.borrow().is_empty()
    }

    pub fn connection_limit(&self) -> &Arc<ConnectionLimit> {
        &self.endpoint.connection_limit
    }

    /// The limit whose permits requests wait for: of the connections, or over HTTP/2 of this worker's streams.
    pub fn queue(&self) -> &Arc<ConnectionLimit> {
        self.http2.as_ref().map_or(&self.endpoint.connection_limit, Http2Pool::streams)
    }

    pub fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Counts a request that has to wait for a connection; none if too many wait, and `displace` rejects none of them.
    pub fn start_pending(&self, displace: impl FnOnce() -> bool) -> Option<PendingRequest<'_>> {
        let pending = self.shared.start_pending(displace)?;
        Some(PendingRequest { connections: self, since: cached_now(), _pending: pending })
    }

    /// Joins the queue for a connection, under the number that is returned.
    pub fn enqueue(&self, client: IpAddr) -> (u64, oneshot::Receiver<WaitResult>) {
        self.queue().enqueue(&self.worker, client)
    }

    /// Makes the other workers close idle connections for the waiting requests.
    pub fn notify_other_workers(&self) {
        self.shared.notify_other_workers(&self.worker);
    }

    /// Takes an idle connection. The server may have closed it; that is detected before a request is sent.
    pub fn take(&self) -> Option<Box<Http1Connection>> {
        // The one used last: the others reach the idle timeout, so that the pool shrinks after a peak.
        self.idle.borrow_mut().pop()
    }

    /// Takes back a connection after its response. It goes to a waiting request or becomes idle, if it is reusable.
    pub fn release(&self, mut connection: Box<Http1Connection>) {
        if !connection.finish_request() {
            return;
        }
        if self.connection_limit().has_waiters() {
            return self.grant(connection);
        }
        self.store(connection);
    }

    /// Grants a connection to the request at the front of the queue. A request of another worker can only get the
    /// permit, since connections don't move between threads.
    fn grant(&self, connection: Box<Http1Connection>) {
        match self.connection_limit().next_waiter(&self.worker) {
            NextWaiter::None => self.store(connection),
            // Closing it releases its permit, with which the other worker opens a connection of its own.
            NextWaiter::Remote => drop(connection),
            NextWaiter::Local(waiter) => {
                let number = waiter.number;
                self.granted.borrow_mut().push((number, connection));
                // The request may have given up in this moment; then the connection goes to the next one.
                if !waiter.grant(WaitResult::Connection)
                    && let Some(connection) = self.take_granted(number)
                {
                    self.grant(connection);
                }
            }
        }
    }

    /// Takes the connection that was granted under this number.
    pub fn take_granted(&self, number: u64) -> Option<Box<Http1Connection>> {
        let mut granted = self.granted.borrow_mut();
        let index = granted.iter().position(|(other, _)| *other == number)?;
        Some(granted.swap_remove(index).1)
    }

    fn store(&self, connection: Box<Http1Connection>) {
        let mut idle = self.idle.borrow_mut();
        // A connection that is not kept is closed here.
        if idle.len() < MAX_IDLE && !self.is_retired.get() {
            idle.push(connection);
        }
    }

    /// Closes an idle connection; returns whether there was one.
    pub fn close_idle(&self) -> bool {
        match &self.http2 {
            Some(http2) => http2.close_idle(),
            None => self.idle.borrow_mut().pop().is_some(),
        }
    }

    /// Closes idle connections while requests of other workers wait for a connection.
    pub fn close_idle_for_waiters(&self) {
        while self.connection_limit().has_waiters() && self.close_idle() {}
    }

    /// Closes connections that have been idle for too long, and those that the server has closed.
    pub fn sweep(&self) {
        if let Some(http2) = &self.http2 {
            http2.sweep(IDLE_TIMEOUT);
        }
        self.idle
            .borrow_mut()
            .retain_mut(|connection| connection.idle_for() < IDLE_TIMEOUT && !connection.is_dead());
    }

    /// Closes idle connections, now and whenever one becomes idle. Requests in progress may last long, and keep this
    /// value alive.
    pub fn retire(&self) {
        self.is_retired.set(true);
        let _ = self.idle.take();
        if let Some(http2) = &self.http2 {
            http2.retire();
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.connections.counts.record_wait(monotonic() - self.since);
    }
}
