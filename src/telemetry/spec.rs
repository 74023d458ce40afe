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
    /// As tags, by which nobody can tell whose they are without knowing the key.
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
