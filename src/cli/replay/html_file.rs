//! Writes a file at once or not at all.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes a file so that its readers find the old content or all of the new. Fails if the file, or one beside it, can't be
/// written.
pub(super) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // A device or a pipe must not be replaced.
        return fs::write(path, text);
    }
    // A link stays, and the file behind it is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        for text in ["one", "two"] {
            write_file(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_file(&folder.path().join("missing/report.html"), "x").is_err());
        assert!(write_file(folder.path(), "x").is_err());
    }
}
