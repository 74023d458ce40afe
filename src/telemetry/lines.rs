//! Lines on their way to whoever reads them, and the thread that writes them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::time::monotonic;

/// Lines that may wait to be written.
const QUEUE: usize = 8192;
/// Bytes that are written at once, and a line more.
const BATCH: usize = 32 * 1024;
/// How often a full queue is tried by who waits for it.
const PAUSE: Duration = Duration::from_millis(5);

/// Takes lines to the writing thread.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    queue: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Item {
    Line(String),
    /// All that came before is written.
    Mark(SyncSender<()>),
}

impl Lines {
    /// Starts the thread, which ends when the last clone is gone. `what` it writes is its name, too.
    pub fn to(out: impl Write + Send + 'static, what: &'static str) -> io::Result<Self> {
        let (queue, items) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let mut writing = Writing { out, what, dropped: counted, is_broken: false, is_failing: false };
        std::thread::Builder::new().name(what.replace(' ', "-")).spawn(move || writing.write_all(&items))?;
        Ok(Self { queue, dropped })
    }

    /// Hands a line over, or drops it; never waits.
    pub fn put(&self, line: String) {
        if self.queue.try_send(Item::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were dropped, or could not be written.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Waits until those that were handed over are written, so long at most; says whether they are.
    pub fn flush(&self, patience: Duration) -> bool {
        let deadline = monotonic() + patience;
        let (mark, is_written) = sync_channel(1);
        while self.queue.try_send(Item::Mark(mark.clone())).is_err() {
            if monotonic() > deadline {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        is_written.recv_timeout(deadline.saturating_duration_since(monotonic())).is_ok()
    }
}

/// What the thread knows.
struct Writing<W> {
    out: W,
    what: &'static str,
    dropped: Arc<AtomicU64>,
    /// Whether the last line that was written is not whole.
    is_broken: bool,
    /// Whether the last attempt has failed.
    is_failing: bool,
}

impl<W: Write> Writing<W> {
    /// Writes what comes until the last sender is gone, all that waits in few calls.
    fn write_all(&mut self, items: &Receiver<Item>) {
        let mut batch = Vec::new();
        // It ends with the process at the latest, also in the middle of a line that nobody takes.
        while let Ok(first) = items.recv() {
            for item in std::iter::once(first).chain(items.try_iter()) {
                match item {
                    Item::Line(line) => {
                        batch.extend_from_slice(line.as_bytes());
                        batch.push(b'\n');
                        if batch.len() >= BATCH {
                            self.write(&mut batch);
                        }
                    }
                    Item::Mark(mark) => {
                        self.write(&mut batch);
                        // Whoever waited may have gone.
                        let _ = mark.try_send(());
                    }
                }
            }
            self.write(&mut batch);
        }
    }

    /// Writes whole lines, and empties the batch. What can't be written, as on a full disk, is dropped: the next
    /// attempt may succeed.
    fn write(&mut self, batch: &mut Vec<u8>) {
        let (mut written, mut ended) = (0, Ok(()));
        if self.is_broken {
            ended = self.push(b"\n").1;
        }
        if ended.is_ok() {
            (written, ended) = self.push(batch);
            self.is_broken = written > 0 && batch.get(written - 1) != Some(&b'\n');
        }
        let lost = batch.iter().skip(written).filter(|byte| **byte == b'\n').count();
        batch.clear();
        self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
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

    /// Writes bytes; says how many, and why not all.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What is written, as far as there is room.
    #[derive(Clone, Debug)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock().unwrap();
            let length = bytes.len().min(room.saturating_sub(written.len()));
            if length == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_and_not_the_log() {
        let disk = Disk(Arc::new(Mutex::new((Vec::new(), 6))));
        let lines = Lines::to(disk.clone(), "disk").unwrap();
        let put = |line: &str| {
            lines.put(line.to_owned());
            assert!(lines.flush(Duration::from_secs(10)));
        };
        ["one", "two", "three"].into_iter().for_each(put);
        assert_eq!(disk.0.lock().unwrap().0, b"one\ntw");
        disk.0.lock().unwrap().1 = 100;
        ["four", "five"].into_iter().for_each(put);
        // What was begun is ended, so that each other line is whole.
        assert_eq!(disk.0.lock().unwrap().0, b"one\ntw\nfour\nfive\n");
        assert_eq!(lines.dropped().load(Ordering::Relaxed), 2);
    }
}
