//! `tidegate run`.

use std::time::Duration;

use super::file::{self, FileArgs};
use super::outcome::{Failure, Outcome};
use super::output::complain;
use crate::{app, telemetry};

/// How long the exit waits until the last lines of the log are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the proxy until a signal stops it.
pub(super) fn run(args: &FileArgs) -> Outcome {
    let file = args.path()?;
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
