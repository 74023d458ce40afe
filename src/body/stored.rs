//! Small request bodies in memory.
//!
//! A body is buffered before a server is selected, so that a slow client occupies no connection to a server; or it is recorded
//! while it is sent, so that the request can be sent again.

use std::cell::{Cell, RefCell};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::Frame;
use smallvec::SmallVec;

/// The longest body that is buffered or recorded, in bytes.
pub(super) const MAX_BYTES: u64 = 64 * 1024;
/// How long a body may take to arrive that is buffered.
pub(super) const TIMEOUT: Duration = Duration::from_mins(5);
/// The most parts that are recorded: tiny ones take more memory than their bytes.
const MAX_PARTS: usize = 64;

/// A complete body, which can be sent any number of times.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredBody {
    data: SmallVec<[Bytes; 1]>,
    trailers: Option<HeaderMap>,
    /// Whether it is sent without its length, since its trailers would be lost with one.
    pub is_chunked: bool,
    /// The number of frames that have been sent.
    sent: usize,
}

/// Records what is sent of a body, up to [`MAX_BYTES`].
#[derive(Debug)]
pub(super) struct BodyRecorder {
    /// None if the body exceeded the limit.
    body: RefCell<Option<StoredBody>>,
    is_complete: Cell<bool>,
}

impl StoredBody {
    pub fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data: SmallVec::from_buf([data]), trailers, is_chunked: false, sent: 0 }
    }

    pub fn has_trailers(&self) -> bool {
        self.trailers.is_some()
    }

    /// The next frame; none at the end.
    pub fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        self.sent += 1;
        match self.data.get(self.sent - 1) {
            Some(data) => Some(Frame::data(data.clone())),
            None if self.sent == self.data.len() + 1 => self.trailers.clone().map(Frame::trailers),
            None => None,
        }
    }

    /// Whether there is no next frame.
    pub fn is_end(&self) -> bool {
        self.sent >= self.data.len() + usize::from(self.trailers.is_some())
    }

    /// Restarts at the first frame.
    pub fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Replaces the data with what `rewrite` makes of it, of a body without trailers; returns the new length.
    pub fn rewrite(&mut self, rewrite: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<u64> {
        let [data] = &*self.data else { return None };
        let written = rewrite(data).filter(|_| !self.has_trailers())?;
        let length = written.len() as u64;
        self.data = SmallVec::from_buf([written.into()]);
        Some(length)
    }

    /// The number of bytes of data that have not been sent.
    pub fn remaining_bytes(&self) -> u64 {
        self.data.iter().skip(self.sent).map(|data| data.len() as u64).sum()
    }

    fn add(&mut self, frame: &Frame<Bytes>) {
        match frame.data_ref() {
            Some(data) => self.data.push(data.clone()),
            None => self.trailers = frame.trailers_ref().cloned(),
        }
    }

    fn is_small(&self) -> bool {
        let length: u64 = self.data.iter().map(|data| data.len() as u64).sum();
        length <= MAX_BYTES && self.data.len() <= MAX_PARTS
    }
}

impl BodyRecorder {
    /// A recorder for a body that has at least so many bytes; none if those exceed the limit.
    pub fn new(min_bytes: u64) -> Option<Self> {
        let body = RefCell::new(Some(StoredBody::default()));
        (min_bytes <= MAX_BYTES).then(|| Self { body, is_complete: Cell::new(false) })
    }

    /// Records a polled frame, if there is one; `is_complete` says that no frame follows.
    pub fn record<E>(&self, frame: &Poll<Option<Result<Frame<Bytes>, E>>>, is_complete: bool) {
        if let Poll::Ready(Some(Ok(frame))) = frame {
            let mut body = self.body.borrow_mut();
            if let Some(body) = &mut *body {
                body.add(frame);
            }
            body.take_if(|body| !body.is_small());
            // No frame follows trailers.
            self.is_complete.set(frame.is_trailers());
        }
        if is_complete {
            self.is_complete.set(true);
        }
    }

    /// The complete body, if all of it was sent and it did not exceed the limit.
    pub fn recorded(&self) -> Option<StoredBody> {
        self.body.borrow().clone().filter(|_| self.is_complete.get())
    }
}

/// The parts of a body that have arrived.
#[derive(Debug, Default)]
pub(super) struct BodyBuffer {
    /// The first part, not copied: most bodies have no other.
    first: Bytes,
    /// All parts, if there is more than one. They are copied, since a part may keep much more memory alive than it has
    /// bytes.
    joined: BytesMut,
    pub trailers: Option<HeaderMap>,
}

impl BodyBuffer {
    pub fn add(&mut self, data: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = data;
            return;
        }
        let first = std::mem::take(&mut self.first);
        self.joined.extend_from_slice(&first);
        self.joined.extend_from_slice(&data);
    }

    pub fn length(&self) -> u64 {
        self.first.len().max(self.joined.len()) as u64
    }

    pub fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_a_single_one_is_not_copied() {
        let mut buffer = BodyBuffer::default();
        let only = Bytes::from_static(b"one");
        buffer.add(only.clone());
        assert_eq!(buffer.into_bytes().as_ptr(), only.as_ptr());
        let mut buffer = BodyBuffer::default();
        for part in ["", "a", "", "bc", "d"] {
            buffer.add(part.into());
        }
        assert_eq!(buffer.into_bytes(), "abcd");
        assert_eq!(BodyBuffer::default().into_bytes(), "");
    }
}
