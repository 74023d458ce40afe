//! Log output: threads append lines to buffers, and one thread writes the buffers to a file descriptor.
//!
//! A buffer belongs to one producer, such as a worker, so appending to it takes an uncontended lock and no system call.
//! The writing thread takes all buffers at once: immediately when it was idle, and otherwise [`GATHER`] after its last
//! write, or as soon as a buffer is full. No producer waits for a write: while the file descriptor does not take them,
//! lines are dropped and counted.

mod writing;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use self::writing::Writing;
use crate::time::monotonic;

/// Bytes of memory that full buffers may take, of all producers together, until they are written.
const MAX_WAITING: usize = 8 * 1024 * 1024;
/// Bytes of memory that a buffer takes, unless a line is longer.
const CAPACITY: usize = 64 * 1024;
/// Bytes of lines at which a buffer is full: most lines fit into the rest.
const FULL: usize = CAPACITY - 4 * 1024;
/// How long lines gather after a write.
const GATHER: Duration = Duration::from_millis(10);

/// Phase of the writing thread: it looks at every buffer before its next wait.
const WRITING: u8 = 0;
/// It sleeps so that lines gather; a full buffer or a flush wakes it.
const GATHERING: u8 = 1;
/// It sleeps until there is a line.
const IDLE: u8 = 2;

/// The writing thread of one file descriptor. It runs until the process exits.
#[derive(Clone, Debug)]
pub(super) struct LogOutput {
    shared: Arc<Shared>,
    thread: Thread,
}

/// The buffer of one producer; clones share it. It is written and forgotten when the last clone is gone.
#[derive(Clone, Debug)]
pub(super) struct LogBuffer(Arc<Buffer>);

#[derive(Debug)]
struct Buffer {
    lines: Mutex<Lines>,
    output: LogOutput,
}

/// Lines that are not written yet, each ending in a line feed.
#[derive(Debug, Default)]
struct Lines {
    /// Full buffers, oldest first. Their capacity is part of [`Shared::waiting`].
    full: Vec<Vec<u8>>,
    current: Vec<u8>,
}

/// State that producers share with the writing thread.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    buffers: Mutex<Vec<Arc<Buffer>>>,
    /// Where to confirm that everything appended so far is written.
    flushes: Mutex<Vec<SyncSender<()>>>,
    /// Bytes of memory that full buffers take.
    waiting: AtomicUsize,
    /// Lines that were dropped, or could not be written.
    dropped: AtomicU64,
}

impl LogOutput {
    /// Starts the thread that writes to `out`. `what` it writes is the thread's name, too.
    ///
    /// # Errors
    /// When the thread can't be started.
    pub fn start(out: impl Write + Send + 'static, what: &'static str) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writing = Writing::new(out, what, Arc::clone(&shared));
        let thread = thread::Builder::new().name(what.replace(' ', "-")).spawn(move || writing.run())?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// A new buffer whose lines are written here.
    pub fn buffer(&self) -> LogBuffer {
        let buffer = Arc::new(Buffer { lines: Mutex::default(), output: self.clone() });
        self.shared.buffers.lock().push(Arc::clone(&buffer));
        LogBuffer(buffer)
    }

    /// Lines that were dropped, or could not be written, since the start.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits up to `timeout` until all lines that were appended to any buffer are written; returns whether they are.
    pub fn flush(&self, timeout: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        self.shared.flushes.lock().push(done);
        self.wake(true);
        is_done.recv_timeout(timeout).is_ok()
    }

    /// Wakes the thread if it is idle, or, for something urgent, while it lets lines gather.
    ///
    /// The caller has held the lock of what it added to since. The thread announces its phase before it takes that
    /// lock, so either it finds the addition or the caller sees the phase.
    fn wake(&self, is_urgent: bool) {
        let phase = &self.shared.phase;
        let is_asleep = match phase.load(Ordering::Relaxed) {
            IDLE => true,
            GATHERING => is_urgent,
            _ => false,
        };
        // One producer of several that find it asleep makes the system call.
        if is_asleep && phase.swap(WRITING, Ordering::Relaxed) != WRITING {
            self.thread.unpark();
        }
    }
}

impl LogBuffer {
    /// Appends the line that `write` appends to its argument, without a line feed, or drops it where the bound on memory
    /// is reached. Does not block.
    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let Buffer { lines, output } = &*self.0;
        let mut lines = lines.lock();
        let has_room = lines.current.len() < FULL || lines.set_aside(&output.shared);
        if !has_room {
            output.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let current = &mut lines.current;
        if current.capacity() == 0 {
            current.reserve_exact(CAPACITY);
        }
        write(current);
        current.push(b'\n');
        let is_full = current.len() >= FULL;
        drop(lines);
        output.wake(is_full);
    }
}

impl Buffer {
    fn is_empty(&self) -> bool {
        // Where there are full ones, the current one has lines, too.
        self.lines.lock().current.is_empty()
    }

    /// Takes all lines, and leaves an empty buffer in their place.
    fn take(&self, empty: Vec<u8>) -> Lines {
        std::mem::replace(&mut *self.lines.lock(), Lines { full: Vec::new(), current: empty })
    }
}

impl Lines {
    /// Begins another buffer if the bound on memory allows it.
    fn set_aside(&mut self, shared: &Shared) -> bool {
        let size = self.current.capacity();
        let has_room = shared.waiting.fetch_add(size, Ordering::Relaxed) + size <= MAX_WAITING;
        if has_room {
            self.full.push(std::mem::take(&mut self.current));
        } else {
            shared.waiting.fetch_sub(size, Ordering::Relaxed);
        }
        has_room
    }
}

impl Shared {
    /// The buffers that may have lines; forgets those without a producer.
    fn buffers(&self) -> Vec<Arc<Buffer>> {
        let mut buffers = self.buffers.lock();
        buffers.retain(|buffer| Arc::strong_count(buffer) > 1 || !buffer.is_empty());
        buffers.clone()
    }

    fn has_work(&self) -> bool {
        !self.flushes.lock().is_empty() || self.buffers.lock().iter().any(|buffer| !buffer.is_empty())
    }

    /// Lets the writing thread sleep while lines gather.
    fn gather(&self) {
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

    /// Lets the writing thread sleep until there is something to do.
    fn wait(&self) {
        self.phase.store(IDLE, Ordering::Relaxed);
        // Lines that were added before the phase was visible did not wake this thread.
        if !self.has_work() {
            while self.phase.load(Ordering::Relaxed) == IDLE {
                thread::park();
            }
        }
        self.phase.store(WRITING, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
