//! Commands that print what is generated: `completions` and `man` from the definition of the command line, `config` and `schema` from
//! the keys of the configuration file.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::output::{CommandResult, Failure, print, print_json, report_write};
use crate::config;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate        (with fpath+=~/.zfunc before compinit)
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish

`make install` and the packages install those of bash, zsh and fish.

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// The arguments of `tidegate completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions of this command line for a shell.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tidegate", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

const MAN_EXAMPLES: &str = "\
Examples:
  tidegate man | man -l -
  tidegate man ~/.local/share/man/man1

Exit status: 0 on success, 1 if a page can't be written, 2 for wrong usage.";

/// The arguments of `tidegate man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(super) struct ManArgs {
    /// The directory for the pages of all commands; it is created if it does not exist. Without it the page of tidegate is
    /// printed.
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Prints the manual page, or writes those of all commands.
pub(super) fn man(args: &ManArgs, command: Command) -> CommandResult {
    // `help` is not a page of its own.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(directory) = &args.directory else {
        let mut text = Vec::new();
        let written = write_page(&command, &mut text).and_then(|()| io::stdout().lock().write_all(&text));
        return report_write("standard output", written);
    };
    fs::create_dir_all(directory)
        .and_then(|()| write_pages(&command, directory))
        .map_err(|error| Failure::Running.error(format!("can't write to {}: {error}", directory.display())))
}

/// Writes the pages of a command and of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, directory)?;
    }
    let mut text = Vec::new();
    write_page(command, &mut text)?;
    fs::write(directory.join(format!("{}.1", title(command))), text)
}

/// Writes the page of a command.
fn write_page(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let page = Man::new(command.clone())
        // An empty date would be left out, and the next field would take its place.
        .date(" ")
        .source(concat!("tidegate ", env!("CARGO_PKG_VERSION")))
        .manual("tidegate manual");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        page.render_options_section(out)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(out)?;
    }
    let mut roff = Roff::default();
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        add_sections(&text.to_string(), &mut roff);
    }
    if title(command) != "tidegate" {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold("tidegate"), roman("(1)")]);
    }
    roff.to_writer(out)
}

/// The name of a command with those above it: `tidegate-keys-peek`.
fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Adds a section for each heading of the text below the options of `--help`: a paragraph that starts with a line such as
/// `Examples:`, or with `Exit status: `. The lines of the former are examples or lists, which are not filled.
fn add_sections(text: &str, roff: &mut Roff) {
    for paragraph in text.split("\n\n") {
        if let Some(status) = paragraph.strip_prefix("Exit status: ") {
            roff.control("SH", ["EXIT STATUS"]);
            roff.text([roman(status)]);
            continue;
        }
        let is_indented = paragraph.starts_with("  ");
        let (heading, rest) = match paragraph.split_once('\n') {
            Some((heading, rest)) if !is_indented && heading.ends_with(':') => (Some(heading), rest),
            _ => (None, paragraph),
        };
        if let Some(heading) = heading {
            roff.control("SH", [heading.trim_end_matches(':').to_uppercase().as_str()]);
        } else {
            roff.control("PP", []);
        }
        if heading.is_none() && !is_indented {
            roff.text([roman(rest)]);
            continue;
        }
        roff.control("nf", []);
        for line in rest.lines() {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        roff.control("fi", []);
    }
}

const CONFIG_EXAMPLES: &str = "\
Examples:
  tidegate config --reference | less

Exit status: 0 on success, 1 if the output fails, 2 for wrong usage.";

/// Exactly one of them.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
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
