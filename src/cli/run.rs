//! `tidegate run`.

use super::{Failure, FileArgs, Outcome, complain, load};
use crate::{app, telemetry};

/// Serves until told to stop.
pub(super) fn run(args: &FileArgs) -> Outcome {
    let loaded = load(args)?;
    telemetry::start_log(loaded.config.log.level);
    for warning in loaded.warnings.lines() {
        tracing::warn!("{warning}");
    }
    app::run(args.config.clone(), loaded).map_err(|error| {
        complain(&format!("error: {error:#}"));
        Failure::Running
    })
}
