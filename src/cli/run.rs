//! `tidegate run`.

use std::time::Duration;

use super::output::complain;
use super::{Failure, FileArgs, Outcome, load};
use crate::{app, telemetry};

/// How long the end waits for whoever reads the log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Serves until told to stop.
pub(super) fn run(args: &FileArgs) -> Outcome {
    let loaded = load(args)?;
    telemetry::start_log(loaded.config.log.level);
    for warning in loaded.warnings.lines() {
        tracing::warn!("{warning}");
    }
    let ended = app::run(args.config.clone(), loaded);
    telemetry::flush_log(LAST_LINES);
    ended.map_err(|error| {
        complain(format!("error: {error:#}"));
        Failure::Running
    })
}
