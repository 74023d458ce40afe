//! The requests on one HTTP/2 connection: each is a task, which ends when the client does not read its answer.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::Instant;

use crate::proxy::ReplyBody;
use crate::socket::Alarm;
use crate::time::{monotonic, recent};
use crate::upstream::BodyError;

/// So many requests a client may take back in any case.
const TAKEN_BACK: u64 = 100;

/// The requests on one connection.
#[derive(Clone, Debug)]
pub(super) struct Streams(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How long a part of an answer may wait for the client.
    patience: Duration,
    open: Cell<usize>,
    idle_since: Cell<Instant>,
    begun: Cell<u64>,
    taken_back: Cell<u64>,
    /// Of the request that is about to become a task: hyper makes one at once of every call of its service.
    next: RefCell<Option<Rc<Progress>>>,
}

/// How far a request has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    is_answered: Cell<bool>,
    /// Since when a part of the answer waits for the client.
    unread_since: Cell<Option<Instant>>,
}

/// An answer that notes when the client keeps it waiting: hyper asks for its next part as soon as it has got rid of
/// the one before.
#[derive(Debug)]
pub(super) struct NotedBody {
    body: ReplyBody,
    progress: Rc<Progress>,
}

impl Streams {
    pub fn new(patience: Duration) -> Self {
        Self(Rc::new(Shared {
            patience,
            open: Cell::new(0),
            idle_since: Cell::new(monotonic()),
            begun: Cell::new(0),
            taken_back: Cell::new(0),
            next: RefCell::new(None),
        }))
    }

    /// Begins a request, of which hyper makes a task next.
    pub fn begin(&self) -> Rc<Progress> {
        let progress = Rc::new(Progress::default());
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

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, work: F) {
        let shared = Rc::clone(&self.0);
        shared.open.set(shared.open.get() + 1);
        let progress = shared.next.take();
        tokio::task::spawn_local(async move {
            let counted = Counted { shared, progress };
            counted.watch(work).await;
        });
    }
}

/// A task of a connection, counted until it is dropped.
struct Counted {
    shared: Rc<Shared>,
    /// Only of requests: tunnels have tasks as well.
    progress: Option<Rc<Progress>>,
}

impl Counted {
    /// Lets a request go on until it is done, or its answer has not been read for too long: then it is dropped, and the
    /// client told that its stream is reset.
    async fn watch<F: Future<Output = ()>>(&self, work: F) {
        let mut work = std::pin::pin!(work);
        let mut alarm = Alarm::default();
        std::future::poll_fn(|cx| {
            if work.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let unread_since = self.progress.as_ref().and_then(|progress| progress.unread_since.get());
            unread_since.map_or(Poll::Pending, |since| alarm.wait_until(since + self.shared.patience, cx))
        })
        .await;
    }
}

impl Drop for Counted {
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
    /// Notes that there is an answer, and follows its body.
    pub fn answer(self: Rc<Self>, body: ReplyBody) -> NotedBody {
        self.is_answered.set(true);
        NotedBody { body, progress: self }
    }
}

impl Body for NotedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let is_handed_on = matches!(&frame, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        self.progress.unread_since.set(is_handed_on.then(recent));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
