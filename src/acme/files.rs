//! Files of the storage, which may be on a slow file system: tasks read and write them on other threads.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Only the user that runs the proxy may read private keys.
pub(super) const FILE_MODE: u32 = 0o600;
/// The end of the names of files that are being written.
const UNFINISHED: &str = ".new";

/// Runs code that may block on another thread, since other tasks share this one.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads a file; none if there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file as a whole: others see the old content or the new one, also after a crash.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // At random, since processes of several containers can have the same identifier.
    let new = path.with_file_name(format!("{:016x}{UNFINISHED}", fastrand::u64(..)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Removes a file, if there is one.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes those files of a directory that were not written to the end, or all of its files.
pub(super) fn clear(directory: &Path, all: bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_unfinished = || entry.file_name().to_string_lossy().ends_with(UNFINISHED);
        if entry.file_type()?.is_file() && (all || is_unfinished()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_left_of_a_file_that_can_not_be_written() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a.test.pem");
        fs::create_dir(&directory).unwrap();
        assert!(write(&directory, b"text").is_err());
        assert!(write(&root.path().join("none/a.test.pem"), b"text").is_err());
        assert_eq!(names(root.path()), ["a.test.pem"]);
    }

    #[test]
    fn many_threads_write_the_same_file() {
        let root = tempfile::tempdir().unwrap();
        let path = &root.path().join("file");
        std::thread::scope(|scope| {
            for byte in 0..8 {
                scope.spawn(move || (0..20).for_each(|_| write(path, &[byte; 10_000]).unwrap()));
            }
        });
        let content = read(path).unwrap().unwrap();
        assert!(content.len() == 10_000 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(names(root.path()), ["file"]);
    }

    #[test]
    fn unfinished_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let fill = || {
            for name in ["a.test.pem", "00ff00ff00ff00ff.new"] {
                fs::write(root.path().join(name), "").unwrap();
            }
        };
        fill();
        clear(root.path(), false).unwrap();
        assert_eq!(names(root.path()), ["a.test.pem"]);
        fill();
        clear(root.path(), true).unwrap();
        assert!(names(root.path()).is_empty());
    }
}
