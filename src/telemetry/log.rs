//! The log: lines on standard error.
//!
//! Nobody waits for whoever reads it: a thread writes, and what it can't keep up with is dropped and counted.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use super::colours::has_colours;
use super::output::{LogBuffer, LogOutput};

/// What lets the level of the log be changed.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();
/// Where it is written; none if no thread could be had.
static OUTPUT: OnceLock<(LogOutput, LogBuffer)> = OnceLock::new();

/// Starts the log. Only the first call of a process has an effect.
pub fn start_log(level: Level) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(has_colours(&io::stderr()))
        .with_writer(|| Log);
    // A second start (a test that runs several servers in one process) keeps the first one's log.
    if tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().is_ok() {
        let _ = FILTER.set(handle);
        // A descriptor of its own, so that whoever writes to standard error directly does not wait either.
        let out = io::stderr().as_fd().try_clone_to_owned().map(std::fs::File::from);
        if let Ok(output) = out.and_then(|out| LogOutput::start(out, "log")) {
            let buffer = output.buffer();
            let _ = OUTPUT.set((output, buffer));
        }
    }
}

/// Changes the least important level that is logged.
pub fn set_log_level(level: Level) {
    if let Some(handle) = FILTER.get() {
        // It fails only where the log is gone.
        let _ = handle.reload(filter(level));
    }
}

/// Writes text of several lines, whatever the level.
pub fn write_log(text: &str) {
    let text = text.trim_end_matches('\n');
    match OUTPUT.get() {
        Some((_, buffer)) => buffer.append(|lines| lines.extend_from_slice(text.as_bytes())),
        // Where that is closed nobody wants to know.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Lines that were dropped since the start.
#[must_use]
pub fn dropped_log_lines() -> u64 {
    OUTPUT.get().map_or(0, |(output, _)| output.dropped())
}

/// Waits until everything that was logged is written, so long at most.
pub fn flush_log(patience: Duration) {
    // If not, there is nobody to tell.
    let _ = OUTPUT.get().is_none_or(|(output, _)| output.flush(patience));
}

/// What the Redis client says of its connections is said once, by the limiter; h2 speaks of every frame.
fn filter(level: Level) -> Targets {
    let silent = ["fred", "h2"].map(|library| (library, LevelFilter::OFF));
    Targets::new().with_default(level).with_targets(silent)
}

/// Takes an event, which comes as a whole.
struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        write_log(&String::from_utf8_lossy(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
