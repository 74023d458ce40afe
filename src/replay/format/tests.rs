//! Every format against lines of the real servers, or of their documentation where they can't be run in a test.

/// A log in `tests/logs`.
macro_rules! log {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/logs/", $name, ".log"))
    };
}

mod documented;
mod servers;

use jiff::tz::TimeZone;

use super::*;
use crate::replay::entry::{LineError, LoggedRequest};

/// A reader whose zone is UTC.
fn reader(format: Format) -> LineReader {
    LineReader::new(format, TimeZone::UTC)
}

fn lines(log: &[u8]) -> Vec<&[u8]> {
    log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect()
}

/// A line of a log; the first is 0.
fn line(log: &'static [u8], index: usize) -> &'static str {
    str::from_utf8(lines(log)[index]).unwrap()
}

fn text(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn optional(value: Option<&[u8]>) -> Option<String> {
    value.map(text)
}

/// The entry of a line.
fn entry(format: Format, line: &str) -> LoggedRequest<'static> {
    let read = reader(format).read(line.as_bytes()).map(LoggedRequest::into_owned);
    read.unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The error of a line.
fn error(format: Format, line: &str) -> LineError {
    reader(format).read(line.as_bytes()).unwrap_err()
}
