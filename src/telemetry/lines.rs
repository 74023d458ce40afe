//! Lines on their way to whoever reads them, and the thread that writes them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use crate::time::monotonic;

/// Bytes of memory that lines may take while they wait to be written.
const MAX_WAITING: usize = 8 * 1024 * 1024;
/// What a waiting line takes beside its text: its place in the queue, and what the allocator adds.
const OVERHEAD: usize = size_of::<Item>() + 16;
/// Bytes that are written at once, and a line more.
const BATCH: usize = 32 * 1024;

/// Takes lines to the writing thread.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    queue: Sender<Item>,
    counts: Arc<Counts>,
}

/// What those who hand over lines share with the thread.
#[derive(Debug, Default)]
struct Counts {
    /// Bytes of memory that the queue takes.
    waiting: AtomicUsize,
    /// Lines that were dropped, or could not be written.
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// All that came before is written.
    Mark(SyncSender<()>),
}

impl Lines {
    /// Starts the thread, which ends when the last clone is gone. `what` it writes is its name, too.
    pub fn to(out: impl Write + Send + 'static, what: &'static str) -> io::Result<Self> {
        let (queue, items) = channel();
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let mut writing = Writing { out, what, counts: counted, is_broken: false, is_failing: false };
        std::thread::Builder::new().name(what.replace(' ', "-")).spawn(move || writing.write_all(&items))?;
        Ok(Self { queue, counts })
    }

    /// Hands a line over, or drops it; never waits.
    pub fn put(&self, line: Vec<u8>) {
        let size = size(&line);
        let waiting = self.counts.waiting.fetch_add(size, Ordering::Relaxed);
        // A line by itself may be larger than the bound, such as a long report on a configuration.
        let has_room = waiting == 0 || waiting + size <= MAX_WAITING;
        if !has_room || self.queue.send(Item::Line(line)).is_err() {
            self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were dropped, or could not be written.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits until those that were handed over are written, so long at most; says whether they are.
    pub fn flush(&self, patience: Duration) -> bool {
        let deadline = monotonic() + patience;
        let (mark, is_written) = sync_channel(1);
        self.queue.send(Item::Mark(mark)).is_ok()
            && is_written.recv_timeout(deadline.saturating_duration_since(monotonic())).is_ok()
    }
}

/// The memory that a waiting line takes, in bytes.
fn size(line: &Vec<u8>) -> usize {
    line.capacity() + OVERHEAD
}

/// What the thread knows.
struct Writing<W> {
    out: W,
    what: &'static str,
    counts: Arc<Counts>,
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
                        batch.extend_from_slice(&line);
                        batch.push(b'\n');
                        self.counts.waiting.fetch_sub(size(&line), Ordering::Relaxed);
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
        self.counts.dropped.fetch_add(lost as u64, Ordering::Relaxed);
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
            lines.put(line.as_bytes().to_vec());
            assert!(lines.flush(Duration::from_secs(10)));
        };
        ["one", "two", "three"].into_iter().for_each(put);
        assert_eq!(disk.0.lock().unwrap().0, b"one\ntw");
        disk.0.lock().unwrap().1 = 100;
        ["four", "five"].into_iter().for_each(put);
        // What was begun is ended, so that each other line is whole.
        assert_eq!(disk.0.lock().unwrap().0, b"one\ntw\nfour\nfive\n");
        assert_eq!(lines.dropped(), 2);
    }

    /// Takes nothing until it is let, or the test ends.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_wait_are_bounded_in_bytes() {
        for length in [100, 30_000, MAX_WAITING / 3] {
            let (release, released) = channel();
            let lines = Lines::to(Stuck(released), "stuck").unwrap();
            let fitting = MAX_WAITING / (length + OVERHEAD);
            let count = fitting * 2;
            for _ in 0..count {
                lines.put(vec![b'a'; length]);
            }
            let waiting = lines.counts.waiting.load(Ordering::Relaxed);
            assert!(waiting <= MAX_WAITING, "{waiting} of lines of {length}");
            // What is being written waits no more: a batch, and a line.
            let most = (count - fitting) as u64;
            let taken = (BATCH / length + 2) as u64;
            assert!((most - taken..=most).contains(&lines.dropped()), "{} of {length}", lines.dropped());
            drop(release);
            assert!(lines.flush(Duration::from_secs(10)));
            assert_eq!(lines.counts.waiting.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_line_beyond_the_bound_passes_an_empty_queue() {
        let disk = Disk(Arc::new(Mutex::new((Vec::new(), usize::MAX))));
        let lines = Lines::to(disk.clone(), "disk").unwrap();
        lines.put(vec![b'a'; MAX_WAITING + 1]);
        assert!(lines.flush(Duration::from_secs(10)));
        assert_eq!((disk.0.lock().unwrap().0.len(), lines.dropped()), (MAX_WAITING + 2, 0));
    }
}
