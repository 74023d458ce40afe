//! The beginning of a log, which shows its format and how far behind others its requests are logged.

use std::io::{self, Read};

use jiff::tz::TimeZone;

use super::format::{Format, FormatError, LineReader, check_format, detect_format};
use super::input::Bytes;
use super::latest::Latest;
use super::lines::trimmed;
use super::window::ReorderWindow;
use crate::time::{Micros, Timestamp};

/// How many bytes of a log are looked at to find its format.
const SIZE: usize = 256 * 1024;
/// How many bytes if the first ones have no line in a known format, but those of another program for example.
const LONG: usize = 4 * 1024 * 1024;

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
