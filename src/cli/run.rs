//! `tidegate run`.

use std::time::Duration;

use super::file::{self, FileArgs};
use super::output::{CommandResult, Failure, complain};
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
        complain(
            "error: the configuration of a running proxy can't be standard input: a reload reads it again",
        );
        complain("help: write it to a file, and name that with -c FILE");
        return Err(Failure::Usage);
    }
    let loaded = file::load(&file)?;
    telemetry::start_log(loaded.config.log.level);
    for warning in loaded.warnings.lines() {
        tracing::warn!("{warning}");
    }
    let result = app::run(file, loaded);
    telemetry::flush_log(FLUSH_TIMEOUT);
    result.map_err(|error| {
        complain(format!("error: {error:#}"));
        if let Some(help) = app::help(&error) {
            complain(format!("help: {help}"));
        }
        Failure::Running
    })
}
