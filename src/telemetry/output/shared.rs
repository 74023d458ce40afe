//! State that producers share with the writer thread: a buffer of lines for each, and how the thread sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use crate::time::monotonic;

/// How long lines gather after a write.
pub(super) const GATHER: Duration = Duration::from_millis(10);

/// Phase of the writer thread: it checks every buffer before it sleeps again.
const WRITING: u8 = 0;
/// It sleeps so that lines gather; a full buffer or a flush wakes it.
const GATHERING: u8 = 1;
/// It sleeps until there is a line.
const IDLE: u8 = 2;

/// State that producers share with the writer thread.
#[derive(Debug, Default)]
pub(super) struct SharedOutput {
    phase: AtomicU8,
    buffers: Mutex<Vec<Arc<Buffer>>>,
    /// Channels that confirm that everything appended so far is written.
    flushes: Mutex<Vec<SyncSender<()>>>,
    /// Bytes of memory that full buffers take.
    pub waiting: AtomicUsize,
    /// Lines that were dropped, or could not be written.
    pub dropped: AtomicU64,
}

impl SharedOutput {
    /// Registers the buffer of a new producer.
    pub fn add_buffer(&self) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::default());
        self.buffers.lock().push(Arc::clone(&buffer));
        buffer
    }

    /// The buffers that may have lines; forgets those without a producer.
    pub fn buffers(&self) -> Vec<Arc<Buffer>> {
        let mut buffers = self.buffers.lock();
        buffers.retain(|buffer| Arc::strong_count(buffer) > 1 || !buffer.is_empty());
        buffers.clone()
    }

    /// Requests a confirmation on `done` as soon as everything appended so far is written.
    pub fn request_flush(&self, done: SyncSender<()>) {
        self.flushes.lock().push(done);
    }

    /// Takes the flushes that were requested.
    pub fn take_flushes(&self) -> Vec<SyncSender<()>> {
        std::mem::take(&mut *self.flushes.lock())
    }

    fn has_work(&self) -> bool {
        !self.flushes.lock().is_empty() || self.buffers.lock().iter().any(|buffer| !buffer.is_empty())
    }

    /// Wakes the writer thread if it is idle or, if `is_urgent`, while it lets lines gather.
    ///
    /// The caller has held the lock of what it added to since. The thread announces its phase before it takes that
    /// lock, so either it finds the addition or the caller sees the phase.
    pub fn wake(&self, thread: &Thread, is_urgent: bool) {
        let is_asleep = match self.phase.load(Ordering::Relaxed) {
            IDLE => true,
            GATHERING => is_urgent,
            _ => false,
        };
        // If several producers find it asleep, only one makes the system call.
        if is_asleep && self.phase.swap(WRITING, Ordering::Relaxed) != WRITING {
            thread.unpark();
        }
    }

    /// Lets the writer thread sleep while lines gather.
    pub fn gather(&self) {
        self.phase.store(GATHERING, Ordering::Relaxed);
        let deadline = monotonic() + GATHER;
        while self.phase.load(Ordering::Relaxed) == GATHERING {
            let left = deadline.saturating_duration_since(monotonic());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
        self.phase.store(WRITING, Ordering::Relaxed);
    }

    /// Lets the writer thread sleep until there is something to write.
    pub fn wait(&self) {
        self.phase.store(IDLE, Ordering::Relaxed);
        // Lines that were appended before the phase was visible did not wake this thread.
        if !self.has_work() {
            while self.phase.load(Ordering::Relaxed) == IDLE {
                thread::park();
            }
        }
        self.phase.store(WRITING, Ordering::Relaxed);
    }
}

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
