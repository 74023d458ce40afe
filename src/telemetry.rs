//! What the proxy says about itself: its log, to standard error, and its access log, to standard output.

mod access;

use tracing::Level;
use tracing_subscriber::fmt::time::SystemTime;

pub use access::{AccessWriter, Record};

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpec {
    /// The least important level that is logged.
    pub level: Level,
    /// A line on standard output for each request.
    pub access: AccessLog,
}

/// The form of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// One JSON object a line.
    #[default]
    Json,
    /// One line of text.
    Text,
    /// None.
    Off,
}

impl Default for LogSpec {
    fn default() -> Self {
        Self { level: Level::INFO, access: AccessLog::default() }
    }
}

/// Starts the log. Only the first call of a process has an effect.
pub fn start_log(level: Level) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_timer(SystemTime)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    // A second start (a test that runs several servers in one process) keeps the first one's log.
    let _ = log.try_init();
}
