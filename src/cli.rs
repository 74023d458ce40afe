//! The command line, with the commands `run` and `version`. The only module that uses clap.

mod admin_args;
mod admin_client;
mod check;
mod completions;
mod convert;
mod decimal;
mod describe;
mod explain;
mod file;
mod generated;
mod init;
mod keys;
mod man;
mod output;
mod reload;
mod replay;
mod simulate;
mod status;
mod test;
mod top;
mod unix_permission;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand};

use self::file::PathArgs;
use self::output::{CommandResult, Failure, print};
use crate::{app, telemetry};

const ENVIRONMENT: &str = "\
Files:
  tidegate.toml, /etc/tidegate/tidegate.toml
    The configuration: the first one that exists is used, unless -c or TIDEGATE_CONFIG names another.

Environment:
  TIDEGATE_CONFIG
    The configuration of all commands without -c.
  TIDEGATE_ADMIN_TOKEN
    The token for the admin interface, in place of that of the configuration.

Exit status: 0 on success, 1 if a command fails while it runs, 2 if arguments or the configuration are invalid. Nothing has \
been started or changed if it is 2.";

/// A reverse proxy with exact, distributed rate limiting built in.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true, after_long_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the proxy.
    ///
    /// Checks the configuration first: if it is invalid, prints all problems and does not start. SIGHUP reloads the
    /// configuration; an invalid one changes nothing. SIGTERM and SIGINT shut down after draining: requests in progress
    /// are completed.
    #[command(after_help = RUN_EXAMPLES)]
    Run(PathArgs),
    /// Check the configuration.
    ///
    /// Prints every problem with its line, its position and how to correct it, and warns of suspicious settings. Makes
    /// no network connections, except with --connect.
    Check(check::CheckArgs),
    /// Explain which route, limits and keys apply to a request, and why.
    ///
    /// Charges nothing, and makes no network connections: neither to Redis nor to an upstream.
    Explain(explain::ExplainArgs),
    /// Run the policy tests of a configuration.
    ///
    /// Each test says what the routes and limits must do with its requests. Counts begin empty and are in this process, on a
    /// virtual clock. Makes no network connections: neither to Redis nor to an upstream.
    Test(test::TestArgs),
    /// Play arrivals against limits on a virtual clock.
    ///
    /// Shows which requests would be admitted, delayed or denied, and how many units remain, with the code of the server.
    Simulate(simulate::SimulateArgs),
    /// Play access logs through the routes and limits, on the clock of the log.
    ///
    /// Shows which limits would have denied how many requests, of how many keys. Makes no network connections.
    Replay(replay::ReplayArgs),
    /// Print a commented configuration to begin with, or write it into a file.
    Init(init::InitArgs),
    /// Convert the configuration of another proxy: its limits, routes and upstreams.
    ///
    /// Prints a configuration for tidegate, and names each line that can't be converted. Makes no network connections.
    Convert(convert::ConvertArgs),
    /// Describe all keys of the configuration file.
    Config(generated::ConfigArgs),
    /// Print the JSON schema of the configuration file (draft 2020-12), with which editors complete and check it.
    #[command(after_help = generated::SCHEMA_EXAMPLES)]
    Schema,
    /// Inspect and change the keys of limits, in a running proxy.
    ///
    /// Uses its admin interface: that of the `[admin]` table of the configuration, or that of --admin.
    Keys(keys::KeysArgs),
    /// Show the keys with the most denials or requests of each limit, or what upstreams refuse, in a running proxy.
    ///
    /// Uses its admin interface, as `tidegate keys` does. The table is shown again every two seconds. A key is shown by the name
    /// of its consumer, if it has one, and by its tag, or with `keys = "plain"` in `[log]` by its values. With `--by refusals` the
    /// table has the requests that upstreams with `overload` refused, by class.
    Top(top::TopArgs),
    /// Check whether a running proxy is ready for requests, for example as a health check of a container.
    ///
    /// Asks `/ready` of the admin interface. If the configuration has none, connects to each listener. Of the configuration only
    /// these sections are read: an invalid edit, which a running proxy does not use, is no failure.
    Health(status::HealthArgs),
    /// Have a running proxy reload its configuration, and wait for the outcome.
    ///
    /// Does the same as SIGHUP, through the admin interface: an invalid configuration changes nothing, and its errors are
    /// printed. The proxy reads its own configuration file, not one that -c names here.
    Reload(reload::ReloadArgs),
    /// Show the state of a running proxy: its configuration, limits, store and upstreams.
    ///
    /// Uses its admin interface, as `tidegate keys` does.
    Status(status::StatusArgs),
    /// Print the completions of the command line for a shell.
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write those of all commands and of the configuration file into a directory.
    Man(man::ManArgs),
    /// Show the version, and from which commit, for which target and with which features it was built.
    #[command(after_help = VERSION_EXAMPLES)]
    Version,
}

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    completions::complete(Cli::command);
    let outcome = match Cli::try_parse_from(command_first(env::args_os().collect())) {
        Ok(cli) => run(&cli.command),
        Err(message) => print_message(&message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure as u8),
    }
}

/// The arguments with the command before `-c FILE`, which may come before it.
fn command_first(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let option = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let command = match option {
        "-c" | "--config" => 3,
        _ if option.starts_with("-c") || option.starts_with("--config=") => 2,
        _ => return arguments,
    };
    if command < arguments.len() {
        arguments[1..=command].rotate_right(1);
    }
    arguments
}

fn run(command: &CliCommand) -> CommandResult {
    match command {
        CliCommand::Run(args) => run_proxy(args),
        CliCommand::Check(args) => check::check(args),
        CliCommand::Explain(args) => explain::explain(args),
        CliCommand::Test(args) => test::test(args),
        CliCommand::Simulate(args) => simulate::simulate(args),
        CliCommand::Replay(args) => replay::replay(args),
        CliCommand::Init(args) => init::init(args),
        CliCommand::Convert(args) => convert::convert(args),
        CliCommand::Config(args) => generated::config(args),
        CliCommand::Schema => generated::schema(),
        CliCommand::Keys(args) => keys::keys(args),
        CliCommand::Top(args) => top::top(args),
        CliCommand::Health(args) => status::health(args),
        CliCommand::Reload(args) => reload::reload(args),
        CliCommand::Status(args) => status::status(args),
        CliCommand::Completions(args) => completions::completions(args),
        CliCommand::Man(args) => man::man(args, Cli::command()),
        CliCommand::Version => version(),
    }
}

/// Prints what clap returns in place of arguments: help, the version, or an error.
fn print_message(message: &clap::Error) -> CommandResult {
    let written = message.print();
    if message.use_stderr() {
        return Err(Failure::Usage);
    }
    output::report_write("standard output", written.and_then(|()| io::stdout().flush()))
}

/// How long the exit waits until the last lines of the log are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of the help of `tidegate run`.
const RUN_EXAMPLES: &str = "\
Examples:
  tidegate run
  tidegate run /etc/tidegate/tidegate.toml
  tidegate check && tidegate reload        (applies an edited configuration to the running proxy)

Exit status: 0 after a shutdown by a signal, 1 if the proxy can't start (as when a port is in use) or fails, 2 if the \
configuration is invalid or for wrong usage.";

/// Runs the proxy until a signal stops it.
fn run_proxy(args: &PathArgs) -> CommandResult {
    let file = args.path()?;
    if file::is_stdin(&file) {
        let error = "the configuration of a running proxy can't be standard input: a reload reads it again";
        return Err(Failure::Usage.error(error).help(["write it to a file, and name that with -c FILE"]));
    }
    let loaded = file::load(&file)?;
    telemetry::start_log(loaded.config.log.level);
    for warning in loaded.warnings.lines() {
        tracing::warn!("{warning}");
    }
    let result = app::run(file, loaded);
    telemetry::flush_log(FLUSH_TIMEOUT);
    result.map_err(|error| Failure::Running.error(format!("{error:#}")).help(app::help(&error)))
}

/// The end of the help of `tidegate version`.
const VERSION_EXAMPLES: &str = "\
Examples:
  tidegate version
  tidegate --version        (the version alone)

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// Prints the version, and what this binary was built from.
fn version() -> CommandResult {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
