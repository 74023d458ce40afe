//! The body of a response, as the client's connection writes it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

use super::request_record::RequestRecord;
use super::settlement::SettledBody;
use crate::telemetry::RequestCounts;
use crate::time::Stopwatch;
use crate::upstream::{BodyError, ConnectionUse, PolledFrame, ResponseBody, delegate_body};

/// The body of a response. When it is dropped, the request is logged and its duration counted.
#[derive(Debug)]
pub struct ReplyBody {
    source: BodySource,
    record: RequestRecord,
    timing: RequestTiming,
}

/// When a request began, and where its duration is counted.
#[derive(Debug)]
pub(super) struct RequestTiming {
    pub stopwatch: Stopwatch,
    pub counts: RequestCounts,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum BodySource {
    /// From the proxy itself.
    Local(Bytes),
    /// From an upstream server; boxed because responses are moved often.
    Upstream(Box<ResponseBody>),
    /// From an upstream server, for a request that its response settles.
    Settled(Box<SettledBody>),
    /// From a service of this process, with trailers that were not sent yet.
    WithTrailers(Bytes, Option<Box<HeaderMap>>),
    /// From a service of this process, which makes its frames while they are sent.
    Frames(FrameStream),
}

impl BodySource {
    /// The body from an upstream server, if it has one.
    fn upstream_body(&self) -> Option<&ResponseBody> {
        match self {
            Self::Local(_) | Self::WithTrailers(..) | Self::Frames(_) => None,
            Self::Upstream(body) => Some(body),
            Self::Settled(body) => body.upstream_body(),
        }
    }

    /// Whether this is an empty body of the proxy itself.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Local(bytes) if bytes.is_empty())
    }

    /// Whether nothing of the body is missing once all that was polled is sent.
    fn is_whole(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Upstream(body) => body.is_whole(),
            Self::Settled(body) => body.is_whole(),
            Self::WithTrailers(..) | Self::Frames(_) => self.is_end_stream(),
        }
    }

    /// Whether the body has ended.
    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::Local(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Settled(body) => body.is_end_stream(),
            Self::WithTrailers(_, trailers) => trailers.is_none(),
            Self::Frames(frames) => frames.is_end(),
        }
    }

    /// Bounds of the remaining length.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Local(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Upstream(body) => body.size_hint(),
            Self::Settled(body) => body.size_hint(),
            Self::WithTrailers(..) | Self::Frames(_) => SizeHint::default(),
        }
    }
}

impl ReplyBody {
    pub(super) fn new(source: BodySource, record: RequestRecord, timing: RequestTiming) -> Self {
        Self { source, record, timing }
    }

    /// Whether the body comes from the proxy itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.source, BodySource::Local(_))
    }

    /// The length of a body from the proxy itself.
    #[must_use]
    pub fn local_length(&self) -> Option<u64> {
        if let BodySource::Local(bytes) = &self.source { Some(bytes.len() as u64) } else { None }
    }

    /// Continues to send the request's body while the client does not read the response. Fails if the client has aborted the
    /// request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        match &mut self.source {
            BodySource::Upstream(body) => body.poll_upload(cx),
            BodySource::Settled(body) => body.poll_upload(cx),
            _ => Ok(()),
        }
    }

    /// Whether the minimum rate does not apply, as for event streams and gRPC calls.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        match &self.source {
            BodySource::Frames(_) => true,
            source => source.upstream_body().is_some_and(ResponseBody::is_open_ended),
        }
    }

    /// The use of the server connection, if the body has not ended and no other request shares the connection.
    #[must_use]
    pub fn upstream_connection(&self) -> Option<&Arc<ConnectionUse>> {
        self.source.upstream_body().filter(|body| !body.is_end_stream())?.connection_use()
    }
}

impl Body for ReplyBody {
    delegate_body!(source);

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let frame = match &mut self.source {
            BodySource::Local(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodySource::Upstream(body) => Pin::new(body).poll_frame(cx),
            BodySource::Settled(body) => Pin::new(body).poll_frame(cx),
            BodySource::Frames(frames) => frames.poll_frame(cx).map(|frame| frame.map(Ok)),
            BodySource::WithTrailers(bytes, trailers) if bytes.is_empty() => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
            }
            BodySource::Local(bytes) | BodySource::WithTrailers(bytes, _) => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
        };
        // Every body passes here, so the log counts bytes and sees errors whatever their source.
        self.record.record_frame(&frame);
        frame
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        let is_whole = self.source.is_whole();
        if let BodySource::Settled(body) = &mut self.source {
            self.record.add_costs(&body.finish());
            if body.is_stopped() {
                self.record.set_stopped();
            }
        }
        let RequestTiming { stopwatch, counts } = &self.timing;
        counts.record_duration(stopwatch.elapsed(), self.record.sampled_trace_id());
        self.record.finish(is_whole);
    }
}

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
        // A stream must not be polled after its end, and nothing follows trailers.
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
