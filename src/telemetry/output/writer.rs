//! The thread that writes buffers, and how it recovers from failed writes.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::{Buffer, CAPACITY, PendingLines, SharedOutput};

/// State of the writer thread.
pub(super) struct Writer<W> {
    out: W,
    /// Name of the log, for messages.
    name: &'static str,
    shared: Arc<SharedOutput>,
    /// An empty buffer that replaces the next one that is taken.
    spare: Vec<u8>,
    /// Whether the last line that was written is incomplete.
    is_incomplete: bool,
    /// Whether the last write failed.
    is_failing: bool,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, name: &'static str, shared: Arc<SharedOutput>) -> Self {
        Self { out, name, shared, spare: Vec::new(), is_incomplete: false, is_failing: false }
    }

    /// Writes the lines of all producers until the process exits.
    pub fn run(mut self) -> ! {
        loop {
            // Taken before the buffers, so that these have all lines that the flushes wait for.
            let flushes = self.shared.take_flushes();
            let mut has_written = false;
            for buffer in self.shared.buffers() {
                has_written |= self.write_buffer(&buffer);
            }
            for done in flushes {
                // The waiting thread may have timed out.
                let _ = done.try_send(());
            }
            if has_written {
                self.shared.gather();
            } else {
                self.shared.wait();
            }
        }
    }

    /// Writes all lines of a buffer; returns whether there were any.
    fn write_buffer(&mut self, buffer: &Buffer) -> bool {
        if buffer.is_empty() {
            return false;
        }
        let PendingLines { full, mut current } = buffer.take(std::mem::take(&mut self.spare));
        for lines in full {
            self.write(&lines);
            self.shared.waiting.fetch_sub(lines.capacity(), Ordering::Relaxed);
        }
        self.write(&current);
        // The memory of a buffer that grew for a long line is freed.
        if current.capacity() <= CAPACITY {
            current.clear();
            self.spare = current;
        }
        true
    }

    /// Writes complete lines. Those that can't be written, as on a full disk, are dropped and counted; the next call
    /// tries again.
    fn write(&mut self, lines: &[u8]) {
        let (mut written, mut result) = (0, Ok(()));
        if self.is_incomplete {
            // Ends the incomplete line, so that the next ones are whole.
            result = self.push(b"\n").1;
        }
        if result.is_ok() {
            (written, result) = self.push(lines);
            self.is_incomplete = written > 0 && lines.get(written - 1) != Some(&b'\n');
        }
        let lost = lines.iter().skip(written).filter(|byte| **byte == b'\n').count();
        self.shared.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        let was_failing = std::mem::replace(&mut self.is_failing, result.is_err());
        let name = self.name;
        match result {
            Ok(()) if was_failing => tracing::info!("the {name} is written again"),
            Err(error) if !was_failing => {
                tracing::error!(
                    "can't write the {name}: {error}; dropping its lines until writing works again"
                );
            }
            _ => {}
        }
    }

    /// Writes bytes; returns how many were written, and the error if not all were.
    fn push(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut rest = bytes;
        let result = loop {
            if rest.is_empty() {
                break self.out.flush();
            }
            match self.out.write(rest) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        (bytes.len() - rest.len(), result)
    }
}
