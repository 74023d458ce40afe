//! The requests of several logs in the order of their arrival.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use thiserror::Error;

use super::entry::Entry;
use super::fields::FieldMapError;
use super::format::{Format, FormatError};
use super::input::Progress;
use super::merge::{LogId, Merge};
use super::source::{LogSource, OpenSource, SourceError};
use super::summary::ReadSummary;
use super::window::ReorderWindow;
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

    /// What was read so far.
    #[must_use]
    pub fn summary(&self) -> ReadSummary {
        ReadSummary { late: self.merge.late, ..self.summary.clone() }
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
    type Item = Entry<'static>;

    fn next(&mut self) -> Option<Self::Item> {
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

#[cfg(test)]
mod tests;
