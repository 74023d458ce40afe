//! A connection that goes on by itself.
//!
//! A [`Wire`] goes on while somebody asks for the response. A client that writes all of its request before it reads
//! does not ask, once the buffers on its way are full; and if the server has begun a long answer by then, the rest of
//! the request would wait for ever. So a response that comes before its request is whole has a task, which does
//! nothing but drive the connection. No more of the response is read meanwhile than the body's channel holds.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::AbortHandle;

use super::connection_use::ConnectionUse;
use super::wire::Wire;

/// A connection with a task, which ends with it.
pub(super) struct Driven {
    wire: Shared,
    connection: Arc<ConnectionUse>,
    is_open_ended: bool,
    task: AbortHandle,
}

/// Whoever uses it takes it out; nobody waits meanwhile.
type Shared = Rc<Cell<Option<Box<Wire>>>>;

impl Driven {
    /// Has a task drive the connection from now on.
    pub fn new(wire: Box<Wire>) -> Self {
        let (connection, is_open_ended) = (Arc::clone(wire.connection()), wire.is_open_ended());
        let wire = Rc::new(Cell::new(Some(wire)));
        let driving = Rc::clone(&wire);
        let task = tokio::task::spawn_local(poll_fn(move |cx| drive(&driving, cx)));
        Self { wire, connection, is_open_ended, task: task.abort_handle() }
    }

    /// Whether its response may be silent without a time limit.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// Who uses it.
    pub fn connection(&self) -> &Arc<ConnectionUse> {
        &self.connection
    }

    /// The connection, for whoever uses it next; none if it has ended.
    pub fn stop(self) -> Option<Box<Wire>> {
        self.wire.take()
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // At once, and not only when the task is dropped.
        drop(self.wire.take());
        self.task.abort();
    }
}

impl std::fmt::Debug for Driven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}

/// Lets a connection go on; ready when there is nothing to drive any more.
fn drive(shared: &Shared, cx: &mut Context<'_>) -> Poll<()> {
    let Some(mut wire) = shared.take() else { return Poll::Ready(()) };
    // Whoever reads the response is woken by its body.
    let _ = wire.drive(cx, |_| Poll::<()>::Pending);
    if wire.has_ended() || wire.connection().is_reclaimed() {
        // What came of it is in the response's body, and its place is free.
        return Poll::Ready(());
    }
    shared.set(Some(wire));
    Poll::Pending
}
