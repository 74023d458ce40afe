//! The body of a request that comes over HTTP/2, where its library is more forgiving than we may be.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Instant;

use super::error::BodyError;
use crate::socket::Deadline;

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A client's stream, among others on a connection. What fills the length that it has named is held back until the
/// stream ends there: by then a server would have taken it for a whole request, though more may follow.
#[derive(Debug)]
pub struct ClientStream {
    waiting: Deadline,
    held: Option<Frame<Bytes>>,
}

impl ClientStream {
    /// One of which each part may take so long, and that has a minimum rate in bytes per second if one is given.
    #[must_use]
    pub fn new(span: Duration, min_rate: Option<NonZeroU32>) -> Self {
        Self { waiting: Deadline::new(span).with_min_rate(min_rate), held: None }
    }

    /// All of it must have come by then, if that is given.
    pub(super) fn set_limit(&mut self, limit: Option<Instant>) {
        self.waiting.set_limit(limit);
    }

    /// How much longer may be waited for it with this grace; none without a minimum rate.
    pub(super) fn allowance(&self, grace: Duration) -> Option<Duration> {
        self.waiting.allowance(grace)
    }

    /// Bytes that are held back; none if nothing is.
    pub(super) fn held(&self) -> Option<usize> {
        self.held.as_ref().map(|frame| frame.data_ref().map_or(0, Bytes::len))
    }

    /// The next part of the body, or that it has not come in time.
    pub(super) fn poll_frame(&mut self, incoming: &mut Incoming, cx: &mut Context<'_>) -> Polled {
        let frame = self.next(incoming, cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.waiting.add_bytes(frame.data_ref().map_or(0, Bytes::len));
        }
        self.waiting.bound(frame, cx).map(|frame| frame.unwrap_or_else(|late| Some(Err(late.into()))))
    }

    fn next(&mut self, incoming: &mut Incoming, cx: &mut Context<'_>) -> Polled {
        if self.held.as_ref().is_some_and(Frame::is_trailers) {
            return Poll::Ready(self.held.take().map(Ok));
        }
        loop {
            let Some(frame) = ready!(poll_whole(incoming, cx)) else {
                return Poll::Ready(self.held.take().map(Ok));
            };
            let frame = frame?;
            let fills = incoming.size_hint().exact() == Some(0) && !incoming.is_end_stream();
            let next = match self.held.take() {
                None if fills && frame.is_data() => {
                    self.held = Some(frame);
                    continue;
                }
                None => frame,
                // Nothing but an empty frame or trailers may follow.
                Some(held) => {
                    if frame.is_trailers() {
                        self.held = Some(frame);
                    } else if fills {
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

/// The next part of a body over HTTP/2. The library takes a stream that is reset without an error for one that has
/// come to its end.
pub(super) fn poll_whole(incoming: &mut Incoming, cx: &mut Context<'_>) -> Polled {
    match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
        None if !incoming.is_end_stream() => Poll::Ready(Some(Err(BodyError::BrokenOff))),
        frame => Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken))),
    }
}
