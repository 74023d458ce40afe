//! The command line. The only place that knows clap.

mod check;
mod explain;
mod keys;
mod output;
mod run;
mod simulate;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::output::complain;
use crate::config::{self, Loaded};

/// A reverse proxy with exact, distributed rate limiting built in.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve.
    ///
    /// Checks the file first: if anything is wrong with it, says what, and starts nothing. SIGHUP has the file read
    /// again; a wrong one changes nothing. SIGTERM and SIGINT end it once the requests that it has begun are answered.
    Run(FileArgs),
    /// Say whether the file is right, and what in it is odd.
    ///
    /// Shows every mistake with its line, the place in it, and the cure. Contacts nobody.
    Check(FileArgs),
    /// Tell which route, limits and keys a request would meet, and why.
    ///
    /// Spends nothing and contacts nobody: no count changes, and neither Redis nor an upstream is asked.
    Explain(explain::ExplainArgs),
    /// Play arrivals against limits on a virtual clock.
    ///
    /// Shows who would be admitted, refused or held back, and how much is left, with the very code that serves.
    Simulate(simulate::SimulateArgs),
    /// Look at and change what limits remember of their keys, in a running proxy.
    ///
    /// Asks its admin interface: the file needs an `[admin]` table, or the interface is named with --admin.
    Keys(keys::KeysArgs),
}

#[derive(Debug, Args)]
struct FileArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml")]
    config: PathBuf,
}

/// Why a command ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Something failed while it ran.
    Running = 1,
    /// The file is wrong, or the arguments are.
    Usage = 2,
}

/// What a command comes to; the message has been printed.
type Outcome = Result<(), Failure>;

/// Does what the arguments of this process say.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(&cli.command),
        Err(instead) => show(&instead),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure as u8),
    }
}

fn run(command: &Command) -> Outcome {
    match command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::check(args),
        Command::Explain(args) => explain::explain(args),
        Command::Simulate(args) => simulate::simulate(args),
        Command::Keys(args) => keys::keys(args),
    }
}

/// Prints what clap has in place of arguments: help, the version, or what is wrong with them.
fn show(instead: &clap::Error) -> Outcome {
    let written = instead.print();
    if instead.use_stderr() {
        return Err(Failure::Usage);
    }
    output::written("standard output", written.and_then(|()| io::stdout().flush()))
}

/// Reads the file, and says what is wrong with it if anything is.
fn load(args: &FileArgs) -> Result<Loaded, Failure> {
    config::load(&args.config).map_err(|report| {
        // If it can't be written, the exit status still tells.
        let _ = report.print();
        if let Some(summary) = report.summary() {
            complain(format!("\n{summary}"));
        }
        Failure::Usage
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
