//! The upload of a request's body over HTTP/2.
//!
//! hyper sends a body in a separate task, which polls a part of it, waits until flow control allows to send that, and
//! polls the next. hyper has no timeout for this wait, so it is added here.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, SizeHint};
use hyper::rt::Executor;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::body::{BodyError, PolledFrame, RequestBody};
use crate::socket::LazyTimer;
use crate::time::{cached_now, monotonic};
use crate::upstream::pool::connection_use::{CONTENDED_GRACE, ConnectionUse};

/// The progress of an upload, for the task that waits for the response.
#[derive(Debug)]
pub(super) struct UploadProgress {
    /// When the end of the body was handed to hyper.
    pub ended_at: Cell<Option<Instant>>,
    /// Why the body ended early. hyper does not learn it while a response is awaited, since it would reset the stream at once.
    pub failure: RefCell<Option<BodyError>>,
    /// Whether the response is complete, so that no task waits for the failure of the body.
    is_detached: Cell<bool>,
    /// The use of the stream, which may wait for the client.
    pub connection_use: Arc<ConnectionUse>,
    progressed_at: Cell<Instant>,
    /// How long the server may block it.
    stall_timeout: Duration,
    /// Whether the upload waits for the server to take a part, rather than for the client to send one.
    is_blocked: Cell<bool>,
    /// The executor of the connection, until the upload has started.
    executor: RefCell<Option<UploadExecutor>>,
    /// The task that sends the body, if it needs one.
    task: RefCell<Option<AbortHandle>>,
}

/// A request's body, as hyper sends it.
#[derive(Debug)]
pub(super) struct UploadBody {
    pub body: RequestBody,
    /// None after the end of the body.
    progress: Option<Rc<UploadProgress>>,
    /// Whether the body has failed while the response is awaited. For hyper it then never ends.
    has_failed: bool,
}

/// Runs hyper's tasks for a connection on this thread, with a stall timeout for those that send a body.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadExecutor {
    /// The upload that has just started. If it can't be sent at once, the next task is the one that sends it.
    starting: Rc<RefCell<Option<Rc<UploadProgress>>>>,
}

impl UploadProgress {
    /// An upload that starts now, and that the server may block for `stall_timeout`.
    pub fn new(
        executor: &UploadExecutor,
        connection_use: &Arc<ConnectionUse>,
        stall_timeout: Duration,
    ) -> Rc<Self> {
        Rc::new(Self {
            ended_at: Cell::new(None),
            failure: RefCell::default(),
            is_detached: Cell::new(false),
            connection_use: Arc::clone(connection_use),
            progressed_at: Cell::new(cached_now()),
            stall_timeout,
            is_blocked: Cell::new(true),
            executor: RefCell::new(Some(executor.clone())),
            task: RefCell::default(),
        })
    }

    /// Records that hyper has polled the body; `has_part` says whether it got a part.
    pub fn record_poll(self: &Rc<Self>, has_part: bool) {
        if let Some(executor) = self.executor.take() {
            executor.starting.replace(Some(Rc::clone(self)));
        }
        if self.is_blocked.replace(has_part) || has_part {
            self.progressed_at.set(monotonic());
        }
    }

    /// Records that the end of the body, or the error that ends it, was handed to hyper.
    pub fn record_end(&self) {
        self.is_blocked.set(false);
        self.ended_at.set(Some(monotonic()));
    }

    /// Ends the upload with an error, for the task that waits for the response.
    ///
    /// # Errors
    /// The error itself, for hyper, if the response is complete: then a reset cancels no request that the server works on.
    pub fn fail(&self, error: BodyError) -> Result<(), BodyError> {
        if self.is_detached.get() {
            return Err(error);
        }
        self.failure.replace(Some(error));
        self.connection_use.wake();
        Ok(())
    }

    /// Leaves the upload to its task, after the end of the response.
    pub fn detach(&self) {
        self.is_detached.set(true);
        if self.failure.borrow().is_some() {
            self.abort();
        }
    }

    /// The deadline for the response or, until the upload is complete, for its progress. It moves while the upload waits
    /// for the client.
    pub fn response_deadline(&self, response_timeout: Duration) -> Instant {
        match self.ended_at.get() {
            Some(ended_at) => ended_at + response_timeout,
            None if self.is_blocked.get() => self.progressed_at.get() + self.stall_timeout,
            None => monotonic() + response_timeout.min(self.stall_timeout),
        }
    }

    /// Since when the exchange has waited for the server. An open-ended response may pause, so the server has to act only
    /// while it blocks the upload.
    pub fn server_waits_since(&self, is_open_ended: bool) -> Instant {
        if is_open_ended && !self.is_blocked.get() { cached_now() } else { self.progressed_at.get() }
    }

    /// Whether a task still sends the body.
    pub fn has_running_task(&self) -> bool {
        self.task.borrow().as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Aborts the task that sends the body.
    pub fn abort(&self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl UploadBody {
    /// A body whose upload this records.
    pub fn new(body: RequestBody, progress: &Rc<UploadProgress>) -> Self {
        Self { body, progress: Some(Rc::clone(progress)), has_failed: false }
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        if this.has_failed {
            return Poll::Pending;
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        let Some(progress) = &this.progress else { return frame };
        progress.record_poll(matches!(frame, Poll::Ready(Some(Ok(_)))));
        let Poll::Ready(frame) = frame else {
            progress.connection_use.wait_for_client(this.body.allowance(CONTENDED_GRACE));
            return Poll::Pending;
        };
        progress.connection_use.record_part();
        let (frame, is_end) = match frame {
            Some(Err(error)) => {
                let Err(error) = progress.fail(error) else {
                    this.has_failed = true;
                    return Poll::Pending;
                };
                (Some(Err(error)), true)
            }
            frame => {
                let is_end = frame.is_none() || this.body.is_end_stream();
                (frame, is_end)
            }
        };
        if is_end {
            progress.record_end();
            this.progress = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        !self.has_failed && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_failed { SizeHint::default() } else { self.body.size_hint() }
    }
}

impl<F: Future + 'static> Executor<F> for UploadExecutor {
    fn execute(&self, task: F) {
        let Some(upload) = self.starting.take() else {
            tokio::task::spawn_local(async move {
                task.await;
            });
            return;
        };
        let sending = run_upload(task, Rc::clone(&upload));
        upload.task.replace(Some(tokio::task::spawn_local(sending).abort_handle()));
    }
}

/// Runs the task that sends a body until its end, or until the server has blocked it for too long.
async fn run_upload(task: impl Future, upload: Rc<UploadProgress>) {
    let (mut task, mut timer) = (pin!(task), LazyTimer::default());
    poll_fn(|cx| {
        if task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if upload.is_blocked.get() {
            return timer.wait_until(upload.progressed_at.get() + upload.stall_timeout, cx);
        }
        Poll::Pending
    })
    .await;
}
