//! The body of an answer, as the client's connection writes it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::Peer;
use crate::upstream::ResponseBody;

/// The body of an answer. When it is done, or dropped, its connection owes us the next request.
#[derive(Debug)]
pub struct ReplyBody {
    source: Source,
    peer: Rc<Peer>,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// From us.
    Own(Bytes),
    /// From a server.
    Upstream(ResponseBody),
}

impl ReplyBody {
    pub(super) fn new(source: Source, peer: Rc<Peer>) -> Self {
        Self { source, peer }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.source {
            Source::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Upstream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.is_empty(),
            Source::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Upstream(body) => body.size_hint(),
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        self.peer.is_answered();
    }
}
