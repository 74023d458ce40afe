//! The thread that writes buffers, and what it does when a write fails.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Buffer, CAPACITY, Lines, Shared};

/// State of the writing thread.
pub(super) struct Writing<W> {
    out: W,
    what: &'static str,
    shared: Arc<Shared>,
    /// An empty buffer to leave in the place of the next one that is taken.
    spare: Vec<u8>,
    /// Whether the last line that was written is incomplete.
    is_broken: bool,
    /// Whether the last attempt has failed.
    is_failing: bool,
}

impl<W: Write> Writing<W> {
    pub fn new(out: W, what: &'static str, shared: Arc<Shared>) -> Self {
        Self { out, what, shared, spare: Vec::new(), is_broken: false, is_failing: false }
    }

    /// Writes whatever producers append until the process exits, also in the middle of a line that is not read.
    pub fn run(mut self) -> ! {
        loop {
            // Before the buffers, which then have all lines that a flush has to wait for.
            let flushes = std::mem::take(&mut *self.shared.flushes.lock());
            let mut has_written = false;
            for buffer in self.shared.buffers() {
                has_written |= self.write_buffer(&buffer);
            }
            for done in flushes {
                // The waiting thread may have given up.
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
        let Lines { full, mut current } = buffer.take(std::mem::take(&mut self.spare));
        for lines in full {
            self.write(&lines);
            self.shared.waiting.fetch_sub(lines.capacity(), Ordering::Relaxed);
        }
        self.write(&current);
        // A long line must not pin the memory that it took.
        if current.capacity() <= CAPACITY {
            current.clear();
            self.spare = current;
        }
        true
    }

    /// Writes complete lines. Those that can't be written, as on a full disk, are dropped: the next attempt may succeed.
    fn write(&mut self, lines: &[u8]) {
        let (mut written, mut ended) = (0, Ok(()));
        if self.is_broken {
            ended = self.push(b"\n").1;
        }
        if ended.is_ok() {
            (written, ended) = self.push(lines);
            self.is_broken = written > 0 && lines.get(written - 1) != Some(&b'\n');
        }
        let lost = lines.iter().skip(written).filter(|byte| **byte == b'\n').count();
        self.shared.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        let was_failing = std::mem::replace(&mut self.is_failing, ended.is_err());
        let what = self.what;
        match ended {
            Ok(()) if was_failing => tracing::info!("the {what} is written again"),
            Err(error) if !was_failing => {
                tracing::error!(
                    "can't write the {what}: {error}; its lines are dropped until that works again"
                );
            }
            _ => {}
        }
    }

    /// Writes bytes; returns how many, and why not all.
    fn push(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut rest = bytes;
        let ended = loop {
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
        (bytes.len() - rest.len(), ended)
    }
}
