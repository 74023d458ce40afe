//! The log: its settings and those of the access log; lines on standard error, with a minimum interval between messages of
//! one kind; and whether output has colours, for commands and for the log.
//!
//! Logging never blocks: a thread writes the lines, and drops and counts them if the reader is too slow.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::time::Duration;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use tokio::time::Instant;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use super::journal;
use super::output::{LogBuffer, LogOutput};
use crate::time::monotonic;

/// The filter of the log, whose level can be changed.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();
/// The output of the log; none if its thread could not be started.
static OUTPUT: OnceLock<(LogOutput, LogBuffer)> = OnceLock::new();

/// Starts the log. Only the first call of a process has an effect.
pub fn start_log(level: Level) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(has_colours(&io::stderr()));
    let lines = lines.with_writer(LogLines);
    // The journal records the time itself.
    let lines = if journal::is_connected() { lines.without_time().boxed() } else { lines.boxed() };
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

/// Writes messages to the log, regardless of the level.
pub fn write_log(text: &str) {
    write_line("", &journal::for_stderr(text));
}

fn write_line(priority: &str, text: &str) {
    let text = text.trim_end_matches('\n');
    match OUTPUT.get() {
        Some((_, buffer)) => buffer.append(|lines| {
            lines.extend_from_slice(priority.as_bytes());
            lines.extend_from_slice(text.as_bytes());
        }),
        // Write errors are ignored: standard error may be closed.
        None => drop(writeln!(io::stderr(), "{priority}{text}")),
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

/// Makes the writers of events.
struct LogLines;

impl MakeWriter<'_> for LogLines {
    type Writer = LogWriter;

    fn make_writer(&self) -> LogWriter {
        LogWriter { priority: "" }
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> LogWriter {
        LogWriter { priority: if journal::is_connected() { journal::priority(*event.level()) } else { "" } }
    }
}

/// Writes an event to the log. `tracing_subscriber` writes each event with one call.
struct LogWriter {
    priority: &'static str,
}

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        write_line(self.priority, &String::from_utf8_lossy(event));
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

/// The minimum interval between messages.
const INTERVAL: Duration = Duration::from_secs(10);

/// Limits the rate of one log message.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Whether the message may be logged now: once in ten seconds.
    pub fn is_due(&mut self) -> bool {
        let now = monotonic();
        let is_due = self.0.is_none_or(|last| now - last >= INTERVAL);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Reports dropped lines of a log.
#[derive(Debug)]
pub struct DroppedLines {
    log: &'static str,
    reader: &'static str,
    /// The dropped lines that were reported.
    reported: u64,
    throttle: LogThrottle,
}

impl DroppedLines {
    /// Those of the access log and of the log, as they are written by default.
    #[must_use]
    pub fn of_logs() -> [Self; 2] {
        [Self::new("access log", "its output"), Self::new("log", "standard error")]
    }

    /// Reports lines of `log`, which is written to `reader`.
    #[must_use]
    pub fn new(log: &'static str, reader: &'static str) -> Self {
        Self { log, reader, reported: 0, throttle: LogThrottle::default() }
    }

    /// Logs how many lines were dropped since the last report, if the throttle allows it. `dropped` is their number since
    /// the start.
    pub fn report(&mut self, dropped: u64) {
        let Self { log, reader, .. } = *self;
        if dropped > self.reported && self.throttle.is_due() {
            let more = dropped - self.reported;
            let (plural, were) = if more == 1 { ("", "was") } else { ("s", "were") };
            tracing::warn!(
                "{more} line{plural} of the {log} {were} dropped: {reader} is blocked or too slow"
            );
            self.reported = dropped;
        }
    }
}

/// Settings of the log and the access log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSpec {
    /// The least important level that is logged.
    pub level: Level,
    /// The format of the access log.
    pub access: AccessLog,
    /// Which requests are logged.
    pub access_only: AccessOnly,
    /// The fraction of these requests that is logged, sampled at random: from 0 to 1.
    pub access_sample: f64,
    /// How the keys of limits are shown.
    pub keys: LogKeys,
}

/// The format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// One JSON object per line.
    Json,
    /// Text.
    Text,
    /// No access log.
    Off,
}

/// How keys of limits are shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKeys {
    /// As tags: hashes, which do not show the values of the parts.
    Hash,
    /// As the values of their parts.
    Plain,
    /// Not at all.
    Off,
}

/// Which requests the access log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOnly {
    /// All.
    All,
    /// Those that a limit denied, for any reason.
    Denied,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_is_due_every_ten_seconds() {
        let mut throttle = LogThrottle::default();
        for _ in 0..3 {
            assert_eq!([(); 2].map(|()| throttle.is_due()), [true, false]);
            tokio::time::advance(INTERVAL / 2).await;
            assert!(!throttle.is_due());
            tokio::time::advance(INTERVAL / 2).await;
        }
    }
}
