//! `tidegate run`.

use std::time::Duration;

use super::file::{self, FileArgs};
use super::output::{CommandResult, Failure};
use crate::{app, telemetry};

/// How long the exit waits until the last lines of the log are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The examples of its help.
pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate run
  tidegate run -c /etc/tidegate/tidegate.toml
  tidegate check && tidegate reload        (applies an edited configuration to the running proxy)

Exit status: 0 after a shutdown by a signal, 1 if the proxy can't start (as when a port is in use) or fails, 2 if the \
configuration is invalid or for wrong usage.";

/// Runs the proxy until a signal stops it.
pub(super) fn run(args: &FileArgs) -> CommandResult {
    let file = args.path()?;
    if file::is_stdin(&file) {
        let error = "the configuration of a running proxy can't be standard input: a reload reads it again";
        return Err(Failure::Usage.error(error).help(["write it to a file, and name that with -c FILE"]));
    }
    let loaded = file::load(&file)?;
    telemetry::start_log(loaded.config.log.level);
    for warning in loaded.warnings.lines() {
        tracing::warn!("{warning}");
    }
    let result = app::run(file, loaded);
    telemetry::flush_log(FLUSH_TIMEOUT);
    result.map_err(|error| Failure::Running.error(format!("{error:#}")).help(app::help(&error)))
}
