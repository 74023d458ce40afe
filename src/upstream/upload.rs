//! The body of a request over HTTP/2 on its way to a server.
//!
//! The library has a task of its own for it, which takes a part of the body, waits until the server lets it be sent, and
//! takes the next. Nobody else sees that wait, and so it is bounded here.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::socket::LazyTimer;
use crate::time::{monotonic, recent};

/// What whoever waits for an answer is to know of the request's body, which somebody else sends.
#[derive(Debug)]
pub(super) struct Upload {
    /// When its end was handed over.
    pub sent: Cell<Option<Instant>>,
    /// Why it broke off.
    pub flaw: Cell<Option<BodyFailure>>,
    /// When it last went on.
    moved: Cell<Instant>,
    /// Whether the server has to take something before more is asked for, and not the client to send it.
    is_held_up: Cell<bool>,
    /// Those who run the library's tasks, until it has begun.
    carriers: RefCell<Option<UploadExecutor>>,
    /// The task that sends it, if it needs one.
    carrier: RefCell<Option<AbortHandle>>,
}

/// Why a request's body breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFailure {
    /// The client broke it off, or it was no HTTP.
    Broken,
    /// It did not come in time.
    TooLate,
    /// It has more bytes than it may.
    TooLarge,
}

/// Runs the library's tasks for a connection on this thread.
#[derive(Clone, Debug)]
pub(super) struct UploadExecutor {
    /// The body that has just begun. If it can't be sent in one go, the next task is its carrier.
    beginning: Rc<RefCell<Option<Rc<Upload>>>>,
    stall_timeout: Duration,
}

impl Upload {
    /// One that begins now.
    pub fn new(carriers: &UploadExecutor) -> Rc<Self> {
        Rc::new(Self {
            sent: Cell::new(None),
            flaw: Cell::new(None),
            moved: Cell::new(recent()),
            is_held_up: Cell::new(true),
            carriers: RefCell::new(Some(carriers.clone())),
            carrier: RefCell::default(),
        })
    }

    /// A part of it has been asked for; says whether there was one.
    pub fn asked(self: &Rc<Self>, is_there: bool) {
        if let Some(carriers) = self.carriers.take() {
            carriers.beginning.replace(Some(Rc::clone(self)));
        }
        if self.is_held_up.replace(is_there) || is_there {
            self.moved.set(monotonic());
        }
    }

    /// Its end has been handed over, or why it has none.
    pub fn has_ended(&self) {
        self.is_held_up.set(false);
        self.sent.set(Some(monotonic()));
    }

    /// By when there must be an answer, or else more of it must have been sent. While the client is waited for, that is
    /// still to come.
    pub fn answered_by(&self, response_timeout: Duration, stall_timeout: Duration) -> Instant {
        match self.sent.get() {
            Some(sent) => sent + response_timeout,
            None if self.is_held_up.get() => self.moved.get() + stall_timeout,
            None => monotonic() + response_timeout.min(stall_timeout),
        }
    }

    /// Since when the server has owed us something. An answer without an end of its own is owed when it comes; but a
    /// server must take what it is sent.
    pub fn owed_since(&self, is_open_ended: bool) -> Instant {
        if is_open_ended && !self.is_held_up.get() { recent() } else { self.moved.get() }
    }

    /// Whether somebody still sends it.
    pub fn is_carried(&self) -> bool {
        self.carrier.borrow().as_ref().is_some_and(|carrier| !carrier.is_finished())
    }

    /// Gives it up, wherever it is.
    pub fn abandon(&self) {
        if let Some(carrier) = self.carrier.take() {
            carrier.abort();
        }
    }
}

impl UploadExecutor {
    /// For a connection whose server may take so long to let something be sent.
    pub fn new(stall_timeout: Duration) -> Self {
        Self { beginning: Rc::default(), stall_timeout }
    }
}

impl<F: Future + 'static> Executor<F> for UploadExecutor {
    fn execute(&self, work: F) {
        let Some(upload) = self.beginning.take() else {
            tokio::task::spawn_local(async move {
                work.await;
            });
            return;
        };
        let carried = carry(work, Rc::clone(&upload), self.stall_timeout);
        upload.carrier.replace(Some(tokio::task::spawn_local(carried).abort_handle()));
    }
}

/// Sends a body until it is sent, or is held up for too long.
async fn carry(work: impl Future, upload: Rc<Upload>, stall_timeout: Duration) {
    let (mut work, mut alarm) = (pin!(work), LazyTimer::default());
    poll_fn(|cx| {
        if work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if upload.is_held_up.get() {
            return alarm.wait_until(upload.moved.get() + stall_timeout, cx);
        }
        Poll::Pending
    })
    .await;
}
