//! `tidegate man`: the manual pages of the commands, and of the configuration file.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::output::{CommandResult, Failure, report_write};
use crate::config::{self, KeyText};

/// An empty date would be left out, and the next field would take its place.
const DATE: &str = " ";
const SOURCE: &str = concat!("tidegate ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "tidegate manual";

const MAN_EXAMPLES: &str = "\
Examples:
  tidegate man | man -l -
  tidegate man ~/.local/share/man/man1

Exit status: 0 on success, 1 if a page can't be written, 2 for wrong usage.";

/// The arguments of `tidegate man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(super) struct ManArgs {
    /// The directory for the pages of all commands and of the configuration file; it is created if it does not exist. Without
    /// it the page of tidegate is printed.
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Prints the manual page, or writes those of all commands and of the configuration file.
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
        .and_then(|()| fs::write(directory.join("tidegate.toml.5"), file_page()?))
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
    let page = Man::new(command.clone()).date(DATE).source(SOURCE).manual(MANUAL);
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
        roff.text([bold("tidegate"), roman("(1), "), bold("tidegate.toml"), roman("(5)")]);
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

/// What the manual page says about the configuration file as a whole.
const FILE: &str = "The configuration is a file in TOML (https://toml.io). The keys of the top level come before the first table. A string \
                    may have `${NAME}`, which is replaced by the value of the environment variable; `$${` is a literal `${`. Files that it names are \
                    relative to its directory. `tidegate check` shows all errors with their places, `tidegate config KEY` describes a key, \
                    and `tidegate init` prints a file to begin with.";

/// The manual page of the configuration file.
fn file_page() -> io::Result<Vec<u8>> {
    let mut roff = Roff::default();
    roff.control("TH", ["tidegate.toml", "5", DATE, SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("tidegate.toml - the configuration file of tidegate")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text(inlines(FILE));
    let mut heading = None;
    for table in config::tables() {
        if heading.as_ref() != Some(&table.heading) {
            let shown = if table.heading.is_empty() { "TOP LEVEL" } else { &*table.heading };
            roff.control("SH", [shown]);
        }
        table.keys.iter().for_each(|key| add_key(key, &mut roff));
        heading = Some(table.heading);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("tidegate"),
        roman("(1), "),
        bold("tidegate-check"),
        roman("(1), "),
        bold("tidegate-config"),
        roman("(1)"),
    ]);
    let mut page = Vec::new();
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// Adds a key, its values and its default, and its meaning.
fn add_key(key: &KeyText, roff: &mut Roff) {
    roff.control("TP", []);
    roff.text([bold(&*key.name)]);
    let range = key.range.as_ref().map(|range| format!(", {range}")).unwrap_or_default();
    let default = key.default.as_ref().map(|words| format!(" Default: {words}.")).unwrap_or_default();
    roff.text(inlines(&format!("{}. Values: {}{range}.{default}", key.meaning, key.kind)));
}

/// A text in which what is between backticks is bold.
fn inlines(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(index, part)| if index % 2 == 1 { bold(part) } else { roman(part) }).collect()
}
