//! The frames of a response that are made while it is sent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::Frame;

/// The frames of a response that are made while it is sent. Trailers are the last one.
pub struct FrameStream(Option<Pin<Box<dyn Stream<Item = Frame<Bytes>>>>>);

impl FrameStream {
    /// The frames of a stream.
    #[must_use]
    pub fn new(frames: impl Stream<Item = Frame<Bytes>> + 'static) -> Self {
        Self(Some(Box::pin(frames)))
    }

    /// The next frame; none at the end.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let Some(frames) = &mut self.0 else { return Poll::Ready(None) };
        let frame = frames.as_mut().poll_next(cx);
        if let Poll::Ready(last) = &frame
            && last.as_ref().is_none_or(Frame::is_trailers)
        {
            self.0 = None;
        }
        frame
    }

    /// Whether all frames were sent.
    pub(super) fn is_end(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for FrameStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameStream").field("is_end", &self.is_end()).finish()
    }
}
