//! The body of a request as it arrives from a client.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use std::time::Duration;
use tokio::time::timeout;

use super::ClientConnection;
use crate::upstream::{BodyReceiver, RequestBody};

/// The most bytes that are drained from the body of a rejected request over HTTP/2: more than a client can have sent
/// before it could read the response.
const MAX_DRAIN: usize = 256 * 1024;
/// The longest time for which such a body is drained.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(1);

/// The body of a request as it arrives from a client.
#[derive(Debug, Default)]
pub enum ClientBody {
    /// The request has no body, or it was taken.
    #[default]
    None,
    /// Over HTTP/1.1, from the connection that reads it.
    Http1(BodyReceiver),
    /// Over HTTP/2.
    Http2(Incoming),
    /// Read for a limit, as a whole or its start.
    Read(Box<RequestBody>),
}

impl From<Option<BodyReceiver>> for ClientBody {
    fn from(receiver: Option<BodyReceiver>) -> Self {
        receiver.map_or(Self::None, Self::Http1)
    }
}

impl From<Incoming> for ClientBody {
    fn from(incoming: Incoming) -> Self {
        if incoming.is_end_stream() { Self::None } else { Self::Http2(incoming) }
    }
}

impl ClientBody {
    /// Takes the body to forward it; none if the request has no body. `is_grpc` says that it belongs to a gRPC call.
    pub(super) fn take(&mut self, client: &ClientConnection, is_grpc: bool) -> Option<RequestBody> {
        match std::mem::take(self) {
            Self::None => None,
            Self::Read(body) => Some(*body),
            Self::Http1(receiver) => Some(RequestBody::received(receiver)),
            Self::Http2(incoming) => Some(RequestBody::streaming(incoming, client.request_stream(is_grpc))),
        }
    }

    /// Puts a body back of which nothing was read, so that [`Self::drain`] can read it.
    pub(super) fn restore(&mut self, unread: Option<Incoming>) {
        *self = unread.map_or(Self::None, Self::Http2);
    }

    /// Reads and drops the rest of the body of a rejected request over HTTP/2 for a while, during its response. Some
    /// clients report a failure if the stream is reset right after its response, though that is valid (RFC 9113 §8.1).
    /// The returned future completes when draining ends. Over HTTP/1.1 the connection does this.
    pub(super) fn drain(self) -> Option<impl Future> {
        let mut unread = match self {
            Self::Http2(unread) => unread,
            Self::Read(mut body) => body.take_unread()?,
            Self::None | Self::Http1(_) => return None,
        };
        Some(tokio::task::spawn_local(timeout(MAX_DRAIN_TIME, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = unread.frame().await
                && read < MAX_DRAIN
            {
                read += frame.data_ref().map_or(0, Bytes::len);
            }
        })))
    }
}
