//! Tests of the log output.

use std::io::BufRead as _;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;

use super::shared::{CAPACITY, FULL, GATHER, MAX_WAITING};
use super::*;
use crate::time::monotonic;

const TIMEOUT: Duration = Duration::from_secs(10);

fn append(buffer: &LogBuffer, line: &str) {
    buffer.append(|lines| lines.extend_from_slice(line.as_bytes()));
}

/// A disk: the bytes that were written, and its capacity.
#[derive(Clone, Debug)]
struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

impl Disk {
    fn with_room(room: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), room))))
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (written, room) = &mut *self.0.lock();
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

/// Reports each write, and blocks until it is permitted or the sender of permits is dropped.
struct Stepped {
    writes: Sender<Vec<u8>>,
    permits: Receiver<()>,
}

impl Stepped {
    fn new() -> (Self, Receiver<Vec<u8>>, Sender<()>) {
        let ((writes, written), (permit, permits)) = (channel(), channel());
        (Self { writes, permits }, written, permit)
    }
}

impl Write for Stepped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.writes.send(bytes.to_vec());
        let _ = self.permits.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_drops_lines_until_it_has_room() {
    let disk = Disk::with_room(6);
    let output = LogOutput::start(disk.clone(), "disk").unwrap();
    let buffer = output.buffer();
    let put = |line: &str| {
        append(&buffer, line);
        assert!(output.flush(TIMEOUT));
    };
    ["one", "two", "three"].into_iter().for_each(put);
    assert_eq!(disk.0.lock().0, b"one\ntw");
    disk.0.lock().1 = 100;
    ["four", "five"].into_iter().for_each(put);
    // The incomplete line is ended, so that each other line is whole.
    assert_eq!(disk.0.lock().0, b"one\ntw\nfour\nfive\n");
    assert_eq!(output.dropped(), 2);
}

#[test]
fn gathered_lines_are_written_once_per_buffer() {
    let (out, written, permit) = Stepped::new();
    let output = LogOutput::start(out, "stepped").unwrap();
    let (one, two) = (output.buffer(), output.buffer());
    // An idle output writes the first line without a flush.
    append(&one, "first");
    assert_eq!(written.recv_timeout(TIMEOUT).unwrap(), b"first\n");
    for number in 0..100 {
        append(&one, &format!("one {number}"));
        append(&two, &format!("two {number}"));
    }
    drop(permit);
    for name in ["two", "one"] {
        let lines: Vec<String> = (0..100).map(|number| format!("{name} {number}")).collect();
        let write = String::from_utf8(written.recv_timeout(TIMEOUT).unwrap()).unwrap();
        assert_eq!(write.lines().collect::<Vec<_>>(), lines);
    }
    assert!(output.flush(TIMEOUT));
    assert_eq!((written.try_iter().count(), output.dropped()), (0, 0));
}

#[test]
fn a_full_buffer_is_written_at_once() {
    let (out, written, permit) = Stepped::new();
    drop(permit);
    let output = LogOutput::start(out, "stepped").unwrap();
    let buffer = output.buffer();
    let line = "a".repeat(999);
    for _ in 0..1_000 {
        append(&buffer, &line);
    }
    assert!(output.flush(TIMEOUT));
    let writes: Vec<Vec<u8>> = written.try_iter().collect();
    assert_eq!(writes.iter().map(Vec::len).sum::<usize>(), 1_000_000);
    assert!(writes.iter().all(|write| write.len() <= FULL + 1_000 && write.ends_with(b"a\n")));
    assert_eq!(output.shared.waiting.load(Ordering::Relaxed), 0);
}

#[test]
fn waiting_lines_are_bounded_in_bytes() {
    for length in [99, 3_999, 29_999, MAX_WAITING / 3] {
        let (out, written, permit) = Stepped::new();
        let output = LogOutput::start(out, "stepped").unwrap();
        let buffers = [output.buffer(), output.buffer()];
        append(&buffers[0], "first");
        written.recv_timeout(TIMEOUT).unwrap();
        let line = "a".repeat(length);
        let mut accepted = 0;
        while output.dropped() < 100 {
            for buffer in &buffers {
                append(buffer, &line);
            }
            accepted += buffers.len();
        }
        let waiting = output.shared.waiting.load(Ordering::Relaxed);
        assert!(waiting <= MAX_WAITING, "{waiting} of lines of {length}");
        // In addition to full buffers, each producer has the one that it fills.
        let accepted = accepted - usize::try_from(output.dropped()).unwrap();
        let bytes = accepted * (length + 1);
        assert!(bytes <= MAX_WAITING + 2 * (FULL + length + 1), "{bytes} of lines of {length}");
        // Nine tenths of the memory hold lines, unless these are long.
        assert!(length > CAPACITY / 4 || bytes > MAX_WAITING / 10 * 9, "{bytes} of lines of {length}");
        drop(permit);
        assert!(output.flush(TIMEOUT));
        assert_eq!(output.shared.waiting.load(Ordering::Relaxed), 0);
        let lines = written.try_iter().map(|write| write.lines().count());
        assert_eq!(lines.sum::<usize>(), accepted);
    }
}

#[test]
fn a_line_larger_than_the_bound_is_accepted_by_an_empty_buffer() {
    let disk = Disk::with_room(usize::MAX);
    let output = LogOutput::start(disk.clone(), "disk").unwrap();
    append(&output.buffer(), &"a".repeat(MAX_WAITING + 1));
    assert!(output.flush(TIMEOUT));
    assert_eq!((disk.0.lock().0.len(), output.dropped()), (MAX_WAITING + 2, 0));
}

#[test]
fn a_dropped_buffer_is_written_and_forgotten() {
    let disk = Disk::with_room(100);
    let output = LogOutput::start(disk.clone(), "disk").unwrap();
    let kept = output.buffer();
    append(&kept, "kept");
    append(&output.buffer(), "gone");
    assert!(output.flush(TIMEOUT));
    // The order of buffers is not that of their lines.
    assert_eq!(disk.0.lock().0.len(), 10);
    assert_eq!(output.shared.buffers().len(), 1);
}

#[test]
fn every_line_of_many_producers_is_written() {
    let disk = Disk::with_room(usize::MAX);
    let output = LogOutput::start(disk.clone(), "disk").unwrap();
    let append_all = |count: usize| {
        let buffer = output.buffer();
        for number in 0..count {
            append(&buffer, "line");
            // Long enough for the thread to sleep sometimes, in either phase.
            if number % 10 == 0 {
                thread::sleep(GATHER / 3 * u32::try_from(number / 10 % 5).unwrap_or_default());
            }
        }
    };
    thread::scope(|scope| {
        for producer in 0..4 {
            scope.spawn(move || append_all(100 + producer));
        }
    });
    let deadline = monotonic() + TIMEOUT;
    // Without a flush, which would wake the thread.
    while disk.0.lock().0.len() < 406 * 5 {
        assert!(monotonic() < deadline, "{} bytes", disk.0.lock().0.len());
        thread::sleep(GATHER / 10);
    }
}
