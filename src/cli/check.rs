//! `tidegate check`.

use super::output::{print, written};
use super::{FileArgs, Outcome, load};
use crate::config::Config;
use crate::store::StoreSpec;

/// Says whether the file is right.
pub(super) fn check(args: &FileArgs) -> Outcome {
    let loaded = load(args)?;
    if !loaded.warnings.is_empty() {
        written("standard error", loaded.warnings.print())?;
    }
    print(&format!("{} is right: {}", args.config.display(), summary(&loaded.config)))
}

/// What a configuration comes to, in a few words.
fn summary(config: &Config) -> String {
    let site = &config.site;
    let store = match &config.store {
        StoreSpec::Memory => "counts in this process".to_owned(),
        StoreSpec::Redis(redis) => format!("store {}", redis.target),
    };
    let counts = [
        counted(site.gate.routes.routes().len(), "route"),
        counted(site.gate.limit_rules.len(), "limit"),
        counted(site.upstreams.len(), "upstream"),
        store,
    ];
    counts.join(", ")
}

fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
