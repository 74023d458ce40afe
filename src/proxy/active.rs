//! The proxy that a worker serves with, and the change from one configuration to the next.
//!
//! A request keeps the proxy that it started with. Two things pass from one proxy to the next: the connection to the
//! store, with its circuit breaker and concurrency slots, and the connection pools of upstreams.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::snapshot::{Proxy, ProxyConfig};
use crate::limiter::Limiter;
use crate::store::Store;
use crate::upstream::{Upstream, WorkerWaker};

/// The current proxy of a worker.
#[derive(Debug)]
pub struct ActiveProxy {
    current: RefCell<Rc<Proxy>>,
    /// The background work of limiters: of the current one, and of earlier ones until no request uses them.
    maintenance: RefCell<JoinSet<()>>,
    /// Wakes this worker when other workers wait for connections that it keeps idle, or endpoints have changed.
    waker: WorkerWaker,
    /// The number of connections of clients.
    open: Cell<usize>,
    /// Notified when there is a first one.
    opened: Notify,
    /// Whether the process is ready, for health checks of services.
    is_ready: watch::Sender<bool>,
}

/// A connection of a client, until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Rc<ActiveProxy>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.update(|open| open - 1);
    }
}

impl ActiveProxy {
    /// The first proxy of a worker, within its runtime; ready after half a second at most, even if the store is
    /// unreachable.
    pub async fn new(first: ProxyConfig) -> Self {
        let mut maintenance = JoinSet::new();
        let limiter = start_limiter(&first, &mut maintenance).await;
        let waker = WorkerWaker::default();
        let is_ready = watch::Sender::new(true);
        let proxy = Proxy::new(first, &limiter, &[], &waker, is_ready.subscribe());
        Self {
            current: RefCell::new(Rc::new(proxy)),
            maintenance: RefCell::new(maintenance),
            waker,
            open: Cell::new(0),
            opened: Notify::new(),
            is_ready,
        }
    }

    /// The proxy for a request that starts now.
    #[must_use]
    pub fn current(&self) -> Rc<Proxy> {
        Rc::clone(&self.current.borrow())
    }

    /// Applies another configuration, in half a second at most. Requests that start afterwards are served with it.
    pub async fn apply(&self, next: ProxyConfig) {
        let earlier = self.current();
        let limiter = if earlier.limiter.uses_same_store(&next.shared) {
            earlier.limiter.clone()
        } else {
            let mut maintenance = self.maintenance.take();
            let limiter = start_limiter(&next, &mut maintenance).await;
            self.maintenance.replace(maintenance);
            limiter
        };
        let is_ready = self.is_ready.subscribe();
        let next = Rc::new(Proxy::new(next, &limiter, &earlier.upstreams, &self.waker, is_ready));
        let stays = |upstream: &&Rc<Upstream>| next.upstreams.iter().any(|it| Rc::ptr_eq(it, upstream));
        for removed in earlier.upstreams.iter().filter(|upstream| !stays(upstream)) {
            removed.retire();
        }
        self.current.replace(next);
    }

    /// Lets health checks of services tell that the process is not ready any more.
    pub fn set_not_ready(&self) {
        self.is_ready.send_replace(false);
    }

    /// Counts a connection of a client. While there is none, no request can start.
    pub fn open_connection(self: &Rc<Self>) -> OpenConnection {
        if self.open.replace(self.open.get() + 1) == 0 {
            self.opened.notify_one();
        }
        OpenConnection(Rc::clone(self))
    }

    /// Waits until a client connects while no other is connected. It may be closed by now.
    pub async fn connection_opened(&self) {
        self.opened.notified().await;
    }

    /// Closes upstream connections that have been idle for too long; returns whether any connection is left, of a client or
    /// to a server.
    pub fn sweep(&self) -> bool {
        let proxy = self.current();
        proxy.close_expired_connections();
        self.open.get() > 0 || proxy.has_upstream_connections()
    }

    /// Waits until other workers want room for connections, or endpoints have changed ([`ActiveProxy::adopt_changes`]).
    pub async fn notified(&self) {
        self.waker.notified().await;
    }

    /// Adopts changes of endpoints, and releases idle connections for other workers.
    pub fn adopt_changes(&self) {
        self.current().adopt_changes();
    }

    /// Releases the concurrency slots of the last requests.
    pub async fn release_slots(&self) {
        self.current().limiter.release_slots().await;
    }
}

/// A limiter over a store connection of its own, with its background work.
async fn start_limiter(config: &ProxyConfig, maintenance: &mut JoinSet<()>) -> Limiter {
    let shared = &config.shared;
    let stores = Store::open(&config.store, &shared.first().fallback, &config.counts.store());
    let limiter = Limiter::new(&stores, shared);
    limiter.connect().await;
    limiter.spawn_maintenance(maintenance);
    limiter
}
