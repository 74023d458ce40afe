//! The log: lines on standard error; and whether output has colours, for commands and for the log.
//!
//! Logging never blocks: a thread writes the lines, and drops and counts them if the reader is too slow.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::time::Duration;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use super::output::{LogBuffer, LogOutput};

/// The filter of the log, whose level can be changed.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();
/// The output of the log; none if its thread could not be started.
static OUTPUT: OnceLock<(LogOutput, LogBuffer)> = OnceLock::new();

/// Starts the log. Only the first call of a process has an effect.
pub fn start_log(level: Level) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(has_colours(&io::stderr()))
        .with_writer(|| LogWriter);
    // Fails if the log was started before, as in tests that run several servers in one process.
    if tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().is_ok() {
        let _ = FILTER.set(handle);
        // A descriptor of its own: writes do not hold the lock of `io::stderr`, which others may need.
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
        // Fails only if the subscriber has been dropped.
        let _ = handle.reload(filter(level));
    }
}

/// Writes lines to the log, regardless of the level.
pub fn write_log(text: &str) {
    let text = text.trim_end_matches('\n');
    match OUTPUT.get() {
        Some((_, buffer)) => buffer.append(|lines| lines.extend_from_slice(text.as_bytes())),
        // Write errors are ignored: standard error may be closed.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Lines of the log that were dropped since the start.
#[must_use]
pub fn dropped_log_lines() -> u64 {
    OUTPUT.get().map_or(0, |(output, _)| output.dropped())
}

/// Waits up to `timeout` until all logged lines are written.
pub fn flush_log(timeout: Duration) {
    // A timeout can't be reported: the log is what does not accept lines.
    let _ = OUTPUT.get().is_none_or(|(output, _)| output.flush(timeout));
}

/// The messages of fred are suppressed, since the limiter logs the state of the store once; h2 would log every frame.
fn filter(level: Level) -> Targets {
    let silent = ["fred", "h2"].map(|library| (library, LevelFilter::OFF));
    Targets::new().with_default(level).with_targets(silent)
}

/// Writes events to the log. `tracing_subscriber` writes each event with one call.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        write_log(&String::from_utf8_lossy(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether output to `stream` has colours. `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` decide, in this order; otherwise a
/// terminal has colours unless `TERM` is `dumb` or not set. clap decides in the same way.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}
