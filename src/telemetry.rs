//! What the proxy says about itself: its log, to standard error, its access log, to standard output, and its
//! metrics.

mod access;
mod charge_back;
mod counts;
mod metrics;
mod seldom;
mod upstreams;

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

pub use access::{AccessWriter, Forwarding, Record};
pub use charge_back::ChargeBack;
pub use counts::{Counts, Outcome, StoreCall};
pub use metrics::{CONTENT_TYPE, Levels, ListenerLevels, Metrics};
pub use seldom::Seldom;
pub use upstreams::{Attempt, Event, ServerLevels, UpstreamCounts, UpstreamLevels};

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSpec {
    /// The least important level that is logged.
    pub level: Level,
    /// A line on standard output for each request.
    pub access: AccessLog,
    /// The requests that have one.
    pub access_only: AccessOnly,
    /// The share of those that have one, drawn at random: from 0 to 1.
    pub access_sample: f64,
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

/// Which requests the access log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessOnly {
    /// All.
    #[default]
    All,
    /// Those that a limit has refused, whatever the reason.
    Denied,
}

impl Default for LogSpec {
    fn default() -> Self {
        let (access, access_only) = (AccessLog::default(), AccessOnly::default());
        Self { level: Level::INFO, access, access_only, access_sample: 1.0 }
    }
}

/// What lets the level of the log be changed.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts the log. Only the first call of a process has an effect.
pub fn start_log(level: Level) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A second start (a test that runs several servers in one process) keeps the first one's log.
    if tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Changes the least important level that is logged.
pub fn set_log_level(level: Level) {
    if let Some(handle) = FILTER.get() {
        // It fails only where the log is gone.
        let _ = handle.reload(filter(level));
    }
}

/// What the Redis client says of its connections is said once, by the limiter; h2 speaks of every frame.
fn filter(level: Level) -> Targets {
    let silent = ["fred", "h2"].map(|library| (library, LevelFilter::OFF));
    Targets::new().with_default(level).with_targets(silent)
}
