//! The report in a few sentences.

use maud::{Markup, html};

use super::super::report::{ConfigurationReport, LimitReport, ReplayReport};
use super::super::suggest::Suggestion;
use super::comparison::name;
use super::suggestion::{denied_clients, numbers};
use super::text::{counted, grouped, instant, length, number, percent, share};
use crate::text::join_and;

/// How many limits and suggestions have a sentence.
const MOST_SENTENCES: usize = 6;

/// Facts, and sentences about denials and suggestions.
pub(super) fn summary(report: &ReplayReport) -> Markup {
    let Some(first) = report.configurations.first() else {
        return html! { p.empty { "The logs have no requests." } };
    };
    html! {
        p { (period(report, first)) }
        (facts(report))
        @for configuration in &report.configurations { (denials(configuration)) }
        @let suggestions = &first.suggestions;
        @if !suggestions.is_empty() {
            ul.lines {
                @for suggestion in suggestions.iter().take(MOST_SENTENCES) { li { (suggested(suggestion)) } }
            }
        }
    }
}

fn period(report: &ReplayReport, configuration: &ConfigurationReport) -> String {
    let mut formats: Vec<&str> = report.logs.iter().map(|log| log.format).collect();
    formats.sort_unstable();
    formats.dedup();
    let source = format!("{} ({})", counted(report.logs.len() as u64, "access log"), join_and(&formats));
    let requests = counted(configuration.requests.all, "request");
    let Some((first, last)) = configuration.period_us else {
        return format!("There is no request in {source}.");
    };
    let (start, end) = (instant(first), instant(last));
    format!("{requests} in {source}, from {start} to {end}: {}. All times are in UTC.", length(last - first))
}

fn facts(report: &ReplayReport) -> Markup {
    let several = report.configurations.len() > 1;
    html! {
        dl.facts {
            div { dt { "requests" } dd { (grouped(report.lines.requests)) } }
            @for configuration in &report.configurations {
                @if configuration.file.is_some() {
                    @let counts = &configuration.requests;
                    div.denials {
                        dt { "would have been denied" @if several { " by " (name(configuration)) } }
                        dd { (grouped(counts.denied)) " " small { (share(counts.denied, counts.all)) } }
                    }
                }
            }
            @if let Some(suggestion) = report.configurations.iter().flat_map(|one| &one.suggestions).max_by_key(|one| one.requests) {
                div { dt { "clients by " (join_and(&suggestion.subject.key)) } dd { (grouped(suggestion.clients.keys)) } }
            }
            @if report.lines.malformed > 0 {
                div { dt { "lines that can't be read" } dd { (grouped(report.lines.malformed)) } }
            }
        }
    }
}

/// What the limits of a configuration would have denied, in sentences.
fn denials(configuration: &ConfigurationReport) -> Markup {
    let (counts, name) = (&configuration.requests, name(configuration));
    if configuration.limits.is_empty() {
        return html! { @if configuration.file.is_some() { p { "The configuration " (name) " has no limits." } } };
    }
    let mut limits: Vec<&LimitReport> =
        configuration.limits.iter().filter(|limit| limit.denied > 0).collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.denied));
    html! {
        p {
            "With " strong { (name) } ", "
            @if counts.denied == 0 { "no request would have been denied." }
            @else {
                (grouped(counts.denied)) " of " (counted(counts.all, "request")) " ("
                (share(counts.denied, counts.all)) ") would have been denied:"
            }
        }
        @if !limits.is_empty() {
            ul.lines { @for limit in limits.iter().take(MOST_SENTENCES) { li { (of_limit(limit)) } } }
        }
    }
}

fn of_limit(limit: &LimitReport) -> Markup {
    let would = if limit.shadow { "is in shadow mode and would deny" } else { "denies" };
    html! {
        strong { (limit.name) } " (" (limit.numbers) ", by " (join_and(&limit.key)) ") " (would) " "
        (counted(limit.denied, "request")) " of " (number(limit.denied_keys)) " of its " (number(limit.keys)) " keys"
        @if let Some(top) = limit.denied_keys_by_count.first() {
            "; " (share(top.denied, limit.denied)) " of these have the key " span.key { (top.name) }
        }
        "."
    }
}

fn suggested(suggestion: &Suggestion) -> Markup {
    let subject = &suggestion.subject;
    html! {
        "For " strong { (subject.name) } " by " (join_and(&subject.key)) ", "
        @if suggestion.limits.is_empty() { "no limit is suggested." }
        @else {
            strong { (numbers(suggestion)) } " would deny at most "
            (percent(suggestion.settings.refuse_at_most)) " of " (suggestion.settings.of.name()) ". "
            @if let Some(check) = &suggestion.held_back {
                "On the time that was held back they deny requests of " (denied_clients(check)) "."
            } @else { "No time was held back, so they are not checked." }
        }
    }
}
