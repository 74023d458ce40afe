//! Runs a configuration.

use crate::config::Config;

/// Serves until told to stop.
///
/// # Errors
/// What stops it from serving.
pub fn run(_config: Config) -> anyhow::Result<()> {
    anyhow::bail!("this build can't serve")
}
