//! Buffers of lines. Each belongs to one producer, which shares it with the writer thread alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Bytes of memory that full buffers of all producers may take until they are written.
pub(super) const MAX_WAITING: usize = 8 * 1024 * 1024;
/// Bytes of memory that a buffer takes, unless a line is longer.
pub(super) const CAPACITY: usize = 64 * 1024;
/// Bytes of lines at which a buffer is full: most lines fit into the rest of [`CAPACITY`].
pub(super) const FULL: usize = CAPACITY - 4 * 1024;

/// The buffer of one producer.
#[derive(Debug, Default)]
pub(super) struct Buffer(Mutex<PendingLines>);

/// Lines that are not written yet, each ending in a line feed.
#[derive(Debug, Default)]
pub(super) struct PendingLines {
    /// Full buffers, oldest first. Their capacity is counted against [`MAX_WAITING`].
    pub full: Vec<Vec<u8>>,
    pub current: Vec<u8>,
}

/// The result of appending a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is in the buffer, which has room for more.
    HasRoom,
    /// It is in the buffer, which is full now and should be written at once.
    IsFull,
    /// The bound on memory is reached.
    Dropped,
}

impl Buffer {
    /// Appends the line that `write` appends to its argument. `waiting` is the memory that all full buffers take, in
    /// bytes.
    pub fn append(&self, waiting: &AtomicUsize, write: impl FnOnce(&mut Vec<u8>)) -> Appended {
        let mut lines = self.0.lock();
        if lines.current.len() >= FULL && !lines.set_aside(waiting) {
            return Appended::Dropped;
        }
        let current = &mut lines.current;
        if current.capacity() == 0 {
            current.reserve_exact(CAPACITY);
        }
        write(current);
        current.push(b'\n');
        if current.len() >= FULL { Appended::IsFull } else { Appended::HasRoom }
    }

    pub fn is_empty(&self) -> bool {
        // A buffer is set aside only to append a line to the next one, so the current one has lines then, too.
        self.0.lock().current.is_empty()
    }

    /// Takes all lines, and leaves an empty buffer in their place.
    pub fn take(&self, empty: Vec<u8>) -> PendingLines {
        std::mem::replace(&mut *self.0.lock(), PendingLines { full: Vec::new(), current: empty })
    }
}

impl PendingLines {
    /// Starts another buffer if the bound on memory allows it; returns whether it does.
    fn set_aside(&mut self, waiting: &AtomicUsize) -> bool {
        let size = self.current.capacity();
        let has_room = waiting.fetch_add(size, Ordering::Relaxed) + size <= MAX_WAITING;
        if has_room {
            self.full.push(std::mem::take(&mut self.current));
        } else {
            waiting.fetch_sub(size, Ordering::Relaxed);
        }
        has_room
    }
}
