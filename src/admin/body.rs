//! Bodies of responses: in one piece, or in chunks that a blocking thread writes while the client reads.

use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

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
