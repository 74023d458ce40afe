//! One log: its beginning, which shows where it begins, its format and how far behind others its requests are logged; its
//! lines; and how long requests are held to put them in the order of their arrival.

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::arrivals::ReadSummary;
use super::entry::{LineError, LoggedRequest};
use super::far_dates::MOST_FAR;
use super::format::{Format, FormatError, LineReader, check_format, detect_format};
use super::input::{Bytes, Progress, open};
use super::lines::{LogLine, LogLines, trimmed};
use crate::time::{Micros, Timestamp};

/// A log that is not open, or just opened.
pub(super) struct LogSource {
    name: Arc<str>,
    bytes: Opening,
    reader: LineReader,
    /// The times of the first requests.
    pub(super) times: Times,
}

/// How the bytes of a log are obtained.
enum Opening {
    /// A file, which is opened again when its time has come, so that few files of many are open at once.
    File(PathBuf),
    /// Standard input, or a pipe.
    Stream(Bytes),
}

/// A log that is being read.
pub(super) struct OpenSource {
    name: Arc<str>,
    lines: LogLines<Bytes>,
    reader: LineReader,
    number: u64,
    latest: Latest,
}

/// Why a log can't be played.
pub(super) enum SourceError {
    /// It can't be opened.
    Open(io::Error),
    /// It can be opened, but no line of it can be read.
    Read(io::Error),
    /// Its format is unknown, or not the one that was named.
    Format(FormatError),
}

/// Fails once, as the stream has failed that was read before.
struct FailedReader(Option<io::Error>);

impl Read for FailedReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl LogSource {
    /// Looks at the beginning of a log. None if it is empty.
    pub(super) fn look(
        path: &Path,
        format: Option<&Format>,
        zone: &TimeZone,
        progress: &Arc<Progress>,
    ) -> Result<Option<Self>, SourceError> {
        let metadata = path.metadata().ok().filter(|metadata| metadata.is_file() && path != Path::new("-"));
        // A file is read twice; only the second time counts.
        let counted = if metadata.is_some() { &Arc::default() } else { progress };
        let mut bytes = open(path, counted).map_err(SourceError::Open)?;
        let (mut sample, found) = Sample::read(&mut bytes, format, zone);
        let (format, error) = match (found, sample.error.take()) {
            (Ok(Some(format)), error) => (format, error),
            (_, Some(error)) => return Err(SourceError::Read(error)),
            (Ok(None), None) => return Ok(None),
            (Err(error), None) => return Err(SourceError::Format(error)),
        };
        let reader = LineReader::new(format, zone.clone());
        let times = sample.times(reader.clone());
        let bytes = if let Some(metadata) = metadata {
            progress.add_total(metadata.len());
            Opening::File(path.to_owned())
        } else {
            let rest = error.map_or(bytes, |error| Box::new(FailedReader(Some(error))));
            Opening::Stream(Box::new(Cursor::new(sample.bytes).chain(rest)))
        };
        Ok(Some(Self { name: path.to_string_lossy().into(), bytes, reader, times }))
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn format(&self) -> &Format {
        self.reader.format()
    }

    /// Replaces the reader.
    pub(super) fn map_reader<E>(
        mut self,
        map: impl FnOnce(LineReader) -> Result<LineReader, E>,
    ) -> Result<Self, E> {
        self.reader = map(self.reader)?;
        Ok(self)
    }

    /// Opens the log.
    pub(super) fn open(self, progress: &Arc<Progress>) -> Result<OpenSource, (Arc<str>, io::Error)> {
        let bytes = match self.bytes {
            Opening::File(path) => open(&path, progress),
            Opening::Stream(bytes) => Ok(bytes),
        };
        let lines = LogLines::new(bytes.map_err(|error| (Arc::clone(&self.name), error))?);
        Ok(OpenSource {
            name: self.name,
            lines,
            reader: self.reader,
            number: 0,
            latest: Latest::new(self.times.first),
        })
    }
}

impl OpenSource {
    /// The latest arrival so far.
    pub(super) fn latest(&self) -> Timestamp {
        self.latest.time
    }

    /// The next request, and what was wrong with lines before it; none at the end.
    pub(super) fn next_entry(&mut self, summary: &mut ReadSummary) -> Option<LoggedRequest<'static>> {
        loop {
            let line = match self.lines.next_line() {
                Ok(line) => line?,
                Err(error) => {
                    summary.broken.push((Arc::clone(&self.name), error.to_string()));
                    return None;
                }
            };
            self.number += 1;
            let LogLine::Text(line) = line else {
                summary.lines += 1;
                summary.too_long += 1;
                continue;
            };
            if line.is_empty() {
                continue;
            }
            summary.lines += 1;
            match self.reader.read(line) {
                Ok(entry) => {
                    summary.entries += 1;
                    summary.whole_seconds += u64::from(entry.second.is_some());
                    self.latest.add(entry.arrival);
                    return Some(entry.into_owned());
                }
                Err(LineError::Directive | LineError::Part) => summary.lines -= 1,
                Err(LineError::TooLong) => summary.too_long += 1,
                Err(error) => summary.add_error(&self.name, self.number, line, error),
            }
        }
    }
}

/// How many bytes of a log are looked at to find its format.
const SIZE: usize = 256 * 1024;
/// How many bytes if the first ones have no line in a known format, but those of another program for example.
const LONG: usize = 4 * 1024 * 1024;

/// How compressed files begin that are not read, what has compressed them, and what decompresses them.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (b"BZh", "bzip2", "bunzip2 -k FILE"),
    (b"\xfd7zXZ\0", "xz", "unxz -k FILE"),
    (b"\x04\x22\x4d\x18", "lz4", "unlz4 FILE"),
    (b"PK\x03\x04", "zip", "unzip FILE"),
];

/// The beginning of a log.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) bytes: Vec<u8>,
    /// Whether the log has nothing else that can be read.
    is_all: bool,
    /// Why the log can't be read to its end.
    pub(super) error: Option<io::Error>,
}

/// The times of the requests in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// When the first request arrived; zero if that is unknown.
    pub(super) first: Timestamp,
    /// The longest time by which requests are behind those before them.
    pub(super) delay: Micros,
}

impl Sample {
    /// Reads the beginning of a log, and finds its format or checks that it is the one that is named. No format if the log
    /// is empty.
    pub(super) fn read(
        bytes: &mut Bytes,
        named: Option<&Format>,
        zone: &TimeZone,
    ) -> (Self, Result<Option<Format>, FormatError>) {
        let mut sample = Self::default();
        sample.extend(bytes, SIZE);
        let mut format = sample.format(named, zone);
        if !matches!(format, Ok(Some(_))) && !sample.is_all {
            sample.extend(bytes, LONG);
            format = sample.format(named, zone);
        }
        (sample, format)
    }

    fn extend(&mut self, bytes: &mut Bytes, size: usize) {
        let more = size - self.bytes.len();
        self.error = bytes.by_ref().take(more as u64).read_to_end(&mut self.bytes).err();
        self.is_all = self.bytes.len() < size;
    }

    fn format(&self, named: Option<&Format>, zone: &TimeZone) -> Result<Option<Format>, FormatError> {
        if self.bytes.starts_with(b"\xff\xfe") || self.bytes.starts_with(b"\xfe\xff") {
            return Err(FormatError::Utf16);
        }
        if let Some((_, by, command)) = COMPRESSED.iter().find(|(magic, ..)| self.bytes.starts_with(magic)) {
            return Err(FormatError::Compressed { by, command });
        }
        let lines = self.lines();
        if lines.is_empty() {
            return Ok(None);
        }
        match named {
            Some(format) => check_format(format, &lines, zone).map(|()| format.clone()),
            None => detect_format(&lines, zone),
        }
        .map(Some)
    }

    /// The times of the requests. One wrong time must not make the log begin late, so the earliest arrival counts.
    pub(super) fn times(&self, mut reader: LineReader) -> Times {
        let lines = self.lines().into_iter();
        let arrivals: Vec<Timestamp> =
            lines.filter_map(|line| reader.read(line).ok()).map(|entry| entry.arrival).collect();
        let first = arrivals.iter().copied().min().unwrap_or_default();
        let (mut latest, mut window) = (Latest::new(first), ReorderWindow::new(None, Micros::ZERO));
        for arrival in arrivals {
            latest.add(arrival);
            window.widen(latest.time.since(arrival));
        }
        Times { first, delay: window.current }
    }

    /// The lines that are not empty. The last one may be incomplete, and counts only if it is alone.
    fn lines(&self) -> Vec<&[u8]> {
        let is_whole = self.is_all && self.error.is_none();
        let end = memchr::memrchr(b'\n', &self.bytes).filter(|_| !is_whole).unwrap_or(self.bytes.len());
        self.bytes[..end].split(|byte| *byte == b'\n').map(trimmed).filter(|line| !line.is_empty()).collect()
    }
}

/// The longest window that follows from the delays in a log.
const LONGEST: Micros = Micros(300 * Micros::SECOND.0);

/// How long requests are held. It grows with the delays in a log, because servers log a request when it has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReorderWindow {
    pub(super) shortest: Micros,
    pub(super) current: Micros,
    longest: Micros,
}

impl ReorderWindow {
    /// The window that is `set`, which never changes; otherwise one that begins with `shortest`.
    pub(super) fn new(set: Option<Micros>, shortest: Micros) -> Self {
        let shortest = set.unwrap_or(shortest);
        Self { shortest, current: shortest, longest: set.unwrap_or(LONGEST) }
    }

    /// Makes it as long as the delay of a request, if it can be as long: a longer delay may be a wrong time.
    pub(super) fn widen(&mut self, delay: Micros) {
        if delay <= self.longest {
            self.current = self.current.max(delay);
        }
    }
}

/// A longer time without requests is unusual.
const JUMP: Micros = Micros(3_600 * Micros::SECOND.0);

/// The latest arrival in a log. Ends of responses would be too late in logs that are sorted by arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    pub(super) time: Timestamp,
    /// How many of the last lines were later by more than `JUMP`, without another line between them.
    jumped: usize,
    /// The earliest time of these lines.
    earliest: Timestamp,
}

impl Latest {
    pub(super) fn new(time: Timestamp) -> Self {
        Self { time, jumped: 0, earliest: time }
    }

    /// Counts a further arrival. Those that are much later count only if more follow one another than can be left out as wrong:
    /// otherwise a few wrong times would make all lines after them late.
    pub(super) fn add(&mut self, arrival: Timestamp) {
        if arrival <= self.time.after(JUMP) {
            self.time = self.time.max(arrival);
            self.jumped = 0;
            return;
        }
        self.earliest = if self.jumped == 0 { arrival } else { self.earliest.min(arrival) };
        self.jumped += 1;
        if self.jumped > MOST_FAR {
            self.time = self.earliest;
            self.jumped = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_up_to_a_bound() {
        let mut window = ReorderWindow::new(None, Micros(7));
        for (delay, current) in [(5, 7), (9, 9), (300_000_000, 300_000_000), (300_000_001, 300_000_000)] {
            window.widen(Micros(delay));
            assert_eq!((window.shortest, window.current), (Micros(7), Micros(current)));
        }
        let mut window = ReorderWindow::new(None, Micros(7));
        window.widen(Micros(300_000_001));
        assert_eq!(window.current, Micros(7));
        let mut window = ReorderWindow::new(Some(Micros(2)), Micros(7));
        window.widen(Micros(3));
        assert_eq!(window.current, Micros(2));
    }
}
