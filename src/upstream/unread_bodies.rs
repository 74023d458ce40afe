//! Request bodies over HTTP/2 that nothing reads to their end: of rejected requests, and of those whose server responds early.
//!
//! Some clients, such as curl 7.88, report a failure if a stream is reset right after its response, though that is valid
//! (RFC 9113 §8.1). So the client's connection reads and drops the rest of such a body for a while.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, timeout_at};

use crate::socket::LazyTimer;
use crate::time::monotonic;

/// The most bytes that are drained from a body: more than a client can have sent before it could read the response.
const MAX_DRAIN: usize = 256 * 1024;
/// The longest time for which a body is drained.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(1);

/// The request bodies of one connection that are being drained.
#[derive(Debug, Default)]
pub struct UnreadBodies {
    state: RefCell<State>,
}

/// The body of a request over HTTP/2. If it is dropped before its end, its connection drains it.
#[derive(Debug)]
pub struct StreamBody {
    /// None only while it is dropped.
    incoming: Option<Incoming>,
    unread: Rc<UnreadBodies>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their deadlines.
    draining: Vec<Draining>,
    timer: LazyTimer,
    /// Wakes the task of the connection.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Draining {
    incoming: Incoming,
    drained: usize,
    deadline: Instant,
}

impl UnreadBodies {
    /// Reads what has arrived of the bodies, on behalf of the task that drives the connection. A body that is too long or
    /// takes too long is dropped, which resets its stream.
    pub fn poll(&self, cx: &mut Context<'_>) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => state.waker = Some(cx.waker().clone()),
        }
        while let Some(first) = state.draining.first().map(|body| body.deadline) {
            let now = monotonic();
            state.draining.retain_mut(|body| body.deadline > now && body.poll_end(cx).is_pending());
            if state.timer.wait_until(first, cx).is_pending() {
                break;
            }
        }
    }

    fn drain(&self, incoming: Incoming) {
        let mut state = self.state.borrow_mut();
        state.draining.push(Draining::new(incoming));
        if let Some(waker) = &state.waker {
            waker.wake_by_ref();
        }
    }
}

impl Draining {
    fn new(incoming: Incoming) -> Self {
        Self { incoming, drained: 0, deadline: monotonic() + MAX_DRAIN_TIME }
    }

    /// Ready when nothing more is to be read.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.drained < MAX_DRAIN {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.drained += frame.data_ref().map_or(0, Bytes::len),
                Poll::Ready(_) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

impl StreamBody {
    /// A body, and the bodies that its connection drains.
    #[must_use]
    pub fn new(incoming: Incoming, unread: Rc<UnreadBodies>) -> Self {
        Self { incoming: Some(incoming), unread }
    }

    /// Drains the body now, before its response is sent.
    pub async fn drain(mut self) {
        if let Some(incoming) = self.incoming.take() {
            let mut draining = Draining::new(incoming);
            let deadline = draining.deadline;
            // The response follows in any case.
            let _ = timeout_at(deadline, poll_fn(|cx| draining.poll_end(cx))).await;
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.incoming.as_mut().map_or(Poll::Ready(None), |incoming| Pin::new(incoming).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) {
            self.unread.drain(incoming);
        }
    }
}
