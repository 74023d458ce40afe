//! The body of a request as it comes from a client.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use std::time::Duration;
use tokio::time::timeout;

use super::ClientConnection;
use crate::upstream::{BodyReceiver, RequestBody};

/// How much is read of the body of a refused request over HTTP/2: more than a client can have sent before it could read
/// its response.
const MAX_READ_ON: usize = 256 * 1024;
/// How long it is read in all.
const MAX_TIME: Duration = Duration::from_secs(1);

/// The body of a request as it comes from a client.
#[derive(Debug, Default)]
pub enum ClientBody {
    /// There is none, or it was taken.
    #[default]
    None,
    /// Over HTTP/1.1, from the connection that reads it.
    Http1(BodyReceiver),
    /// Over HTTP/2.
    Http2(Incoming),
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
    /// The body on its way to a server; none if there is none. `is_call` says that it belongs to a gRPC call.
    pub(super) fn take(&mut self, peer: &ClientConnection, is_call: bool) -> Option<RequestBody> {
        match std::mem::take(self) {
            Self::None => None,
            Self::Http1(receiver) => Some(RequestBody::received(receiver)),
            Self::Http2(incoming) => Some(RequestBody::streaming(incoming, peer.request_stream(is_call))),
        }
    }

    /// Takes back a body of which nothing was read: it goes nowhere, and its client is still to send it.
    pub(super) fn restore(&mut self, unread: Option<Incoming>) {
        *self = unread.map_or(Self::None, Self::Http2);
    }

    /// Reads the rest of the body of a refused request over HTTP/2 for a while, during its response. Some clients take a
    /// stream that is reset right behind its response for a failure, though it is in order (RFC 9113 §8.1). What is
    /// returned ends when no more is read. Over HTTP/1.1 the connection does this.
    pub(super) fn drain(self) -> Option<impl Future> {
        let Self::Http2(mut unread) = self else { return None };
        Some(tokio::task::spawn_local(timeout(MAX_TIME, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = unread.frame().await
                && read < MAX_READ_ON
            {
                read += frame.data_ref().map_or(0, Bytes::len);
            }
        })))
    }
}
