//! The command line. The only module that uses clap.

mod admin_args;
mod admin_client;
mod admin_tls;
mod ahead;
mod check;
mod config;
mod decimal;
mod explain;
mod file;
mod keys;
mod outcome;
mod output;
mod replay;
mod run;
mod simulate;
mod table;
mod top;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::file::FileArgs;
use self::outcome::{Failure, Outcome};

/// A reverse proxy with exact, distributed rate limiting built in.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the proxy.
    ///
    /// Checks the configuration first: if it is invalid, prints all problems and does not start. SIGHUP reloads the
    /// configuration; an invalid one changes nothing. SIGTERM and SIGINT shut down after draining: requests in progress
    /// are completed.
    Run(FileArgs),
    /// Check the configuration.
    ///
    /// Prints every problem with its line, its position and how to correct it, and warns of suspicious settings. Makes
    /// no network connections.
    Check(FileArgs),
    /// Explain which route, limits and keys apply to a request, and why.
    ///
    /// Charges nothing, and makes no network connections: neither to Redis nor to an upstream.
    Explain(explain::ExplainArgs),
    /// Play arrivals against limits on a virtual clock.
    ///
    /// Shows which requests would be admitted, delayed or denied, and how many units remain, with the code of the server.
    Simulate(simulate::SimulateArgs),
    /// Play access logs through the routes and limits, on the clock of the log.
    ///
    /// Shows which limits would have denied how many requests, of how many keys. Makes no network connections.
    Replay(replay::ReplayArgs),
    /// Describe the configuration file: all keys, or a JSON schema for editors.
    Config(config::ConfigArgs),
    /// Inspect and change the keys of limits, in a running proxy.
    ///
    /// Uses its admin interface: that of the `[admin]` table of the configuration, or that of --admin.
    Keys(keys::KeysArgs),
    /// Show the keys with the most denials or the most requests of each limit, in a running proxy.
    ///
    /// Uses its admin interface, as `tidegate keys` does. The table is shown again every two seconds. A key is shown by the name
    /// of its consumer, if it has one, and by its tag, or with `keys = "plain"` in `[log]` by its values.
    Top(top::TopArgs),
}

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(&cli.command),
        Err(message) => print_message(&message),
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
        Command::Replay(args) => replay::replay(args),
        Command::Config(args) => config::config(args),
        Command::Keys(args) => keys::keys(args),
        Command::Top(args) => top::top(args),
    }
}

/// Prints what clap returns in place of arguments: help, the version, or an error.
fn print_message(message: &clap::Error) -> Outcome {
    let written = message.print();
    if message.use_stderr() {
        return Err(Failure::Usage);
    }
    output::report_write("standard output", written.and_then(|()| io::stdout().flush()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
