//! What the proxy says about itself: its log, to standard error, its access log, to standard output, and its
//! metrics.

mod access;
mod charge_back;
mod colours;
mod counts;
mod escape;
mod log;
mod metrics;
mod output;
mod throttle;
mod upstreams;

use tracing::Level;

pub use access::{AccessOutput, AccessWriter, Forwarding, Record, RequestText};
pub use charge_back::ChargeBack;
pub use colours::has_colours;
pub use counts::{Counts, Outcome, StoreCall};
pub use log::{dropped_log_lines, flush_log, set_log_level, start_log, write_log};
pub use metrics::{CONTENT_TYPE, GaugeValues, ListenerValues, Metrics};
pub use throttle::{DroppedLines, LogThrottle};
pub use upstreams::{Attempt, Event, ServerValues, UpstreamCounts, UpstreamValues};

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
