//! Settings of the log and the access log: the `[log]` table of the configuration.

use tracing::Level;

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

/// Which requests the access log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOnly {
    /// All.
    All,
    /// Those that a limit denied, for any reason.
    Denied,
}
