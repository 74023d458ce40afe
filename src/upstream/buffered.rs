//! Small bodies of requests are read whole before a server is chosen, so that a client that sends slowly keeps no
//! connection to a server.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

/// The longest body that is buffered, in bytes.
pub(super) const MAX_BYTES: u64 = 64 * 1024;
/// How long all of it may take.
pub(super) const WITHIN: Duration = Duration::from_mins(5);
/// Bytes that are buffered at most for all requests of one connection: as many as HTTP/2 lets a client send ahead.
const MAX_RESERVED: u64 = 512 * 1024;

/// Memory for the buffered bodies of one connection.
#[derive(Clone, Debug, Default)]
pub struct BufferBudget(Rc<Cell<u64>>);

/// Memory for one buffered body, until the value is dropped.
#[derive(Debug)]
pub(super) struct BufferReservation {
    budget: BufferBudget,
    bytes: u64,
}

/// A body as it comes.
#[derive(Debug, Default)]
pub(super) struct BodyBuffer {
    /// The first part, as it is; most bodies have no other.
    first: Bytes,
    /// All of it, if there are more parts: each part by itself may hold much more memory than it has bytes.
    joined: BytesMut,
    pub trailers: Option<HeaderMap>,
}

impl BufferBudget {
    /// Reserves memory for a body; none if other bodies of the connection have too much.
    pub(super) fn reserve(&self, bytes: u64) -> Option<BufferReservation> {
        let reserved = self.0.get() + bytes;
        (reserved <= MAX_RESERVED).then(|| {
            self.0.set(reserved);
            BufferReservation { budget: self.clone(), bytes }
        })
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
    fn a_connection_has_so_much_memory_for_bodies() {
        let budget = BufferBudget::default();
        let mut held: Vec<BufferReservation> = (0..8).map(|_| budget.reserve(MAX_BYTES).unwrap()).collect();
        assert!(budget.reserve(1).is_none());
        held.pop();
        assert!(budget.reserve(MAX_BYTES + 1).is_none() && budget.reserve(MAX_BYTES).is_some());
        drop(held);
        assert_eq!(budget.0.get(), 0);
    }
}
