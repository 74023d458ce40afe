//! What has gone of a request's body, in case it has to be sent again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Frame;

/// Bytes of a body that are kept at most: as many as may wait on their way to a server.
const MAX_BYTES: u64 = 64 * 1024;
/// Parts of it that are kept at most, since tiny ones cost more than their bytes.
const MAX_PARTS: usize = 64;

/// A whole body, or what is left of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    data: VecDeque<Bytes>,
    /// How many bytes these are.
    length: u64,
    trailers: Option<HeaderMap>,
}

/// What a body leaves behind on its way, as long as that is little.
#[derive(Debug)]
pub(super) struct Record {
    /// None if it was too much.
    parts: RefCell<Option<Parts>>,
    is_whole: Cell<bool>,
}

impl Parts {
    /// A body with these trailers.
    pub fn new(data: Bytes, trailers: HeaderMap) -> Self {
        Self { length: data.len() as u64, data: VecDeque::from([data]), trailers: Some(trailers) }
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    /// Bytes of data.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the next one out.
    pub fn next(&mut self) -> Option<Frame<Bytes>> {
        let Some(data) = self.data.pop_front() else { return self.trailers.take().map(Frame::trailers) };
        self.length -= data.len() as u64;
        Some(Frame::data(data))
    }

    fn add(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.length += data.len() as u64;
            self.data.push_back(data.clone());
        } else {
            self.trailers = frame.trailers_ref().cloned();
        }
    }

    fn are_few(&self) -> bool {
        self.length <= MAX_BYTES && self.data.len() <= MAX_PARTS
    }
}

impl Record {
    /// Of a body that has at least so many bytes; none if those are too many.
    pub fn of(bytes: u64) -> Option<Self> {
        let parts = RefCell::new(Some(Parts::default()));
        (bytes <= MAX_BYTES).then(|| Self { parts, is_whole: Cell::new(false) })
    }

    /// Keeps a part that goes by, if it is one; with it, or without, the body may be at its end.
    pub fn note<E>(&self, frame: &Poll<Option<Result<Frame<Bytes>, E>>>, is_whole: bool) {
        if let Poll::Ready(Some(Ok(frame))) = frame {
            let mut parts = self.parts.borrow_mut();
            if let Some(some) = &mut *parts {
                some.add(frame);
            }
            parts.take_if(|parts| !parts.are_few());
            // Nobody asks for more after these.
            self.is_whole.set(frame.is_trailers());
        }
        if is_whole {
            self.is_whole.set(true);
        }
    }

    /// The whole body, if it has come to its end and was not too much.
    pub fn whole(&self) -> Option<Parts> {
        self.parts.borrow().clone().filter(|_| self.is_whole.get())
    }
}
