//! Commands that print what is generated from the keys of the configuration file: `config` and `schema`.

use clap::Args;

use super::output::{CommandResult, Failure, print, print_json};
use crate::config;

const CONFIG_EXAMPLES: &str = "\
Examples:
  tidegate config trusted_proxies
  tidegate config limits.burst
  tidegate config store                    (a table, with its keys)
  tidegate config --reference | less

Exit status: 0 on success, 1 if the output fails, 2 for an unknown key or wrong usage.";

/// Exactly one of them.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
#[group(required = true, multiple = false)]
pub(super) struct ConfigArgs {
    /// Describe the keys of this name: values, default, meaning, and the table in which each may be. A table may come before it,
    /// as in `limits.burst`
    key: Option<String>,
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
    if let Some(key) = &args.key {
        return describe(key);
    }
    let blocks = config::reference();
    let tables: Vec<String> =
        blocks.iter().map(|block| format!("## {}\n\n{}", block.name, block.table)).collect();
    print(tables.join("\n").trim_end())
}

/// Prints the documentation of the keys of a name.
fn describe(name: &str) -> CommandResult {
    let near = match config::describe(name) {
        Ok(found) => return print(&found.join("\n\n")),
        Err(near) => near,
    };
    let help = near.map_or_else(
        || "`tidegate config --reference` prints all keys".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    Err(Failure::Usage.error(format!("no key has the name `{name}`")).help([help]))
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
