//! `tidegate init`.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output::{CommandResult, Failure, complain, print};
use crate::config;

/// The upstream of the templates.
const UPSTREAM: &str = "http://127.0.0.1:9000";

const EXAMPLES: &str = "\
Examples:
  tidegate init
  tidegate init -o tidegate.toml
  tidegate init --for login --upstream http://10.0.1.5:3000 -o tidegate.toml

Exit status: 0 on success, 1 if the file exists or can't be written, 2 for wrong usage.";

/// The arguments of `tidegate init`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct InitArgs {
    /// What the proxy is for.
    #[arg(long = "for", value_enum, value_name = "PURPOSE", default_value_t = Purpose::Api)]
    purpose: Purpose,
    /// Where requests are forwarded.
    #[arg(long, value_name = "URL", default_value = UPSTREAM)]
    upstream: String,
    /// The file to write, which must not exist; without it the configuration is printed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The purpose of a proxy, which the printed configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// An API whose clients have keys.
    Api,
    /// A website with a login.
    Login,
    /// A website or files.
    Static,
    /// The API of a language model.
    Llm,
}

impl Purpose {
    fn template(self) -> &'static str {
        match self {
            Self::Api => include_str!("init/api.toml"),
            Self::Login => include_str!("init/login.toml"),
            Self::Static => include_str!("init/static.toml"),
            Self::Llm => include_str!("init/llm.toml"),
        }
    }
}

/// Prints a configuration, or writes it into a file.
pub(super) fn init(args: &InitArgs) -> CommandResult {
    let text = args.purpose.template().replace(UPSTREAM, &args.upstream);
    check(&text, &args.upstream)?;
    match &args.output {
        None => print(text.trim_end()),
        Some(path) => {
            write(path, &text)?;
            let shown = path.display();
            complain(format!("{shown} is written: edit it, then start with tidegate run -c {shown}"));
            Ok(())
        }
    }
}

/// Rejects a URL that the configuration can't have, or that would be a mistake there.
fn check(text: &str, upstream: &str) -> CommandResult {
    let checked = config::parse(text, "tidegate.toml", &|name| std::env::var(name).ok());
    let report = checked.map_or_else(|errors| errors, |loaded| loaded.warnings);
    let Some(problem) = report.problems().into_iter().next() else { return Ok(()) };
    Err(Failure::Usage.error(format!("--upstream {upstream}: {}", problem.message)).help(problem.help))
}

/// Writes a file that does not exist yet.
fn write(path: &Path, text: &str) -> CommandResult {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Failure::Running.error(format!("can't write {}: {error}", path.display()));
        }
        let help = "name another file with -o FILE, or remove this one first";
        Failure::Running.error(format!("{} exists already", path.display())).help([help])
    })
}
