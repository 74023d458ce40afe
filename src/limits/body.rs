//! Bodies of responses, which hold the slots of their requests.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::calls::Hold;
use crate::proxy::RequestFacts;

pin_project! {
    /// The body of a response of a limited service: that of the service, or that of a denial. The slots of its request are released
    /// when it has ended, or is dropped.
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        body: LocalOr<B>,
        hold: Option<Hold>,
        // Whether the final status is in the trailers.
        settles: bool,
    }
}

pin_project! {
    #[project = LocalOrProjection]
    #[derive(Debug)]
    enum LocalOr<B> {
        Local { bytes: Option<Bytes> },
        Service { #[pin] body: B },
    }
}

impl<B> LimitedBody<B> {
    pub(super) fn local(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { body: LocalOr::Local { bytes }, hold: None, settles: false }
    }

    /// The body of the service; `settles` says whether the final status of the request is in its trailers.
    pub(super) fn limited(body: B, hold: Option<Hold>, settles: bool) -> Self {
        Self { body: LocalOr::Service { body }, hold, settles }
    }
}

impl<B: Body<Data = Bytes>> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = match this.body.project() {
            LocalOrProjection::Local { bytes } => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            LocalOrProjection::Service { body } => ready!(body.poll_frame(context)),
        };
        match &frame {
            Some(Ok(frame)) => {
                if *this.settles
                    && let (Some(trailers), Some(hold)) = (frame.trailers_ref(), this.hold.as_mut())
                    && let Some(status) = RequestFacts::grpc_status(trailers)
                {
                    hold.settle_later(status);
                }
            }
            Some(Err(_)) => {}
            None => *this.hold = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            LocalOr::Local { bytes } => bytes.is_none(),
            LocalOr::Service { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            LocalOr::Local { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64)),
            LocalOr::Service { body } => body.size_hint(),
        }
    }
}
