//! `tidegate config`.

use clap::Args;

use super::outcome::Outcome;
use super::output::print;
use crate::config;

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ConfigArgs {
    /// Print every key with its default, range and meaning, as tables in Markdown.
    #[arg(long)]
    reference: bool,
    /// Print the JSON schema of the file (draft 2020-12), which editors check and complete with.
    #[arg(long)]
    schema: bool,
}

/// Prints what the configuration file may contain.
pub(super) fn config(args: &ConfigArgs) -> Outcome {
    if args.schema {
        return print(&format!("{:#}", config::schema()));
    }
    let blocks = config::reference();
    let tables: Vec<String> =
        blocks.iter().map(|block| format!("## {}\n\n{}", block.name, block.table)).collect();
    print(tables.join("\n").trim_end())
}
