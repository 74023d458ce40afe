//! `tidegate check`.

use super::ahead;
use super::file::{self, FileArgs};
use super::outcome::Outcome;
use super::output::{print, report_write};
use crate::config::Config;
use crate::store::StoreSpec;
use crate::text::counted;

/// Checks the configuration; prints its problems and warnings, and a summary if it is valid.
pub(super) fn check(args: &FileArgs) -> Outcome {
    let file = args.path()?;
    let loaded = file::load(&file)?;
    if !loaded.warnings.is_empty() {
        report_write("standard error", loaded.warnings.print())?;
    }
    let mut lines = vec![format!("{} is valid: {}", file.display(), summary(&loaded.config))];
    lines.extend(granting_limits(&loaded.config));
    print(&lines.join("\n"))
}

/// A line for each limit that grants units ahead of requests, or keeps freed slots.
fn granting_limits(config: &Config) -> impl Iterator<Item = String> {
    let limits = config.snapshot.gate.limits();
    limits.filter_map(|(_, policy)| Some(format!("limit {}: {}", policy.name, ahead::describe(policy)?)))
}

/// Summarizes a configuration, such as `1 route, 2 limits, 1 upstream, counts in this process`.
fn summary(config: &Config) -> String {
    let snapshot = &config.snapshot;
    let store = match &config.store {
        StoreSpec::Memory => "counts in this process".to_owned(),
        StoreSpec::Redis(redis) => format!("store {}", redis.target),
    };
    let counts = [
        counted(snapshot.gate.routes.routes().len(), "route"),
        counted(snapshot.gate.limit_rules.len(), "limit"),
        counted(snapshot.upstreams.len(), "upstream"),
        store,
    ];
    counts.join(", ")
}
