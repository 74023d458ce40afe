//! Completions of the command line: of commands and options, and of the names of limits and consumers.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::file;
use super::output::{CommandResult, Failure, print};
use crate::config;

const EXAMPLES: &str = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate        (with fpath+=~/.zfunc before compinit)
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish

`make install` and the packages install those of bash, zsh and fish. The names of limits and consumers are those of the \
configuration that the command would use.

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// The variable with which a script asks this program for completions; its value is the shell.
const VARIABLE: &str = "TIDEGATE_COMPLETE";

/// The end of the script for zsh, which runs it as a function when it first completes the command.
const ZSH_FIRST_CALL: &[u8] =
    b"if [[ $funcstack[1] = _tidegate ]]; then _clap_dynamic_completer_tidegate \"$@\"; fi\n";

/// The arguments of `tidegate completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script that completes this command line in a shell.
pub(super) fn completions(args: &CompletionsArgs) -> CommandResult {
    let name = args.shell.to_string();
    let mut script = Vec::new();
    let shell = Shells::builtins();
    let written = shell
        .completer(&name)
        .map(|shell| shell.write_registration(VARIABLE, "tidegate", "tidegate", "tidegate", &mut script));
    if args.shell == Shell::Zsh {
        script.extend_from_slice(ZSH_FIRST_CALL);
    }
    match written {
        Some(Ok(())) => print(String::from_utf8_lossy(&script).trim_end()),
        _ => Err(Failure::Running.error(format!("there are no completions for {name}"))),
    }
}

/// Prints the completions and ends the process, if a script asks for them.
pub(super) fn complete(command: impl Fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Completes the name of a limit.
pub(super) fn limits() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(config::limit_names))
}

/// Completes the name of a consumer.
pub(super) fn consumers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(config::consumer_names))
}

/// The names in the configuration that the command line names, or that it uses by default.
fn candidates(read: fn(&Path) -> Vec<String>) -> Vec<CompletionCandidate> {
    let arguments: Vec<OsString> = env::args_os().collect();
    let after =
        |pair: &[OsString]| (pair[0] == "-c" || pair[0] == "--config").then(|| PathBuf::from(&pair[1]));
    let joined = |argument: &OsString| argument.to_str()?.strip_prefix("--config=").map(PathBuf::from);
    let named = arguments.windows(2).find_map(after).or_else(|| arguments.iter().find_map(joined));
    let file = file::found(named.as_deref()).filter(|file| !file::is_stdin(file));
    file.map(|file| read(&file)).unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}
