//! The requests on one HTTP/2 connection: each is a task, which ends when the client does not read its answer.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::Instant;

use crate::proxy::ReplyBody;
use crate::socket::{LazyTimer, RATE_GRACE, TransferRate};
use crate::time::{monotonic, recent};
use crate::upstream::{BodyError, ConnectionUse};

/// So many requests a client may take back in any case.
const TAKEN_BACK: u64 = 100;

/// The requests on one connection.
#[derive(Clone, Debug)]
pub(super) struct StreamTracker(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How long a part of an answer may wait for the client.
    patience: Duration,
    /// The minimum rate of an answer, in bytes per second, if there is one.
    min_rate: Option<NonZeroU32>,
    open: Cell<usize>,
    idle_since: Cell<Instant>,
    begun: Cell<u64>,
    taken_back: Cell<u64>,
    /// Of the request that is about to become a task: hyper makes one at once of every call of its service.
    next: RefCell<Option<Rc<Progress>>>,
}

/// How far a request has come.
#[derive(Debug)]
pub(super) struct Progress {
    is_answered: Cell<bool>,
    /// Since when a part of the answer waits for the client.
    unread_since: Cell<Option<Instant>>,
    /// How fast the client takes the answer.
    rate: Cell<TransferRate>,
    /// The connection to the server over which the answer comes, if there is more of it than was taken at once.
    connection: OnceCell<Arc<ConnectionUse>>,
}

/// An answer that notes when the client keeps it waiting: hyper asks for its next part as soon as it has got rid of
/// the one before.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: ReplyBody,
    progress: Rc<Progress>,
}

impl StreamTracker {
    pub fn new(patience: Duration, min_rate: Option<NonZeroU32>) -> Self {
        Self(Rc::new(Shared {
            patience,
            min_rate,
            open: Cell::new(0),
            idle_since: Cell::new(monotonic()),
            begun: Cell::new(0),
            taken_back: Cell::new(0),
            next: RefCell::new(None),
        }))
    }

    /// Begins a request, of which hyper makes a task next.
    pub fn begin(&self) -> Rc<Progress> {
        let progress = Rc::new(Progress::new(self.0.min_rate));
        self.0.begun.set(self.0.begun.get() + 1);
        self.0.next.replace(Some(Rc::clone(&progress)));
        progress
    }

    /// Since when there has been no request; none if there is one.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.0.open.get() == 0).then(|| self.0.idle_since.get())
    }

    /// Whether the client takes back most of its requests before they are answered, so as to have us work for nothing
    /// (CVE-2023-44487).
    pub fn are_abused(&self) -> bool {
        let taken_back = self.0.taken_back.get();
        taken_back > TAKEN_BACK && taken_back > self.0.begun.get() / 2
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for StreamTracker {
    fn execute(&self, work: F) {
        let shared = Rc::clone(&self.0);
        shared.open.set(shared.open.get() + 1);
        let progress = shared.next.take();
        tokio::task::spawn_local(async move {
            let counted = Tracked { shared, progress };
            counted.watch(work).await;
        });
    }
}

/// A task of a connection, counted until it is dropped.
struct Tracked {
    shared: Rc<Shared>,
    /// Only of requests: tunnels have tasks as well.
    progress: Option<Rc<Progress>>,
}

impl Tracked {
    /// Lets a request go on until it is done, or its answer has not been read for too long: then it is dropped, and the
    /// client told that its stream is reset.
    async fn watch<F: Future<Output = ()>>(&self, work: F) {
        let mut work = std::pin::pin!(work);
        let mut alarm = LazyTimer::default();
        std::future::poll_fn(|cx| {
            if work.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if self.progress.as_ref().is_some_and(|progress| progress.is_reclaimed()) {
                return Poll::Ready(());
            }
            let read_by = self.progress.as_ref().and_then(|progress| progress.read_by(self.shared.patience));
            read_by.map_or(Poll::Pending, |by| alarm.wait_until(by, cx))
        })
        .await;
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.open.set(shared.open.get() - 1);
        shared.idle_since.set(recent());
        if self.progress.as_ref().is_some_and(|progress| !progress.is_answered.get()) {
            shared.taken_back.set(shared.taken_back.get() + 1);
        }
    }
}

impl Progress {
    fn new(min_rate: Option<NonZeroU32>) -> Self {
        let rate = Cell::new(TransferRate::new(min_rate));
        let connection = OnceCell::new();
        Self { is_answered: Cell::new(false), unread_since: Cell::new(None), rate, connection }
    }

    /// Notes that there is an answer, and follows its body.
    pub fn answer(self: Rc<Self>, body: ReplyBody) -> TrackedBody {
        self.is_answered.set(true);
        if body.is_open_ended() {
            self.rate.set(TransferRate::new(None));
        }
        if let Some(connection) = body.connection() {
            let _ = self.connection.set(Arc::clone(connection));
        }
        // The client may not even take the first part.
        self.is_unread(0);
        TrackedBody { body, progress: self }
    }

    /// Whether other clients needed the connection to the server.
    fn is_reclaimed(&self) -> bool {
        self.connection.get().is_some_and(|connection| connection.is_reclaimed())
    }

    /// By when the client has to take the part of the answer that waits for it, if one does; each may take `span`.
    fn read_by(&self, span: Duration) -> Option<Instant> {
        let allowance = self.rate.get().allowance(RATE_GRACE);
        Some(self.unread_since.get()? + allowance.map_or(span, |allowance| allowance.min(span)))
    }

    /// The client has taken what there was.
    fn is_read(&self) {
        let mut rate = self.rate.get();
        if let Some(since) = self.unread_since.take()
            && rate.is_bounded()
        {
            rate.add_wait(recent() - since);
            self.rate.set(rate);
        }
    }

    /// So many bytes of the answer wait for the client.
    fn is_unread(&self, bytes: usize) {
        let mut rate = self.rate.get();
        rate.add_bytes(bytes);
        self.rate.set(rate);
        self.unread_since.set(Some(recent()));
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.progress.is_read();
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.progress.is_unread(data.len());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
