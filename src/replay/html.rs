//! The report of a replay as a page: one HTML document without scripts and without requests, for browsers and for print.

mod elements;
mod limits;
mod suggestion;
mod summary;
mod text;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::elements::{cell, number, table, text};
use self::text::{counted, grouped};
use super::report::{BadLineReport, ConfigurationReport, LineCounts, LogReport, ReplayReport};
use super::suggest::Suggestion;
use crate::plot::root_rules;

/// Sizes, places and the use of colours.
const STYLE: &str = include_str!("html/style.css");
/// Colours that plots do not have, on light and on dark paper: behind the sections, and behind warnings.
const COLOURS: [(&str, &str, &str); 2] = [("back", "#f3f5f7", "#05070a"), ("note", "#fdf1e2", "#2c2213")];
/// How many suggestions have a section.
const MOST_SUGGESTIONS: usize = 12;

/// A part of the page, which the list at its top links to.
struct PageSection {
    id: String,
    title: String,
    /// To which configuration it belongs, if there are several.
    of: Option<String>,
    body: Markup,
}

/// The report as an HTML document.
#[must_use]
pub fn page(report: &ReplayReport) -> String {
    let style = format!("{}\n{STYLE}", root_rules(&COLOURS));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        BASE64_STANDARD.encode(digest(&SHA256, style.as_bytes()))
    );
    let sections = sections(report);
    let names: Vec<String> = report.configurations.iter().filter_map(|one| one.file.clone()).collect();
    let title = match &*names {
        [] => "Replay of access logs".to_owned(),
        names => format!("Replay of access logs with {}", names.join(" and ")),
    };
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(&style)) }
            }
            body {
                header {
                    h1 { (title) }
                    nav aria-label="Sections" {
                        ul { @for section in &sections { li { a href={ "#" (section.id) } { (section.heading()) } } } }
                    }
                }
                main { @for section in &sections { (section.markup()) } }
            }
        }
    };
    document.into_string()
}

impl PageSection {
    fn new(id: &str, title: &str, body: Markup) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), of: None, body }
    }

    fn heading(&self) -> Markup {
        html! { (self.title) @if let Some(of) = &self.of { " " span.muted { "(" (of) ")" } } }
    }

    fn markup(&self) -> Markup {
        let heading = format!("{}-title", self.id);
        html! {
            section id=(self.id) aria-labelledby=(heading) {
                h2 id=(heading) { (self.heading()) }
                (self.body)
            }
        }
    }
}

fn sections(report: &ReplayReport) -> Vec<PageSection> {
    let mut sections = vec![PageSection::new("summary", "Summary", summary::summary(report))];
    if let [before, after] = &*report.configurations {
        sections.push(PageSection::new("comparison", "Comparison", self::summary::comparison(before, after)));
    }
    let is_one = report.configurations.len() < 2;
    for (number, configuration) in report.configurations.iter().enumerate() {
        let shown: &[ConfigurationReport] = &report.configurations[..number];
        let of = (!is_one).then(|| self::summary::name(configuration));
        let add = |section: PageSection| PageSection {
            id: format!("{}-{number}", section.id),
            of: of.clone(),
            ..section
        };
        sections.extend(configuration_sections(configuration, shown).into_iter().map(add));
    }
    sections.push(PageSection::new("logs", "Logs and notes", logs(report)));
    sections
}

/// The sections of a configuration. Suggestions that were shown for another one are left out.
fn configuration_sections(
    configuration: &ConfigurationReport,
    shown: &[ConfigurationReport],
) -> Vec<PageSection> {
    let mut sections = Vec::new();
    if configuration.limits.is_empty() {
        sections.push(PageSection::new(
            "traffic",
            "Requests over time",
            self::limits::traffic(configuration),
        ));
    } else {
        let title = "Requests and denials over time";
        sections.push(PageSection::new("traffic", title, self::limits::traffic(configuration)));
    }
    let counts = &configuration.requests;
    if configuration.file.is_some() || counts.forwarded < counts.all {
        sections.push(PageSection::new("limits", "Limits", limits::limits(configuration)));
    }
    let is_shown = |suggestion: &Suggestion| {
        let all = shown.iter().flat_map(|one| &one.suggestions);
        all.into_iter().any(|one| one.subject == suggestion.subject && one.requests == suggestion.requests)
    };
    let mut suggestions: Vec<&Suggestion> =
        configuration.suggestions.iter().filter(|suggestion| !is_shown(suggestion)).collect();
    suggestions.sort_by_key(|suggestion| std::cmp::Reverse(suggestion.requests));
    for (number, suggestion) in suggestions.iter().take(MOST_SUGGESTIONS).enumerate() {
        let title = format!("Suggested limits for {}", suggestion.subject.name);
        let body = suggestion::suggestion(suggestion);
        sections.push(PageSection::new(&format!("suggestion-{number}"), &title, body));
    }
    if !configuration.slots.is_empty() {
        let title = "Suggested limits on concurrency";
        sections.push(PageSection::new("slots", title, self::suggestion::slots(&configuration.slots)));
    }
    sections
}

/// How many logs are listed.
const MOST_LOGS: usize = 50;

/// The tables of logs and lines, and the notes.
fn logs(report: &ReplayReport) -> Markup {
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

#[cfg(test)]
mod tests;
