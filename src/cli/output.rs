//! The output of commands, the errors when writing it, and the exit status.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::admin::api::ProblemInfo;
use crate::telemetry::{escaped, for_stderr};

/// Prints lines to standard output.
pub(super) fn print(text: &str) -> CommandResult {
    let mut out = io::stdout().lock();
    report_write("standard output", writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints a value as JSON to standard output. Its serialization must not fail: it has text as keys, and finite numbers.
pub(super) fn print_json(value: &impl Serialize) -> CommandResult {
    let text = serde_json::to_string_pretty(value);
    print(
        &text.map_err(|error| {
            Failure::Running.error(format!("the result can't be written as JSON: {error}"))
        })?,
    )
}

/// The outcome of a command that has written to `stream`. Prints an error unless the reader has closed the stream.
pub(super) fn report_write(stream: &str, result: io::Result<()>) -> CommandResult {
    match result {
        // A reader such as `head` closes the pipe when it has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Running.error(format!("can't write to {stream}: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints lines to standard error. Write errors are ignored: the exit status reports the failure, too.
pub(super) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", for_stderr(&text.to_string()));
}

/// Why a command fails. The value is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It failed while it ran.
    Running = 1,
    /// The configuration or the arguments are invalid.
    Usage = 2,
}

impl Failure {
    /// This failure, once its error has been printed.
    pub fn error(self, text: impl Display) -> Self {
        complain(format!("error: {text}"));
        self
    }

    /// This failure, once help for it has been printed, if there is any.
    pub fn help(self, texts: impl IntoIterator<Item = impl Display>) -> Self {
        texts.into_iter().for_each(|text| complain(format!("help: {text}")));
        self
    }
}

/// The result of a command. Its messages have been printed already.
pub(super) type CommandResult = Result<(), Failure>;

/// The lines of a table, the first of which has the names of the columns. Cells are escaped, since they may have text from
/// clients.
pub(super) fn aligned<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let rows = rows.map(|row| row.map(|cell| escaped(&cell)));
    let rows: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

/// A line for each problem and each help for it, such as `tidegate.toml:3:8: a rate of zero would deny every request`.
pub(super) fn problem_lines(problems: &[ProblemInfo]) -> Vec<String> {
    let mut lines = Vec::new();
    for problem in problems {
        let place = match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}: ", problem.file),
            _ if problem.file.is_empty() => String::new(),
            _ => format!("{}: ", problem.file),
        };
        lines.push(format!("{place}{}", problem.message));
        lines.extend(problem.help.iter().map(|help| format!("  help: {help}")));
    }
    lines
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn text_from_clients_does_not_act_on_the_terminal() {
        let rows = [["a\u{1b}[2J\n".to_owned(), "b".to_owned()], ["\u{202e}".to_owned(), "é".to_owned()]];
        let lines = aligned(["KEY", "X"], rows.into_iter());
        assert_eq!(lines, ["KEY               X", r"a\u001b[2J\u000a  b", r"\u202e            é"]);
    }
}
