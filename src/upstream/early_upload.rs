//! A request that is still being sent while its response has begun.
//!
//! A client that sends all of its request before it reads takes nothing of the response once the buffers on the way are
//! full. Over HTTP/2 the response's body is not polled then, and the rest of the request would wait for ever. So a task
//! goes on with the request, and reads nothing of the response.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::Frame;
use tokio::task::AbortHandle;

use super::body::BodyError;
use super::connection_use::ConnectionUse;
use super::http1::Http1Connection;

/// A connection with a task that sends the rest of its request, and ends with the value.
pub(super) struct EarlyUpload {
    shared: Rc<RefCell<Shared>>,
    connection: Arc<ConnectionUse>,
    task: AbortHandle,
}

struct Shared {
    /// None once it was taken out.
    connection: Option<Box<Http1Connection>>,
    /// Why the rest of the request can't be sent.
    error: Option<BodyError>,
    /// The task that reads the response.
    reader: Waker,
}

impl EarlyUpload {
    /// Has a task send the rest of the request.
    pub fn start(connection: Box<Http1Connection>) -> Self {
        let connection_use = Arc::clone(connection.connection());
        let shared = Rc::new(RefCell::new(Shared {
            connection: Some(connection),
            error: None,
            reader: Waker::noop().clone(),
        }));
        let sending = Rc::clone(&shared);
        let task = tokio::task::spawn_local(poll_fn(move |cx| sending.borrow_mut().poll_upload(cx)));
        Self { shared, connection: connection_use, task: task.abort_handle() }
    }

    /// Who uses the connection.
    pub fn connection(&self) -> &Arc<ConnectionUse> {
        &self.connection
    }

    /// The next part of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut shared = self.shared.borrow_mut();
        if let Some(error) = shared.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        shared.reader.clone_from(cx.waker());
        shared.connection.as_mut().map_or(Poll::Ready(None), |connection| connection.poll_frame(cx))
    }

    /// Whether the response has come to its end.
    pub fn is_end_stream(&self) -> bool {
        let shared = self.shared.borrow();
        shared.error.is_none()
            && shared.connection.as_ref().is_none_or(|connection| connection.is_end_stream())
    }

    /// What the connection says.
    pub fn ask<T>(&self, question: impl FnOnce(&Http1Connection) -> T) -> Option<T> {
        self.shared.borrow().connection.as_deref().map(question)
    }

    /// The connection.
    pub fn stop(self) -> Option<Box<Http1Connection>> {
        self.shared.borrow_mut().connection.take()
    }
}

impl Shared {
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(()) };
        if let Err(error) = connection.poll_upload(cx) {
            self.error = Some(error);
            // The response may wait for its client, and the server need not.
            self.connection = None;
            self.reader.wake_by_ref();
            return Poll::Ready(());
        }
        if connection.is_uploading() && !connection.connection().is_reclaimed() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Drop for EarlyUpload {
    fn drop(&mut self) {
        // At once, and not only when the task is dropped.
        drop(self.shared.borrow_mut().connection.take());
        self.task.abort();
    }
}

impl std::fmt::Debug for EarlyUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EarlyUpload").finish_non_exhaustive()
    }
}
