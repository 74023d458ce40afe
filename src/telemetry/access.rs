//! The access log: a line on standard output for each request.
//!
//! The access log has a thread because a write to standard output may block, and making standard output non-blocking would
//! affect every process that shares it. A worker formats a line into its own buffer, under a lock that only the writer thread
//! contends for, so a line costs no system call. The writer takes all buffers: at once when it was idle, and under load 10 ms
//! after its last write or when a buffer is full (60 KiB). While a write blocks, workers set aside up to 8 MiB of full buffers
//! in total, then drop and count lines. The log has a second thread of the same kind.

mod line;
mod record;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::Duration;

pub use self::record::{AccessRecord, Forwarding, RequestText};
use super::log::{AccessLog, AccessOnly, LogKeys, LogSpec};
use super::output::{LogBuffer, LogOutput};

/// The output of all workers' access logs.
#[derive(Clone, Debug)]
pub struct AccessOutput(LogOutput);

/// The access log of one worker, for one configuration.
#[derive(Clone, Debug)]
pub struct AccessWriter {
    spec: LogSpec,
    buffer: LogBuffer,
}

impl AccessOutput {
    /// Starts the thread that writes to standard output; logs an error and returns none if it can't be started.
    #[must_use]
    pub fn start() -> Option<Self> {
        // A descriptor of its own: `io::stdout` would keep lines in its buffer after a failed write.
        let out = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let output = out.and_then(|out| LogOutput::start(out, "access log"));
        output.inspect_err(|error| tracing::error!("can't start the access log: {error}")).ok().map(Self)
    }

    /// The access log of one worker with these settings; none if the access log is off.
    #[must_use]
    pub fn writer(&self, spec: LogSpec) -> Option<AccessWriter> {
        (spec.access != AccessLog::Off).then(|| AccessWriter { spec, buffer: self.0.buffer() })
    }

    /// Lines of the access log that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Waits up to `timeout` until the lines of all finished requests are written; returns whether they are.
    #[must_use]
    pub fn flush(&self, timeout: Duration) -> bool {
        self.0.flush(timeout)
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
