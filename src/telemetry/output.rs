//! Log output: threads append lines to buffers, and one writer thread writes the buffers to a file descriptor.
//!
//! A buffer belongs to one producer, such as a worker, so appending to it takes an uncontended lock and no system call.
//! The writer thread takes all buffers at once: immediately when it was idle, otherwise 10 ms (`GATHER`) after its last
//! write or as soon as a buffer is full. No producer waits for a write: while the file descriptor accepts no more, lines
//! are dropped and counted.

mod shared;
mod writer;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::{self, Thread};
use std::time::Duration;

use self::shared::{Appended, Buffer, SharedOutput};
use self::writer::Writer;

/// The writer thread of one file descriptor. It runs until the process exits.
#[derive(Clone, Debug)]
pub(super) struct LogOutput {
    shared: Arc<SharedOutput>,
    thread: Thread,
}

/// The buffer of one producer; clones share it. Once the last clone is dropped, it is written and forgotten.
#[derive(Clone, Debug)]
pub(super) struct LogBuffer {
    buffer: Arc<Buffer>,
    output: LogOutput,
}

impl LogOutput {
    /// Starts the thread that writes to `out`. `name` is that of the log in messages, and of the thread.
    pub fn start(out: impl Write + Send + 'static, name: &'static str) -> io::Result<Self> {
        let shared = Arc::new(SharedOutput::default());
        let writer = Writer::new(out, name, Arc::clone(&shared));
        let thread = thread::Builder::new().name(name.replace(' ', "-")).spawn(move || writer.run())?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// A new buffer whose lines are written here.
    pub fn buffer(&self) -> LogBuffer {
        LogBuffer { buffer: self.shared.add_buffer(), output: self.clone() }
    }

    /// Lines that were dropped, or could not be written, since the start.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits up to `timeout` until all lines that were appended to any buffer are written; returns whether they are.
    pub fn flush(&self, timeout: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        self.shared.request_flush(done);
        self.shared.wake(&self.thread, true);
        is_done.recv_timeout(timeout).is_ok()
    }
}

impl LogBuffer {
    /// Appends the line that `write` appends to its argument, without a line feed. Drops and counts the line if the
    /// bound on memory is reached. Does not block.
    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let LogOutput { shared, thread } = &self.output;
        match self.buffer.append(&shared.waiting, write) {
            Appended::HasRoom => shared.wake(thread, false),
            Appended::IsFull => shared.wake(thread, true),
            Appended::Dropped => {
                shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
