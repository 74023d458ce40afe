//! Draining: no new connections, and the open ones close after their current response.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::connection_limiter::ConnectionStatus;
use super::head_budget::HeadBudget;
use super::refusal_pacer::RefusalPacer;
use super::start_queue::{StartQueue, Starter};
use crate::body::ClientBodies;
use crate::proxy::Proxy;

/// How long an idle connection stays open when the server starts to drain, so that a request that is already in transit
/// is still served.
pub(super) const IDLE_GRACE: Duration = Duration::from_millis(500);

/// The stages of a server's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// The server is ready and serves.
    #[default]
    Serving,
    /// The server still serves, but reports that it is not ready, so that load balancers stop sending it connections.
    NotReady,
    /// The server accepts no connections, and finishes the requests in progress.
    Draining,
}

/// Sets the stage of a server.
#[derive(Debug)]
pub struct LifecycleSender(watch::Sender<Lifecycle>);

/// A channel for the stage of a server.
#[must_use]
pub fn lifecycle() -> (LifecycleSender, watch::Receiver<Lifecycle>) {
    let (sender, receiver) = watch::channel(Lifecycle::default());
    (LifecycleSender(sender), receiver)
}

impl LifecycleSender {
    /// Enters a stage.
    pub fn enter(&self, stage: Lifecycle) {
        self.0.send_replace(stage);
    }
}

/// Waits until the server drains, or the sender is dropped.
pub(super) async fn drain_started(lifecycle: &mut watch::Receiver<Lifecycle>) {
    let _ = lifecycle.wait_for(|stage| *stage == Lifecycle::Draining).await;
}

/// The connections that one worker has accepted from a listener, and whether they drain.
#[derive(Debug)]
pub(super) struct Connections {
    pacer: Rc<RefusalPacer>,
    starts: Rc<StartQueue>,
    is_draining: Cell<bool>,
    drain_started: Notify,
    open: Cell<usize>,
    closed: Notify,
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionTracker {
    connections: Rc<Connections>,
    status: Arc<ConnectionStatus>,
}

impl Connections {
    /// No connections yet; `pacer` and `starts` are those of the worker.
    pub fn new(pacer: Rc<RefusalPacer>, starts: Rc<StartQueue>) -> Self {
        Self {
            pacer,
            starts,
            is_draining: Cell::new(false),
            drain_started: Notify::new(),
            open: Cell::new(0),
            closed: Notify::new(),
        }
    }

    /// Counts a connection.
    pub fn open(self: &Rc<Self>, status: &Arc<ConnectionStatus>) -> ConnectionTracker {
        self.open.set(self.open.get() + 1);
        ConnectionTracker { connections: Rc::clone(self), status: Arc::clone(status) }
    }

    /// Makes every connection close as soon as it has no request in progress.
    pub fn drain(&self) {
        self.is_draining.set(true);
        self.drain_started.notify_waiters();
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.closed.notified().await;
        }
    }
}

impl ConnectionTracker {
    /// Whether the connection has to close as soon as it has no request in progress.
    pub fn is_draining(&self) -> bool {
        self.connections.is_draining.get() || self.is_evicted()
    }

    /// Whether the connection has to close now, in favour of another client.
    pub fn is_evicted(&self) -> bool {
        self.status.is_evicted()
    }

    /// Records whether no request is in progress.
    pub fn set_idle(&self, is_idle: bool) {
        self.status.set_idle(is_idle);
    }

    /// Sets the task that is woken when the connection is evicted.
    pub fn set_waker(&self, cx: &Context<'_>) {
        self.status.set_waker(cx.waker());
    }

    /// The pauses after refused requests.
    pub fn pacer(&self) -> &Rc<RefusalPacer> {
        &self.connections.pacer
    }

    /// The starts of its requests, if it is one from this address. Each trusted proxy is a client of its own.
    pub fn starter(&self, address: IpAddr, proxy: &Proxy) -> Starter {
        self.connections.starts.starter(proxy.client_at(address).unwrap_or(address))
    }

    /// The budget for the heads of its requests.
    pub fn head_budget(&self) -> HeadBudget {
        HeadBudget::new(self.status.client_memory().map(|memory| Arc::clone(&memory.heads)))
    }

    /// The bodies of its client that are read for estimates, unless it is a trusted proxy.
    pub fn client_bodies(&self) -> Option<Arc<ClientBodies>> {
        self.status.client_memory().map(|memory| Arc::clone(&memory.bodies))
    }

    /// Ready when the connections start to drain.
    pub fn drain_started(&self) -> tokio::sync::futures::Notified<'_> {
        self.connections.drain_started.notified()
    }
}

impl Drop for ConnectionTracker {
    fn drop(&mut self) {
        self.connections.open.set(self.connections.open.get() - 1);
        self.connections.closed.notify_one();
    }
}
