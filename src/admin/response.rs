//! Responses of the admin interface, and their bodies.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::api::ErrorBody;

/// A response of the interface.
pub(super) type AdminResponse = Response<AdminBody>;

/// Why a request is rejected: an error response.
#[derive(Debug)]
pub(super) struct AdminError {
    status: StatusCode,
    body: ErrorBody,
    header: Option<(HeaderName, Cow<'static, str>)>,
}

impl AdminError {
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { error: error.into(), help: None }, header: None }
    }

    /// The request is invalid.
    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Adds how to correct it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.body.help = Some(help.into());
        self
    }

    /// Adds a header that the status requires.
    pub fn header(self, name: HeaderName, value: impl Into<Cow<'static, str>>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }

    pub fn into_response(self) -> AdminResponse {
        let mut response = with_status(self.status, &self.body);
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// A response with a value as JSON.
pub(super) fn json(value: &impl Serialize) -> AdminResponse {
    with_status(StatusCode::OK, value)
}

/// A response with text.
pub(super) fn text(status: StatusCode, content_type: &'static str, text: String) -> AdminResponse {
    let mut response = with_body(content_type, AdminBody::from(text));
    *response.status_mut() = status;
    response
}

/// A response with this body.
pub(super) fn with_body(content_type: &'static str, body: AdminBody) -> AdminResponse {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A response of this status with a value as JSON.
pub(super) fn with_status(status: StatusCode, value: &impl Serialize) -> AdminResponse {
    // Serialization can't fail: the values have string keys and finite numbers.
    let body = serde_json::to_string_pretty(value).unwrap_or_default();
    text(status, "application/json", body + "\n")
}

/// Chunks that may wait for the client.
const QUEUED: usize = 2;
/// The length of a chunk in bytes. The main thread copies one at a time, between other requests.
const CHUNK: usize = 64 * 1024;

/// The body of a response.
#[derive(Debug)]
pub(super) enum AdminBody {
    /// In one piece; empty once it was taken.
    Whole(Bytes),
    /// In chunks.
    Chunks(mpsc::Receiver<Bytes>),
}

/// Writes the chunks of a body, on a blocking thread of the runtime.
pub(super) struct ChunkWriter {
    chunks: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    /// Bounds how many render at once.
    rendering: Arc<Semaphore>,
    /// Held while it renders, and not while it waits for the client.
    permit: Option<OwnedSemaphorePermit>,
}

/// A body, and the writer of its chunks. The body ends when the writer is dropped.
pub(super) fn channel(rendering: Arc<Semaphore>) -> (ChunkWriter, AdminBody) {
    let (chunks, received) = mpsc::channel(QUEUED);
    (ChunkWriter { chunks, buffer: Vec::new(), rendering, permit: None }, AdminBody::Chunks(received))
}

impl ChunkWriter {
    /// Waits until it may render.
    fn acquire(&mut self) {
        if self.permit.is_none() {
            // The semaphore is never closed.
            self.permit = Handle::current().block_on(Arc::clone(&self.rendering).acquire_owned()).ok();
        }
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.acquire();
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.permit = None;
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK + 1024));
        // Fails when the client has disconnected.
        self.chunks.blocking_send(chunk.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl From<String> for AdminBody {
    fn from(text: String) -> Self {
        Self::Whole(text.into())
    }
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Chunks(chunks) => {
                chunks.poll_recv(cx).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Chunks(_) => SizeHint::default(),
        }
    }
}
