//! The body of an answer, as the client's connection writes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use tokio::time::Instant;

use super::grpc_body::GrpcBody;
use super::log_entry::LogEntry;
use crate::telemetry::Counts;
use crate::time::cached_now;
use crate::upstream::{BodyError, ConnectionUse, ResponseBody};

/// The body of an answer. When it is dropped, the request is logged and its duration counted.
#[derive(Debug)]
pub struct ReplyBody {
    source: BodySource,
    entry: Option<Box<LogEntry>>,
    timing: RequestTiming,
}

/// When a request began, and where its duration is counted.
#[derive(Debug)]
pub(super) struct RequestTiming {
    pub begun: Instant,
    pub counts: Arc<Counts>,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum BodySource {
    /// From us.
    Local(Bytes),
    /// From a server.
    Upstream(ResponseBody),
    /// From a server, to a gRPC call that holds units until its trailers.
    Grpc(Box<GrpcBody>),
}

impl BodySource {
    /// The body that comes from a server.
    fn upstream_body(&self) -> Option<&ResponseBody> {
        match self {
            Self::Local(_) => None,
            Self::Upstream(body) => Some(body),
            Self::Grpc(body) => Some(body.upstream_body()),
        }
    }

    /// Whether it is an empty body of ours.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Local(bytes) if bytes.is_empty())
    }
}

impl BodySource {
    /// Whether there is no more to come.
    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::Local(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Grpc(body) => body.is_end_stream(),
        }
    }

    /// How long it is.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Local(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Upstream(body) => body.size_hint(),
            Self::Grpc(body) => body.size_hint(),
        }
    }
}

impl ReplyBody {
    pub(super) fn new(source: BodySource, entry: Option<Box<LogEntry>>, timing: RequestTiming) -> Self {
        Self { source, entry, timing }
    }

    /// Whether it comes from the proxy itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.source, BodySource::Local(_))
    }

    /// How long it is, if it comes from the proxy itself.
    #[must_use]
    pub fn local_length(&self) -> Option<u64> {
        if let BodySource::Local(bytes) = &self.source { Some(bytes.len() as u64) } else { None }
    }

    /// Goes on with what is still to be sent of the request, while no more of the response can be taken.
    ///
    /// # Errors
    /// When the client has broken off the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        if let BodySource::Upstream(body) = &mut self.source { body.poll_upload(cx) } else { Ok(()) }
    }

    /// Whether it has no minimum rate, as of event streams and gRPC calls.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.source.upstream_body().is_some_and(ResponseBody::is_open_ended)
    }

    /// Who uses the connection to the server, if there is more of the body to come and no other request does.
    #[must_use]
    pub fn upstream_connection(&self) -> Option<&Arc<ConnectionUse>> {
        self.source.upstream_body().filter(|body| !body.is_end_stream())?.connection_use()
    }

    /// Notes what is logged of a frame.
    fn record_frame(&mut self, frame: &Poll<Option<Result<Frame<Bytes>, BodyError>>>) {
        let Some(entry) = &mut self.entry else { return };
        match frame {
            Poll::Ready(Some(Ok(frame))) => {
                entry.record.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                entry.is_whole |= frame.is_trailers();
            }
            Poll::Ready(Some(Err(error))) => entry.record.error = Some(error.word()),
            Poll::Ready(None) => entry.is_whole = true,
            Poll::Pending => {}
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.source {
            BodySource::Local(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodySource::Local(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            BodySource::Upstream(body) => Pin::new(body).poll_frame(cx),
            BodySource::Grpc(body) => Pin::new(body).poll_frame(cx),
        };
        self.record_frame(&frame);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        let is_own = matches!(self.source, BodySource::Local(_));
        let is_whole = is_own || self.is_end_stream();
        if let Some(entry) = &mut self.entry {
            if !is_whole && !entry.is_whole {
                entry.record.error.get_or_insert("client_gone");
            }
            entry.write();
        }
        self.timing.counts.took(cached_now() - self.timing.begun);
    }
}
