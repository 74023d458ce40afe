//! `tidegate config` and `tidegate schema`: what the configuration file may contain.

use clap::Args;

use super::output::{CommandResult, print, print_json};
use crate::config;

const EXAMPLES: &str = "\
Examples:
  tidegate config --reference | less

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// Exactly one of them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[group(required = true, multiple = false)]
pub(super) struct ConfigArgs {
    /// Print every key with its default, range and meaning, as tables in Markdown.
    #[arg(long)]
    reference: bool,
    /// The earlier spelling of `tidegate schema`.
    #[arg(long, hide = true)]
    schema: bool,
}

/// Prints what the configuration file may contain.
pub(super) fn config(args: &ConfigArgs) -> CommandResult {
    if args.schema {
        return schema();
    }
    let blocks = config::reference();
    let tables: Vec<String> =
        blocks.iter().map(|block| format!("## {}\n\n{}", block.name, block.table)).collect();
    print(tables.join("\n").trim_end())
}

/// The end of the help of `tidegate schema`.
pub(super) const SCHEMA_EXAMPLES: &str = "\
Examples:
  tidegate schema > tidegate.schema.json

Editors with Taplo, such as VS Code with Even Better TOML, complete and check a configuration whose first line is \
`#:schema ./tidegate.schema.json`.

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// Prints the JSON schema of the configuration file.
pub(super) fn schema() -> CommandResult {
    print_json(&config::schema())
}
