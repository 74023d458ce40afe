//! Buffering of small request bodies before a server is selected, so that a slow client occupies no connection to a
//! server.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

/// The longest body that is buffered, in bytes.
pub(super) const MAX_BYTES: u64 = 64 * 1024;
/// How long the whole body may take to arrive.
pub(super) const TIMEOUT: Duration = Duration::from_mins(5);
/// The most bytes that are buffered for all requests of a client's connection: as many as HTTP/2 flow control lets a
/// client send ahead.
const MAX_RESERVED: u64 = 512 * 1024;

/// The memory for buffered bodies of one client connection.
#[derive(Clone, Debug, Default)]
pub struct BufferBudget(Rc<Cell<u64>>);

/// The memory of one buffered body, until the value is dropped.
#[derive(Debug)]
pub(super) struct BufferReservation {
    budget: BufferBudget,
    bytes: u64,
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

impl BufferBudget {
    /// Reserves memory for a body; none if other bodies of the connection use too much.
    pub(super) fn reserve(&self, bytes: u64) -> Option<BufferReservation> {
        let reserved = self.0.get() + bytes;
        (reserved <= MAX_RESERVED).then(|| {
            self.0.set(reserved);
            BufferReservation { budget: self.clone(), bytes }
        })
    }
}

impl BufferReservation {
    /// Enlarges the reservation to so many bytes, if other bodies of the connection leave room; returns whether it is
    /// large enough.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let total = self.budget.0.get() + more;
        let is_enough = total <= MAX_RESERVED;
        if is_enough {
            self.budget.0.set(total);
            self.bytes += more;
        }
        is_enough
    }
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        let Self { budget: BufferBudget(reserved), bytes } = self;
        reserved.set(reserved.get() - *bytes);
    }
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

    #[test]
    fn the_memory_for_bodies_of_a_connection_is_bounded() {
        let budget = BufferBudget::default();
        let mut held: Vec<BufferReservation> = (0..8).map(|_| budget.reserve(MAX_BYTES).unwrap()).collect();
        assert!(budget.reserve(1).is_none());
        held.pop();
        assert!(budget.reserve(MAX_BYTES + 1).is_none() && budget.reserve(MAX_BYTES).is_some());
        let mut last = budget.reserve(0).unwrap();
        assert!(last.grow(MAX_BYTES) && last.grow(1) && !last.grow(MAX_BYTES + 1));
        drop((held, last));
        assert_eq!(budget.0.get(), 0);
    }
}
