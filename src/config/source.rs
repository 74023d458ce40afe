//! The text of a configuration file.

use std::path::Path;

use super::report::Report;

/// Reads a file.
///
/// # Errors
/// That it can't be read, or is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String, Report> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Report::unreadable(&file, &error))?;
    String::from_utf8(bytes).map_err(|error| Report::not_utf8(&file, error.as_bytes(), error.utf8_error()))
}
