//! `tidegate version`.

use super::output::{CommandResult, print};

/// The examples of its help.
pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate version
  tidegate --version        (the version alone)

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// Prints the version, and what this binary was built from.
pub(super) fn version() -> CommandResult {
    let or = |text: &'static str, other: &'static str| if text.is_empty() { other } else { text };
    let commit = option_env!("TIDEGATE_COMMIT").unwrap_or_default();
    let facts = [
        ("commit", or(commit, "not recorded")),
        ("target", env!("TIDEGATE_TARGET")),
        ("features", or(env!("TIDEGATE_FEATURES"), "none")),
        ("profile", env!("TIDEGATE_PROFILE")),
    ];
    let mut lines = vec![format!("tidegate {}", env!("CARGO_PKG_VERSION"))];
    lines.extend(facts.iter().map(|(name, fact)| format!("{name:<9} {fact}")));
    print(&lines.join("\n"))
}
