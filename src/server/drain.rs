//! The end of a server: no new connections, and a last answer on those that there are.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::{Notify, watch};

/// Tells all workers to drain.
#[derive(Debug)]
pub struct Draining(watch::Sender<bool>);

/// A way to tell workers to drain, and what each of them listens to.
#[must_use]
pub fn drain_signal() -> (Draining, watch::Receiver<bool>) {
    let (sender, receiver) = watch::channel(false);
    (Draining(sender), receiver)
}

impl Draining {
    /// Begins to drain.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
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
pub(super) struct Open(Rc<Connections>);

impl Connections {
    /// Counts a connection until the value is dropped.
    pub fn open(self: &Rc<Self>) -> Open {
        self.open.set(self.open.get() + 1);
        Open(Rc::clone(self))
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

impl Open {
    /// Whether the connection is asked to end.
    pub fn is_draining(&self) -> bool {
        self.0.is_draining.get()
    }

    /// Wakes whoever polls it when the connection is asked to end.
    pub fn begun(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.begun.notified()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.closed.notify_one();
    }
}
