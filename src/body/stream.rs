//! The body of a request over HTTP/2, checked more strictly than hyper does, and what becomes of its rest if nothing reads it to
//! its end: if the request is rejected, or the server responds early.
//!
//! Some clients, such as curl 7.88, report a failure if a stream is reset right after its response, though that is valid
//! (RFC 9113 §8.1). So the client's connection reads and drops the rest of such a body for a while.

use std::cell::RefCell;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, timeout_at};

use super::error::{BodyError, PolledFrame};
use crate::socket::{Deadline, LazyTimer};
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

/// A client's HTTP/2 stream. The frame that completes the announced Content-Length is held back until the stream ends:
/// a server would treat the request as complete, although an excess part or an error may follow.
#[derive(Debug)]
pub struct ClientStream {
    deadline: Deadline,
    held: Option<Frame<Bytes>>,
}

impl ClientStream {
    /// A stream of which each part may take up to `span`, with a minimum rate in bytes per second if there is one.
    #[must_use]
    pub fn new(span: Duration, min_rate: Option<NonZeroU32>) -> Self {
        Self { deadline: Deadline::new(span).with_min_rate(min_rate), held: None }
    }

    /// Sets by when the whole body must have arrived.
    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline.set_limit(deadline);
    }

    /// The time that the client has for the next part if it may be `grace` behind its minimum rate; none without such a rate.
    pub(super) fn allowance(&self, grace: Duration) -> Option<Duration> {
        self.deadline.allowance(grace)
    }

    /// The length of the frame that is held back; none if there is no such frame.
    pub(super) fn held_bytes(&self) -> Option<usize> {
        self.held.as_ref().map(|frame| frame.data_ref().map_or(0, Bytes::len))
    }

    /// Polls the next part of the body; an error if it has not arrived in time.
    pub(super) fn poll_frame(&mut self, incoming: &mut StreamBody, cx: &mut Context<'_>) -> PolledFrame {
        let frame = self.next(incoming, cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.deadline.add_bytes(frame.data_ref().map_or(0, Bytes::len));
        }
        self.deadline.bound(frame, cx).map(|frame| frame.unwrap_or_else(|late| Some(Err(late.into()))))
    }

    fn next(&mut self, incoming: &mut StreamBody, cx: &mut Context<'_>) -> PolledFrame {
        if self.held.as_ref().is_some_and(Frame::is_trailers) {
            return Poll::Ready(self.held.take().map(Ok));
        }
        loop {
            let Some(frame) = ready!(poll_whole(incoming, cx)) else {
                return Poll::Ready(self.held.take().map(Ok));
            };
            let frame = frame?;
            let completes = incoming.size_hint().exact() == Some(0) && !incoming.is_end_stream();
            let next = match self.held.take() {
                None if completes && frame.is_data() => {
                    self.held = Some(frame);
                    continue;
                }
                None => frame,
                // hyper lets only an empty frame or trailers follow.
                Some(held) => {
                    if frame.is_trailers() {
                        self.held = Some(frame);
                    } else if completes {
                        self.held = Some(held);
                        continue;
                    }
                    held
                }
            };
            return Poll::Ready(Some(Ok(next)));
        }
    }
}

/// Polls the next part of a body over HTTP/2. hyper reports a stream that was reset with `NO_ERROR` like a complete one;
/// here it is an error.
pub(crate) fn poll_whole<B>(incoming: &mut B, cx: &mut Context<'_>) -> PolledFrame
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
        None if !incoming.is_end_stream() => Poll::Ready(Some(Err(BodyError::Aborted))),
        frame => Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken))),
    }
}
