//! `tidegate completions`.

use clap::{Args, Command};
use clap_complete::Shell;

use super::outcome::Outcome;
use super::output::print;

const EXAMPLES: &str = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate        (with fpath+=~/.zfunc before compinit)
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish

`make install` and the packages install those of bash, zsh and fish.

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// The arguments of `tidegate completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions of this command line for a shell.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tidegate", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
