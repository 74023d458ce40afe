//! The requests of several logs in the order of their arrival, also read ahead in a thread of their own; what was read, and
//! what could not be read.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use jiff::tz::TimeZone;
use thiserror::Error;

use super::entry::{LineError, LoggedRequest};
use super::far_dates::FarDates;
use super::fields::FieldMapError;
use super::format::{Format, FormatError};
use super::input::Progress;
use super::merge::{LogId, Merge};
use super::source::{LogSource, OpenSource, ReorderWindow, SourceError};
use crate::time::{Micros, Timestamp};

/// How logs are read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The format of all logs; without it that of each is found.
    pub format: Option<Format>,
    /// Further fields of JSON lines that are read, by their paths.
    pub fields: Vec<String>,
    /// The zone of times without an offset from UTC.
    pub zone: TimeZone,
    /// How much later than its arrival a request may be logged. None for that of the formats, which grows with the delays
    /// in the logs up to five minutes. Requests that are logged still later count as late.
    pub window: Option<Micros>,
}

/// Why logs can't be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A log can't be opened, or nothing of it can be read and there is no other one.
    #[error("can't read {log}: {error}")]
    Io {
        /// The name of the log.
        log: String,
        /// Why.
        error: io::Error,
    },
    /// The format of a log is unknown, or not the one that was named.
    #[error("{log}: {error}")]
    Format {
        /// The name of the log.
        log: String,
        /// Why.
        error: FormatError,
    },
    /// Too many fields are asked for.
    #[error(transparent)]
    Fields(#[from] FieldMapError),
}

/// The requests of several logs in the order of their arrival.
///
/// Files of a rotated log may be given in any order: each is opened when its time has come.
pub struct Arrivals {
    /// The logs that are not open yet, by the time of their first requests.
    waiting: VecDeque<(LogId, LogSource)>,
    open: Vec<(LogId, OpenSource)>,
    merge: Merge,
    far: FarDates,
    window: ReorderWindow,
    summary: ReadSummary,
    progress: Arc<Progress>,
    formats: Vec<(Arc<str>, Format)>,
}

impl Default for ReadOptions {
    /// Formats are found, and times without an offset are in the time zone of the system.
    fn default() -> Self {
        Self { format: None, fields: Vec::new(), zone: TimeZone::system(), window: None }
    }
}

impl Arrivals {
    /// Opens logs; `-` is standard input. Empty ones are skipped; those of which nothing can be read are broken. Fails if a log
    /// can't be opened, or is not in a known format or the one that `options` name, or if nothing can be read of any.
    pub fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<Self, OpenError> {
        let progress = Arc::default();
        let (mut sources, mut broken) = (Vec::new(), Vec::new());
        for (id, path) in paths.iter().enumerate() {
            match look(path, options, &progress)? {
                Looked::Empty => {}
                Looked::Broken(error) => broken.push((path.to_string_lossy(), error)),
                Looked::Log(source) => sources.push((id, source)),
            }
        }
        if let Some((log, error)) = broken.pop_if(|_| sources.is_empty()) {
            return Err(OpenError::Io { log: log.into_owned(), error });
        }
        let broken = broken.into_iter().map(|(log, error)| (log.into(), error.to_string())).collect();
        let windows = sources.iter().map(|(_, source)| source.format().window());
        let mut window = ReorderWindow::new(options.window, windows.max().unwrap_or_default());
        for (_, source) in &sources {
            window.widen(source.times.delay);
        }
        let formats = sources.iter().map(|(_, source)| (Arc::clone(source.name()), source.format().clone()));
        let formats = formats.collect();
        sources.sort_by_key(|(id, source)| (source.times.first, *id));
        Ok(Self {
            waiting: sources.into(),
            open: Vec::new(),
            merge: Merge::default(),
            far: FarDates::default(),
            window,
            summary: ReadSummary { broken, ..ReadSummary::default() },
            progress,
            formats,
        })
    }

    /// The names of the logs that are not empty, and their formats.
    #[must_use]
    pub fn formats(&self) -> &[(Arc<str>, Format)] {
        &self.formats
    }

    /// How much was read.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Counts of the lines that were read so far.
    #[must_use]
    pub fn summary(&self) -> ReadSummary {
        let far_dates = self.merge.far.iter().chain(self.far.left_out()).copied().collect();
        ReadSummary { late: self.merge.late, far_dates, ..self.summary.clone() }
    }

    /// Reads from the log that is furthest behind; returns whether there is one.
    fn read(&mut self) -> bool {
        let behind = self.open.iter().enumerate().min_by_key(|(_, (id, source))| (source.latest(), *id));
        let behind = behind.map(|(index, (_, source))| (index, source.latest()));
        // A log is opened when the one that is furthest behind has reached its first request.
        let is_due = |first: Timestamp| behind.is_none_or(|(_, latest)| first <= latest);
        if let Some((id, source)) = self.waiting.pop_front_if(|(_, source)| is_due(source.times.first)) {
            match source.open(&self.progress) {
                Ok(source) => self.open.push((id, source)),
                Err((log, error)) => self.summary.broken.push((log, error.to_string())),
            }
            return true;
        }
        let Some((index, _)) = behind else { return false };
        let (id, source) = &mut self.open[index];
        match source.next_entry(&mut self.summary) {
            Some(entry) => {
                self.window.widen(source.latest().since(entry.arrival));
                self.merge.push(*id, entry);
            }
            None => drop(self.open.swap_remove(index)),
        }
        true
    }

    /// The time up to which all logs have been read, less a window.
    fn edge(&self, window: Micros) -> Timestamp {
        let open = self.open.iter().map(|(_, source)| source.latest());
        let waiting = self.waiting.front().map(|(_, source)| source.times.first);
        let behind = open.chain(waiting).min();
        behind.map_or(Timestamp(u64::MAX), |behind| Timestamp(behind.0.saturating_sub(window.0)))
    }
}

impl Iterator for Arrivals {
    type Item = LoggedRequest<'static>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.far.pop() {
                return Some(entry);
            }
            let Some(entry) = self.next_in_order() else {
                self.far.finish();
                return self.far.pop();
            };
            self.far.push(entry);
        }
    }
}

impl Arrivals {
    /// The next request in the order of arrival, also one with a date far from all others.
    fn next_in_order(&mut self) -> Option<LoggedRequest<'static>> {
        loop {
            if let Some(entry) = self.merge.pop() {
                self.summary.is_window_cut |= self.merge.edge() > self.edge(self.window.shortest);
                return Some(entry);
            }
            if !self.read() {
                self.merge.advance(Timestamp(u64::MAX));
                return self.merge.pop();
            }
            self.merge.advance(self.edge(self.window.current));
        }
    }
}

/// What the beginning of a log has.
enum Looked {
    Empty,
    /// No line that can be read.
    Broken(io::Error),
    Log(LogSource),
}

/// Looks at the beginning of a log.
fn look(path: &Path, options: &ReadOptions, progress: &Arc<Progress>) -> Result<Looked, OpenError> {
    let log = || path.display().to_string();
    let source = match LogSource::look(path, options.format.as_ref(), &options.zone, progress) {
        Ok(None) => return Ok(Looked::Empty),
        Ok(Some(source)) => source,
        Err(SourceError::Read(error)) => return Ok(Looked::Broken(error)),
        Err(SourceError::Open(error)) => return Err(OpenError::Io { log: log(), error }),
        Err(SourceError::Format(error)) => return Err(OpenError::Format { log: log(), error }),
    };
    let with_fields = source.map_reader(|reader| {
        options.fields.iter().try_fold(reader, |reader, field| reader.with_field(field))
    })?;
    Ok(Looked::Log(with_fields))
}

/// Requests that are passed on together.
const BATCH: usize = 512;
/// Batches that wait at most.
const BATCHES: usize = 8;

/// Requests in the order of their arrival, which a thread reads ahead.
pub struct BackgroundReader {
    batches: Receiver<Vec<LoggedRequest<'static>>>,
    thread: JoinHandle<ReadSummary>,
    progress: Arc<Progress>,
}

impl BackgroundReader {
    /// Starts a thread that reads.
    pub fn start(mut arrivals: Arrivals) -> io::Result<Self> {
        let progress = Arc::clone(arrivals.progress());
        let (sender, batches) = sync_channel(BATCHES);
        let thread = Builder::new().name("log-reader".to_owned()).spawn(move || {
            loop {
                let batch: Vec<LoggedRequest<'static>> = arrivals.by_ref().take(BATCH).collect();
                if batch.is_empty() || sender.send(batch).is_err() {
                    return arrivals.summary();
                }
            }
        })?;
        Ok(Self { batches, thread, progress })
    }

    /// The next requests; none at the end.
    #[must_use]
    pub fn next_batch(&self) -> Option<Vec<LoggedRequest<'static>>> {
        self.batches.recv().ok()
    }

    /// How much was read.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Stops the thread, and returns what it has read. Fails if the thread has panicked.
    pub fn finish(self) -> io::Result<ReadSummary> {
        drop(self.batches);
        self.thread.join().map_err(|_| io::Error::other("the thread that reads logs has panicked"))
    }
}

/// How many bad lines are kept.
const EXAMPLES: usize = 5;
/// One in so many requests may be late in a log that is sorted by time.
const MAX_LATE_SHARE: u64 = 100;
/// How many characters of a bad line are kept.
const EXCERPT: usize = 200;

/// Counts of the lines that were read, and examples of those that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// Lines, without empty ones.
    pub lines: u64,
    /// Lines with a request.
    pub entries: u64,
    /// Lines about connections without a valid request.
    pub without_request: u64,
    /// Lines that are not in the format.
    pub malformed: u64,
    /// Lines of more than 1 MiB.
    pub too_long: u64,
    /// Requests that arrived earlier than others before them by more than the window; they are played at its edge, and end
    /// when they did.
    pub late: u64,
    /// Requests whose time has no fraction; they are spread evenly within their second.
    pub whole_seconds: u64,
    /// The dates of requests that are left out, since they are far from those of all others.
    pub far_dates: Vec<Timestamp>,
    /// Whether the window was shorter at times, because too many lines were in it.
    pub is_window_cut: bool,
    /// The first lines that are not in the format.
    pub examples: Vec<BadLine>,
    /// Logs that could not be read to their end, and why.
    pub broken: Vec<(Arc<str>, String)>,
}

/// A line that is not in the format of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The name of the log.
    pub log: Arc<str>,
    /// The number of the line; the first is 1.
    pub number: u64,
    /// Why it can't be read.
    pub error: LineError,
    /// The start of the line.
    pub excerpt: String,
}

impl ReadSummary {
    /// Whether the logs are not sorted by time: so many requests were late that results are wrong.
    #[must_use]
    pub fn is_unsorted(&self) -> bool {
        self.late * MAX_LATE_SHARE > self.entries
    }

    /// Counts a line that has no entry.
    pub(super) fn add_error(&mut self, log: &Arc<str>, number: u64, line: &[u8], error: LineError) {
        if error == LineError::NoRequest {
            self.without_request += 1;
            return;
        }
        self.malformed += 1;
        if self.examples.len() < EXAMPLES {
            // No character has more than four bytes.
            let start = &line[..line.len().min(EXCERPT * 4)];
            let excerpt = String::from_utf8_lossy(start).chars().take(EXCERPT).collect();
            self.examples.push(BadLine { log: Arc::clone(log), number, error, excerpt });
        }
    }
}

#[cfg(test)]
mod tests;
