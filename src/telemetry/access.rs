//! The access log: a line on standard output for each request.
//!
//! A worker formats the line of a request into a buffer of its own, and one thread writes the buffers. Nothing waits for
//! that thread: while it can't keep up, lines are dropped and counted.

mod forwarding;
mod line;
mod record;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::Duration;

pub use self::forwarding::Forwarding;
pub use self::record::{Record, RequestText};
use super::output::{LogBuffer, LogOutput};
use super::{AccessLog, AccessOnly, LogSpec};

/// Where all access logs of the process go.
#[derive(Clone, Debug)]
pub struct AccessOutput(LogOutput);

/// The access log of one worker, for one configuration.
#[derive(Clone, Debug)]
pub struct AccessWriter {
    spec: LogSpec,
    buffer: LogBuffer,
}

impl AccessOutput {
    /// Starts the thread that writes to standard output; none if it can't be started.
    #[must_use]
    pub fn start() -> Option<Self> {
        // A descriptor of its own: what fails must not stay in a buffer, as it would in that of the process.
        let out = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let output = out.and_then(|out| LogOutput::start(out, "access log"));
        output.inspect_err(|error| tracing::error!("no access log: {error}")).ok().map(Self)
    }

    /// A new access log of what and how `spec` says, for one worker; none if that wants none.
    #[must_use]
    pub fn writer(&self, spec: LogSpec) -> Option<AccessWriter> {
        (spec.access != AccessLog::Off).then(|| AccessWriter { spec, buffer: self.0.buffer() })
    }

    /// Lines that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Waits up to `timeout` until the lines of all requests that have ended are written; returns whether they are.
    #[must_use]
    pub fn flush(&self, timeout: Duration) -> bool {
        self.0.flush(timeout)
    }
}

impl AccessWriter {
    /// Whether a request that begins now is to be logged.
    #[must_use]
    pub fn draws(&self) -> bool {
        self.spec.access_sample >= 1.0 || fastrand::f64() < self.spec.access_sample
    }

    /// Writes a record, soon, if it is one to be written; never waits.
    pub fn write(&self, record: &Record) {
        if self.spec.access_only == AccessOnly::Denied && !record.is_denied {
            return;
        }
        self.buffer.append(|line| match self.spec.access {
            AccessLog::Text => record.push_text(line),
            _ => record.push_json(line),
        });
    }
}

#[cfg(test)]
mod tests;
