//! What was read, and what could not be read.

use std::sync::Arc;

use super::line_error::LineError;

/// How many bad lines are kept.
const EXAMPLES: usize = 5;
/// One in so many requests may be late in a log that is sorted by time.
const MAX_LATE_SHARE: u64 = 100;
/// How many characters of a bad line are kept.
const EXCERPT: usize = 200;

/// What was read.
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
