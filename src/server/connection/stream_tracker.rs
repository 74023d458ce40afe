//! The streams of one HTTP/2 connection: each request is a task, which is cancelled if the client does not read its
//! response.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Body;
use hyper::rt::Executor;
use tokio::time::Instant;

use crate::body::PolledFrame;
use crate::proxy::ReplyBody;
use crate::socket::{LazyTimer, RATE_GRACE, TransferRate};
use crate::time::{cached_now, monotonic};
use crate::upstream::{ConnectionUse, delegate_body};

/// Requests that a client may cancel before rapid resets are suspected.
const MAX_CANCELLED: u64 = 100;

/// Counts the streams of one connection, and runs their tasks.
#[derive(Clone, Debug)]
pub(super) struct StreamTracker(Rc<SharedTracker>);

#[derive(Debug)]
struct SharedTracker {
    /// How long a part of a response may wait for the client.
    read_timeout: Duration,
    /// The minimum rate of a response, in bytes per second, if there is one.
    min_rate: Option<NonZeroU32>,
    /// Tasks that are running.
    open: Cell<usize>,
    /// When the last task finished.
    idle_since: Cell<Instant>,
    /// Requests so far.
    started: Cell<u64>,
    /// Requests whose stream was reset before they had a response.
    cancelled: Cell<u64>,
    /// The progress of the request whose task is spawned next: hyper spawns one right after each call of its service.
    next: RefCell<Option<Rc<StreamProgress>>>,
}

/// The progress of a request and its response.
#[derive(Debug)]
pub(super) struct StreamProgress {
    has_response: Cell<bool>,
    /// Since when a part of the response waits for the client.
    unread_since: Cell<Option<Instant>>,
    /// How fast the client reads the response.
    rate: Cell<TransferRate>,
    /// The upstream connection of the response, if the response was not read whole at once.
    connection: OnceCell<Arc<ConnectionUse>>,
}

/// A response body that records when it waits for the client: hyper polls for the next part as soon as it has sent the
/// previous one.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: ReplyBody,
    progress: Rc<StreamProgress>,
}

impl StreamTracker {
    pub fn new(read_timeout: Duration, min_rate: Option<NonZeroU32>) -> Self {
        Self(Rc::new(SharedTracker {
            read_timeout,
            min_rate,
            open: Cell::new(0),
            idle_since: Cell::new(monotonic()),
            started: Cell::new(0),
            cancelled: Cell::new(0),
            next: RefCell::new(None),
        }))
    }

    /// Counts a new request, for which hyper spawns a task next.
    pub fn start(&self) -> Rc<StreamProgress> {
        let progress = Rc::new(StreamProgress::new(self.0.min_rate));
        self.0.started.set(self.0.started.get() + 1);
        self.0.next.replace(Some(Rc::clone(&progress)));
        progress
    }

    /// Since when no stream has been open; none if there is one.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.0.open.get() == 0).then(|| self.0.idle_since.get())
    }

    /// Whether the client cancels most of its requests before their response, so that the work on them is lost
    /// (rapid reset, CVE-2023-44487).
    pub fn has_rapid_resets(&self) -> bool {
        let cancelled = self.0.cancelled.get();
        cancelled > MAX_CANCELLED && cancelled > self.0.started.get() / 2
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for StreamTracker {
    fn execute(&self, work: F) {
        let shared = Rc::clone(&self.0);
        shared.open.set(shared.open.get() + 1);
        let progress = shared.next.take();
        tokio::task::spawn_local(async move {
            let task = Tracked { shared, progress };
            task.run(work).await;
        });
    }
}

/// Counts a task of a connection until it is dropped.
struct Tracked {
    shared: Rc<SharedTracker>,
    /// None for tunnels, which are tasks as well.
    progress: Option<Rc<StreamProgress>>,
}

impl Tracked {
    /// Runs a request until it is complete, or the client has not read its response for too long: then it is dropped, which
    /// resets its stream.
    async fn run<F: Future<Output = ()>>(&self, work: F) {
        let mut work = std::pin::pin!(work);
        let mut timer = LazyTimer::default();
        std::future::poll_fn(|cx| {
            if work.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if self.progress.as_ref().is_some_and(|progress| progress.is_reclaimed()) {
                return Poll::Ready(());
            }
            let timeout = self.shared.read_timeout;
            let deadline = self.progress.as_ref().and_then(|progress| progress.read_deadline(timeout));
            deadline.map_or(Poll::Pending, |deadline| timer.wait_until(deadline, cx))
        })
        .await;
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.open.set(shared.open.get() - 1);
        shared.idle_since.set(cached_now());
        if self.progress.as_ref().is_some_and(|progress| !progress.has_response.get()) {
            shared.cancelled.set(shared.cancelled.get() + 1);
        }
    }
}

impl StreamProgress {
    fn new(min_rate: Option<NonZeroU32>) -> Self {
        let rate = Cell::new(TransferRate::new(min_rate));
        let connection = OnceCell::new();
        Self { has_response: Cell::new(false), unread_since: Cell::new(None), rate, connection }
    }

    /// Records that the request is refused, which is no cancellation by the client.
    pub fn refuse(&self) {
        self.has_response.set(true);
    }

    /// Records that there is a response, and tracks its body.
    pub fn track_response(self: Rc<Self>, body: ReplyBody) -> TrackedBody {
        self.has_response.set(true);
        if body.is_open_ended() {
            self.rate.set(TransferRate::new(None));
        }
        if let Some(connection) = body.upstream_connection() {
            let _ = self.connection.set(Arc::clone(connection));
        }
        // The client may not even read the head.
        self.start_wait(0);
        TrackedBody { body, progress: self }
    }

    /// Whether the upstream connection was given to another request.
    fn is_reclaimed(&self) -> bool {
        self.connection.get().is_some_and(|connection| connection.is_reclaimed())
    }

    /// The deadline by which the client must read the waiting part of the response, if there is one; `timeout` is for each
    /// part.
    fn read_deadline(&self, timeout: Duration) -> Option<Instant> {
        let allowance = self.rate.get().allowance(RATE_GRACE);
        Some(self.unread_since.get()? + allowance.map_or(timeout, |allowance| allowance.min(timeout)))
    }

    /// Records that the client has read the last part.
    fn finish_wait(&self) {
        let mut rate = self.rate.get();
        if let Some(since) = self.unread_since.take()
            && rate.is_bounded()
        {
            rate.add_wait(cached_now() - since);
            self.rate.set(rate);
        }
    }

    /// Records that a part of so many bytes waits for the client.
    fn start_wait(&self, bytes: usize) {
        let mut rate = self.rate.get();
        rate.add_bytes(bytes);
        self.rate.set(rate);
        self.unread_since.set(Some(cached_now()));
    }
}

impl Body for TrackedBody {
    delegate_body!(body);

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        self.progress.finish_wait();
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.progress.start_wait(data.len());
        }
        frame
    }
}
