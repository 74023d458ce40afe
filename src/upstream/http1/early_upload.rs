//! An upload that continues after the response has started.
//!
//! A client that sends its whole request before it reads the response blocks the response once the buffers in between
//! are full. Over HTTP/2 the response's body is not polled then, and the rest of the request would wait forever. So a
//! task sends the rest of the request, and reads nothing of the response.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

use super::Http1Connection;
use crate::body::{BodyError, PolledFrame};
use crate::upstream::pool::connection_use::ConnectionUse;

/// A connection with a task that sends the rest of the request. Dropping the value closes the connection and ends the
/// task.
pub(in crate::upstream) struct EarlyUpload {
    state: Rc<RefCell<State>>,
    connection_use: Arc<ConnectionUse>,
    task: AbortHandle,
}

/// The state that the task shares with the reader of the response.
struct State {
    /// None once it was taken or has failed.
    connection: Option<Box<Http1Connection>>,
    /// Why the rest of the request can't be sent.
    error: Option<BodyError>,
    /// Wakes the task that reads the response.
    reader: Waker,
}

impl EarlyUpload {
    /// Starts a task that sends the rest of the request.
    pub fn start(connection: Box<Http1Connection>) -> Self {
        let connection_use = Arc::clone(connection.connection_use());
        let (connection, reader) = (Some(connection), Waker::noop().clone());
        let state = Rc::new(RefCell::new(State { connection, error: None, reader }));
        let sending = Rc::clone(&state);
        let task = tokio::task::spawn_local(poll_fn(move |cx| sending.borrow_mut().poll_upload(cx)));
        Self { state, connection_use, task: task.abort_handle() }
    }

    /// The use of the connection.
    pub fn connection_use(&self) -> &Arc<ConnectionUse> {
        &self.connection_use
    }

    /// Polls the next part of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        state.reader.clone_from(cx.waker());
        state.connection.as_mut().map_or(Poll::Ready(None), |connection| connection.poll_frame(cx))
    }

    /// Whether the response is complete.
    pub fn is_end_stream(&self) -> bool {
        let state = self.state.borrow();
        state.error.is_none() && state.connection.as_ref().is_none_or(|connection| connection.is_end_stream())
    }

    /// Reads a value from the connection, if it still exists.
    pub fn read<T>(&self, read: impl FnOnce(&Http1Connection) -> T) -> Option<T> {
        self.state.borrow().connection.as_deref().map(read)
    }

    /// Stops the task, and returns the connection.
    pub fn stop(self) -> Option<Box<Http1Connection>> {
        self.state.borrow_mut().connection.take()
    }
}

impl State {
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(()) };
        if let Err(error) = connection.poll_upload(cx) {
            self.error = Some(error);
            // Closed at once: the response may wait long for its client, but must not keep the server waiting.
            self.connection = None;
            self.reader.wake_by_ref();
            return Poll::Ready(());
        }
        if connection.is_uploading() && !connection.connection_use().is_reclaimed() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Drop for EarlyUpload {
    fn drop(&mut self) {
        // Closed at once, and not only when the runtime drops the aborted task.
        drop(self.state.borrow_mut().connection.take());
        self.task.abort();
    }
}

impl std::fmt::Debug for EarlyUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EarlyUpload").finish_non_exhaustive()
    }
}
