//! The logs, their lines, and what limits the accuracy of the report.

use maud::{Markup, html};

use super::super::report::{BadLineReport, LineCounts, LogReport, ReplayReport};
use super::table::{cell, number, table, text};
use super::text::{counted, grouped};

/// How many logs are listed.
const MOST_LOGS: usize = 50;

/// The tables of logs and lines, and the notes.
pub(super) fn logs(report: &ReplayReport) -> Markup {
    let left_out = report.logs.len().saturating_sub(MOST_LOGS);
    let row = |log: &LogReport| vec![html! { span.key { (log.name) } }, cell(log.format)];
    let logs: Vec<Vec<Markup>> = report.logs.iter().take(MOST_LOGS).map(row).collect();
    html! {
        (table("Logs", &[text("Log"), text("Format")], &logs))
        @if left_out > 0 { p.muted { "and " (counted(left_out as u64, "more log")) } }
        (lines(report.lines))
        @if !report.bad_lines.is_empty() { (bad_lines(&report.bad_lines)) }
        @if !report.notes.is_empty() {
            h3 { "Notes" }
            ul.lines { @for note in &report.notes { li { (note) } } }
        }
    }
}

fn lines(counts: LineCounts) -> Markup {
    let rows = [
        ("with a request", counts.requests),
        ("of connections without a valid request", counts.without_request),
        ("that can't be read", counts.malformed),
        ("longer than 1 MiB", counts.too_long),
        ("all", counts.all),
    ];
    let rows = rows.into_iter().filter(|(name, count)| *count > 0 || *name == "that can't be read");
    let rows: Vec<Vec<Markup>> = rows.map(|(name, count)| vec![cell(name), cell(grouped(count))]).collect();
    table("Lines", &[text("Lines"), number("Count")], &rows)
}

fn bad_lines(lines: &[BadLineReport]) -> Markup {
    let row = |bad: &BadLineReport| {
        vec![
            html! { span.key { (bad.log) ":" (bad.line) } },
            cell(&bad.error),
            html! { @if let Some(excerpt) = &bad.excerpt { span.key { (excerpt) } } @else { "–" } },
        ]
    };
    let rows: Vec<Vec<Markup>> = lines.iter().map(row).collect();
    table("The first lines that can't be read", &[text("Line"), text("Why"), text("Its start")], &rows)
}
