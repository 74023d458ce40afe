//! The end of a server: no new connections, and a last answer on those that there are.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use tokio::sync::{Notify, watch};

use super::occupant::Occupant;

/// How far a server is on the way to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// It serves.
    #[default]
    Serving,
    /// It serves, and says that it is not ready, so that nobody is sent here any more.
    Leaving,
    /// It finishes what was begun.
    Draining,
}

/// Tells all who listen how far the server is.
#[derive(Debug)]
pub struct Stages(watch::Sender<Lifecycle>);

/// A way to lead a server to its end, and what each of its parts listens to.
#[must_use]
pub fn stages() -> (Stages, watch::Receiver<Lifecycle>) {
    let (sender, receiver) = watch::channel(Lifecycle::default());
    (Stages(sender), receiver)
}

impl Stages {
    /// Begins a stage.
    pub fn begin(&self, stage: Lifecycle) {
        self.0.send_replace(stage);
    }
}

/// Waits until it is time to drain, or nobody is left to say so.
pub(super) async fn time_to_drain(stages: &mut watch::Receiver<Lifecycle>) {
    let _ = stages.wait_for(|stage| *stage == Lifecycle::Draining).await;
}

/// One worker's connections, and whether they are asked to end.
#[derive(Debug, Default)]
pub(super) struct Connections {
    is_draining: Cell<bool>,
    begun: Notify,
    open: Cell<usize>,
    closed: Notify,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct ConnectionTracker {
    connections: Rc<Connections>,
    occupant: Arc<Occupant>,
}

impl Connections {
    /// Counts a connection until the value is dropped.
    pub fn open(self: &Rc<Self>, occupant: &Arc<Occupant>) -> ConnectionTracker {
        self.open.set(self.open.get() + 1);
        ConnectionTracker { connections: Rc::clone(self), occupant: Arc::clone(occupant) }
    }

    /// Asks every connection to end.
    pub fn drain(&self) {
        self.is_draining.set(true);
        self.begun.notify_waiters();
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.closed.notified().await;
        }
    }
}

impl ConnectionTracker {
    /// Whether the connection is asked to end.
    pub fn is_draining(&self) -> bool {
        self.connections.is_draining.get() || self.is_evicted()
    }

    /// Whether the connection has to make room for another one.
    pub fn is_evicted(&self) -> bool {
        self.occupant.is_evicted()
    }

    /// Notes whether a request is under way.
    pub fn set_idle(&self, is_idle: bool) {
        self.occupant.set_idle(is_idle);
    }

    /// Has the task woken when the connection has to make room.
    pub fn watch(&self, cx: &Context<'_>) {
        self.occupant.set_waker(cx.waker());
    }

    /// Wakes whoever polls it when the connection is asked to end.
    pub fn begun(&self) -> tokio::sync::futures::Notified<'_> {
        self.connections.begun.notified()
    }
}

impl Drop for ConnectionTracker {
    fn drop(&mut self) {
        self.connections.open.set(self.connections.open.get() - 1);
        self.connections.closed.notify_one();
    }
}
