//! The report of a replay as a page: one HTML document without scripts and without requests, for browsers and for print.

mod comparison;
mod curve;
mod figure;
mod hours;
mod limits;
mod logs;
mod peaks;
mod series;
mod slots;
mod suggestion;
mod summary;
mod table;
mod text;
mod traffic;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::report::{ConfigurationReport, ReplayReport};
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
        sections.push(PageSection::new("comparison", "Comparison", comparison::comparison(before, after)));
    }
    let is_one = report.configurations.len() < 2;
    for (number, configuration) in report.configurations.iter().enumerate() {
        let shown: &[ConfigurationReport] = &report.configurations[..number];
        let of = (!is_one).then(|| comparison::name(configuration));
        let add = |section: PageSection| PageSection {
            id: format!("{}-{number}", section.id),
            of: of.clone(),
            ..section
        };
        sections.extend(configuration_sections(configuration, shown).into_iter().map(add));
    }
    sections.push(PageSection::new("logs", "Logs and notes", logs::logs(report)));
    sections
}

/// The sections of a configuration. Suggestions that were shown for another one are left out.
fn configuration_sections(
    configuration: &ConfigurationReport,
    shown: &[ConfigurationReport],
) -> Vec<PageSection> {
    let mut sections = Vec::new();
    if configuration.limits.is_empty() {
        sections.push(PageSection::new("traffic", "Requests over time", traffic::traffic(configuration)));
    } else {
        let title = "Requests and denials over time";
        sections.push(PageSection::new("traffic", title, traffic::traffic(configuration)));
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
        sections.push(PageSection::new("slots", title, slots::slots(&configuration.slots)));
    }
    sections
}

#[cfg(test)]
mod tests;
