//! The body of a request as it arrives from a client.

use hyper::body::Body as _;

use super::ClientConnection;
use crate::upstream::{BodyReceiver, RequestBody, StreamBody};

/// The body of a request as it arrives from a client.
#[derive(Debug, Default)]
pub enum ClientBody {
    /// The request has no body, or it was taken.
    #[default]
    None,
    /// Over HTTP/1.1, from the connection that reads it.
    Http1(BodyReceiver),
    /// Over HTTP/2.
    Http2(StreamBody),
    /// Read for a limit, as a whole or its start.
    Read(Box<RequestBody>),
}

impl From<Option<BodyReceiver>> for ClientBody {
    fn from(receiver: Option<BodyReceiver>) -> Self {
        receiver.map_or(Self::None, Self::Http1)
    }
}

impl From<StreamBody> for ClientBody {
    fn from(body: StreamBody) -> Self {
        if body.is_end_stream() { Self::None } else { Self::Http2(body) }
    }
}

impl ClientBody {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Takes the body to forward it; none if the request has no body. `is_grpc` says that it belongs to a gRPC call.
    pub(super) fn take(&mut self, client: &ClientConnection, is_grpc: bool) -> Option<RequestBody> {
        match std::mem::take(self) {
            Self::None => None,
            Self::Read(body) => Some(*body),
            Self::Http1(receiver) => Some(RequestBody::received(receiver)),
            Self::Http2(body) => Some(RequestBody::streaming(body, client.request_stream(is_grpc))),
        }
    }

    /// Reads and drops the rest of the body of a rejected request over HTTP/2, for a while. Over HTTP/1.1 the connection does
    /// this.
    pub(super) async fn drain(self) {
        let unread = match self {
            Self::Http2(body) => Some(body),
            Self::Read(mut body) => body.take_unread(),
            Self::None | Self::Http1(_) => None,
        };
        if let Some(unread) = unread {
            unread.drain().await;
        }
    }
}
