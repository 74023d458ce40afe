//! `tidegate schema`.

use super::outcome::Outcome;
use super::output::print_json;
use crate::config;

/// The examples of its help.
pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate schema > tidegate.schema.json

Editors with Taplo, such as VS Code with Even Better TOML, complete and check a configuration whose first line is \
`#:schema ./tidegate.schema.json`.

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// Prints the JSON schema of the configuration file.
pub(super) fn schema() -> Outcome {
    print_json(&config::schema())
}
