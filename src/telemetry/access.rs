//! The access log: a line for each request, on standard output or in a file.
//!
//! The access log has a thread because a write to standard output may block, and making standard output non-blocking would
//! affect every process that shares it. A worker formats a line into its own buffer, under a lock that only the writer thread
//! contends for, so a line costs no system call. The writer takes all buffers: at once when it was idle, and under load 10 ms
//! after its last write or when a buffer is full (60 KiB). While a write blocks, workers set aside up to 8 MiB of full buffers
//! in total, then drop and count lines. The log has a second thread of the same kind.

mod line;
mod record;

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub use self::record::{AccessRecord, Forwarding, LimitNote, RequestText};
use super::log::{AccessLog, AccessOnly, LogKeys, LogSpec};
use super::output::{LogBuffer, LogOutput};

/// The output of all workers' access logs.
#[derive(Clone, Debug)]
pub struct AccessOutput {
    output: LogOutput,
    file: CurrentFile,
}

/// The file that an access log is appended to: a file with a name, or standard output.
#[derive(Debug)]
pub struct AccessFile {
    path: Option<PathBuf>,
    file: File,
}

/// A file of an access log that can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("can't open the access log {path}: {error}")]
pub struct AccessFileError {
    path: String,
    error: io::Error,
}

impl AccessFile {
    /// Opens a file, or creates it with mode 0640; without a path, standard output. Fails if it can't be opened.
    pub fn open(path: Option<&Path>) -> Result<Self, AccessFileError> {
        let opened = match path {
            Some(path) => append_to(path),
            // A descriptor of its own: `io::stdout` would keep lines in its buffer after a failed write.
            None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        let name = || path.map_or_else(|| "on standard output".to_owned(), |path| path.display().to_string());
        let file = opened.map_err(|error| AccessFileError { path: name(), error })?;
        Ok(Self { path: path.map(Path::to_owned), file })
    }
}

/// Opens a file to append to it; a new one has this mode in spite of the umask, so that a group can read it.
fn append_to(path: &Path) -> io::Result<File> {
    let created = OpenOptions::new().append(true).create_new(true).open(path);
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path)
        }
        created => {
            let file = created?;
            file.set_permissions(Permissions::from_mode(0o640))?;
            Ok(file)
        }
    }
}

/// The present file; the thread of the access log writes to it.
#[derive(Clone, Debug)]
struct CurrentFile(Arc<ArcSwap<AccessFile>>);

impl Write for CurrentFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        (&self.0.load().file).write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The access log of one worker, for one configuration.
#[derive(Clone, Debug)]
pub struct AccessWriter {
    spec: LogSpec,
    buffer: LogBuffer,
}

impl AccessOutput {
    /// The output for the next settings, which writes to `file`: the present one, or a new one unless the access log is off.
    #[must_use]
    pub fn next(current: Option<Self>, spec: &LogSpec, file: AccessFile) -> Option<Self> {
        let Some(current) = current else {
            return if spec.access == AccessLog::Off { None } else { Self::start(file) };
        };
        current.file.0.store(Arc::new(file));
        Some(current)
    }

    /// Starts the thread that writes to a file; logs an error and returns none if it can't be started.
    fn start(file: AccessFile) -> Option<Self> {
        let file = CurrentFile(Arc::new(ArcSwap::from_pointee(file)));
        let output = LogOutput::start(file.clone(), "access log");
        let output = output.inspect_err(|error| tracing::error!("can't start the access log: {error}"));
        Some(Self { output: output.ok()?, file })
    }

    /// Opens the file again, as after a rotation; returns its path, or none for standard output. If it fails, the open file is
    /// kept.
    pub fn reopen(&self) -> Result<Option<PathBuf>, AccessFileError> {
        let current = self.file.0.load();
        let Some(path) = &current.path else { return Ok(None) };
        self.file.0.store(Arc::new(AccessFile::open(Some(path))?));
        Ok(Some(path.clone()))
    }

    /// The access log of one worker with these settings; none if the access log is off.
    #[must_use]
    pub fn writer(&self, spec: LogSpec) -> Option<AccessWriter> {
        (spec.access != AccessLog::Off).then(|| AccessWriter { spec, buffer: self.output.buffer() })
    }

    /// Lines of the access log that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.output.dropped()
    }

    /// Waits up to `timeout` until the lines of all finished requests are written; returns whether they are.
    #[must_use]
    pub fn flush(&self, timeout: Duration) -> bool {
        self.output.flush(timeout)
    }
}

impl AccessWriter {
    /// Whether a new request is sampled, that is, to be logged.
    #[must_use]
    pub fn should_sample(&self) -> bool {
        self.spec.access_sample >= 1.0 || fastrand::f64() < self.spec.access_sample
    }

    /// How the keys of limits are shown.
    #[must_use]
    pub fn keys(&self) -> LogKeys {
        self.spec.keys
    }

    /// Writes a record unless `access_only` excludes it. Never blocks.
    pub fn write(&self, record: &AccessRecord) {
        if self.spec.access_only == AccessOnly::Denied && !record.is_denied {
            return;
        }
        self.buffer.append(|buffer| match self.spec.access {
            AccessLog::Text => line::push_text(buffer, record),
            _ => line::push_json(buffer, record),
        });
    }
}

#[cfg(test)]
mod tests;
