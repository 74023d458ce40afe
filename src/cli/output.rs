//! What commands print, and what happens where it can't be written.

use std::fmt::Display;
use std::io::{self, Write as _};

use super::{Failure, Outcome};

/// Prints a line or several to standard output.
pub(super) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    written("standard output", writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// What a command comes to that has written to a stream.
pub(super) fn written(stream: &str, result: io::Result<()>) -> Outcome {
    match result {
        // A reader such as `head` has what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format!("error: can't write to {stream}: {error}"));
            Err(Failure::Running)
        }
        _ => Ok(()),
    }
}

/// Prints a line or several to standard error. If that can't be written either, the exit status still tells.
pub(super) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
