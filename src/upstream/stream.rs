//! The body of a request over HTTP/2, checked more strictly than hyper does.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::Instant;

use super::error::{BodyError, PolledFrame};
use super::unread_bodies::StreamBody;
use crate::socket::Deadline;

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
pub(super) fn poll_whole<B>(incoming: &mut B, cx: &mut Context<'_>) -> PolledFrame
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
        None if !incoming.is_end_stream() => Poll::Ready(Some(Err(BodyError::Aborted))),
        frame => Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken))),
    }
}
