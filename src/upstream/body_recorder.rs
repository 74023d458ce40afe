//! A copy of a request's body, for retries.

use std::cell::{Cell, RefCell};
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Frame;
use smallvec::SmallVec;

/// The most bytes of a body that are recorded: as many as may be buffered before they are sent.
const MAX_BYTES: u64 = 64 * 1024;
/// The most parts that are recorded: tiny ones take more memory than their bytes.
const MAX_PARTS: usize = 64;

/// A complete body, which can be sent any number of times.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedBody {
    data: SmallVec<[Bytes; 1]>,
    trailers: Option<HeaderMap>,
    /// Whether it is sent without its length, since its trailers would be lost with one.
    pub is_chunked: bool,
    /// The number of frames that have been sent.
    sent: usize,
}

/// Records what is sent of a body, up to a limit.
#[derive(Debug)]
pub(super) struct BodyRecorder {
    /// None if the body exceeded the limit.
    body: RefCell<Option<RecordedBody>>,
    is_complete: Cell<bool>,
}

impl RecordedBody {
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
        let body = RefCell::new(Some(RecordedBody::default()));
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
    pub fn recorded(&self) -> Option<RecordedBody> {
        self.body.borrow().clone().filter(|_| self.is_complete.get())
    }
}
