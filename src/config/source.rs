//! The text of a configuration file, and where it comes from.

use std::io::Read;
use std::path::Path;

use super::report::Report;

/// Reads the text of a file.
///
/// # Errors
/// That it can't be read, or is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String, Report> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Report::unreadable(&file, &error))?;
    text(bytes, &file)
}

/// Reads the text of a stream.
///
/// # Errors
/// That it can't be read, or is not UTF-8.
pub(super) fn read_from(mut stream: impl Read, name: &str) -> Result<String, Report> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|error| Report::unreadable(name, &error))?;
    text(bytes, name)
}

fn text(bytes: Vec<u8>, file: &str) -> Result<String, Report> {
    String::from_utf8(bytes).map_err(|error| Report::not_utf8(file, error.as_bytes(), error.utf8_error()))
}

/// A variable of the environment.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
