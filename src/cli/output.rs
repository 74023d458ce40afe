//! Output of commands, and errors when writing it.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

use super::outcome::{Failure, Outcome};

/// Prints lines to standard output.
pub(super) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    report_write("standard output", writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints a value as JSON to standard output. Its serialization must not fail: it has text as keys, and finite numbers.
pub(super) fn print_json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        complain(format!("error: the result can't be written as JSON: {error}"));
        Failure::Running
    })?;
    print(&text)
}

/// The outcome of a command that has written to `stream`. Prints an error unless the reader has closed the stream.
pub(super) fn report_write(stream: &str, result: io::Result<()>) -> Outcome {
    match result {
        // A reader such as `head` closes the pipe when it has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format!("error: can't write to {stream}: {error}"));
            Err(Failure::Running)
        }
        _ => Ok(()),
    }
}

/// Prints lines to standard error. Write errors are ignored: the exit status reports the failure, too.
pub(super) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
