//! What was sent of a request's body, in case it has to be sent again.

use std::cell::{Cell, RefCell};
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Frame;
use smallvec::SmallVec;

/// Bytes of a body that are kept at most: as many as may wait on their way to a server.
const MAX_BYTES: u64 = 64 * 1024;
/// Parts of it that are kept at most, since tiny ones cost more than their bytes.
const MAX_PARTS: usize = 64;

/// A whole body, which can be sent any number of times.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedBody {
    data: SmallVec<[Bytes; 1]>,
    trailers: Option<HeaderMap>,
    /// How many of its frames have been sent.
    sent: usize,
}

/// A copy of what was sent of a body, as long as that is little.
#[derive(Debug)]
pub(super) struct BodyRecorder {
    /// None if it was too much.
    parts: RefCell<Option<RecordedBody>>,
    is_whole: Cell<bool>,
}

impl RecordedBody {
    pub fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data: SmallVec::from_buf([data]), trailers, sent: 0 }
    }

    /// The next frame; none at the end.
    pub fn next(&mut self) -> Option<Frame<Bytes>> {
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

    /// Begins anew.
    pub fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Bytes of data that have not been sent.
    pub fn length(&self) -> u64 {
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
    /// Of a body that has at least so many bytes; none if those are too many.
    pub fn of(bytes: u64) -> Option<Self> {
        let parts = RefCell::new(Some(RecordedBody::default()));
        (bytes <= MAX_BYTES).then(|| Self { parts, is_whole: Cell::new(false) })
    }

    /// Keeps a frame that is sent, if there is one; with it, or without, the body may be at its end.
    pub fn note<E>(&self, frame: &Poll<Option<Result<Frame<Bytes>, E>>>, is_whole: bool) {
        if let Poll::Ready(Some(Ok(frame))) = frame {
            let mut parts = self.parts.borrow_mut();
            if let Some(some) = &mut *parts {
                some.add(frame);
            }
            parts.take_if(|parts| !parts.is_small());
            // No frame follows trailers.
            self.is_whole.set(frame.is_trailers());
        }
        if is_whole {
            self.is_whole.set(true);
        }
    }

    /// The whole body, if it has come to its end and was not too much.
    pub fn whole(&self) -> Option<RecordedBody> {
        self.parts.borrow().clone().filter(|_| self.is_whole.get())
    }
}
