//! The report in a few sentences, and two configurations side by side.

use maud::{Markup, html};

use super::elements::{RateCurve, cell, figure, legend, line, number, panel, table, text};
use super::suggestion::{denied_clients, numbers};
use super::text::{counted, grouped, instant, length, number as estimate, percent, share};
use crate::plot::{Chart, CurveForm, Scale};
use crate::replay::report::{ConfigurationReport, LimitReport, ReplayReport};
use crate::replay::results::LogCounts;
use crate::replay::suggest::Suggestion;
use crate::text::join_and;
use crate::time::Timestamp;

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
    let would = match limit.mode {
        "enforce" => "denies".to_owned(),
        mode => format!("is in {mode} mode and would deny"),
    };
    html! {
        strong { (limit.name) } " (" (limit.numbers) ", by " (join_and(&limit.key)) ") " (would) " "
        (counted(limit.denied, "request")) " of " (estimate(limit.denied_keys)) " of its " (estimate(limit.keys)) " keys"
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
            (percent(suggestion.settings.deny_at_most)) " of " (suggestion.settings.of.name()) ". "
            @if let Some(check) = &suggestion.held_back {
                "On the time that was held back they deny requests of " (denied_clients(check)) "."
            } @else { "No time was held back, so they are not checked." }
        }
    }
}

/// The height of a chart, in pixels.
const HEIGHT: f64 = 120.0;
/// How many limits have a chart.
const MOST_CHARTS: usize = 12;

/// The counts of both, and their denials over time.
pub(super) fn comparison(before: &ConfigurationReport, after: &ConfigurationReport) -> Markup {
    let limits = compared_limits(before, after);
    let mut denying: Vec<&ComparedLimit<'_>> = limits.iter().filter(|pair| pair.denied() > 0).collect();
    denying.sort_by_key(|pair| std::cmp::Reverse(pair.denied()));
    let series = |configuration: &ConfigurationReport, class| {
        RateCurve::of(class, &configuration.series, |bin| bin.denied).with_form(CurveForm::Steps)
    };
    let period = before.period_us.unwrap_or_default();
    let all = [series(before, "before"), series(after, "after")];
    html! {
        p { "Both configurations decided the same requests." }
        (compared_counts(before, after, &limits))
        (legend(&[line("before", name(before)), line("after", name(after))]))
        (denials_chart("all limits", &all, period))
        @for pair in denying.iter().take(MOST_CHARTS) {
            (denials_chart(&format!("the limit {}", pair.name), &pair.curves(), period))
        }
    }
}

/// The name of a configuration.
pub(super) fn name(configuration: &ConfigurationReport) -> String {
    configuration.file.clone().unwrap_or_else(|| "no configuration".to_owned())
}

/// The limits of the same name, of which at least one exists.
struct ComparedLimit<'a> {
    name: &'a str,
    before: Option<&'a LimitReport>,
    after: Option<&'a LimitReport>,
}

impl ComparedLimit<'_> {
    fn denied(&self) -> u64 {
        self.before.into_iter().chain(self.after).map(|limit| limit.denied).sum()
    }

    fn curves(&self) -> Vec<RateCurve> {
        let curve = |(limit, class): (Option<&LimitReport>, &'static str)| {
            limit.map(|limit| {
                RateCurve::of(class, &limit.series, |bin| bin.denied).with_form(CurveForm::Steps)
            })
        };
        [(self.before, "before"), (self.after, "after")].into_iter().filter_map(curve).collect()
    }
}

fn compared_limits<'a>(
    before: &'a ConfigurationReport,
    after: &'a ConfigurationReport,
) -> Vec<ComparedLimit<'a>> {
    let mut names: Vec<&str> = before.limits.iter().chain(&after.limits).map(|limit| &*limit.name).collect();
    names.sort_unstable();
    names.dedup();
    let pair = |name: &'a str| {
        let of = |configuration: &'a ConfigurationReport| {
            configuration.limits.iter().find(|limit| limit.name == name)
        };
        ComparedLimit { name, before: of(before), after: of(after) }
    };
    names.into_iter().map(pair).collect()
}

fn compared_counts(
    before: &ConfigurationReport,
    after: &ConfigurationReport,
    limits: &[ComparedLimit<'_>],
) -> Markup {
    let columns = [text("Requests"), number(&name(before)), number(&name(after)), number("Difference")];
    let of_counts = |title: &str, count: fn(&LogCounts) -> u64| {
        let of = |counts: &LogCounts| {
            let count = count(counts);
            html! { (grouped(count)) br; span.muted { (share(count, counts.all)) } }
        };
        let change = difference(count(&before.requests), count(&after.requests));
        vec![cell(title), of(&before.requests), of(&after.requests), cell(change)]
    };
    let of_limit = |pair: &ComparedLimit<'_>| {
        let of = |limit: Option<&LimitReport>| {
            html! {
                @if let Some(limit) = limit {
                    (grouped(limit.denied)) br; span.muted { (estimate(limit.denied_keys)) " of " (estimate(limit.keys)) " keys" }
                } @else { "no such limit" }
            }
        };
        let denied = |limit: Option<&LimitReport>| limit.map_or(0, |limit| limit.denied);
        let change = difference(denied(pair.before), denied(pair.after));
        vec![html! { "denied by " (pair.name) }, of(pair.before), of(pair.after), cell(change)]
    };
    let mut rows = vec![
        of_counts("forwarded", |counts| counts.forwarded),
        of_counts("denied by a limit", |counts| counts.denied),
        of_counts("not forwarded for other reasons", |counts| counts.all - counts.forwarded - counts.denied),
    ];
    rows.extend(limits.iter().map(of_limit));
    table("Requests with each configuration", &columns, &rows)
}

/// How many more or fewer.
fn difference(before: u64, after: u64) -> String {
    let sign = match after.cmp(&before) {
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", grouped(before.abs_diff(after)))
}

fn denials_chart(of: &str, curves: &[RateCurve], period: (u64, u64)) -> Markup {
    let descriptions: Vec<String> = curves.iter().map(|curve| curve.description(curve.class)).collect();
    let chart = Chart {
        name: format!("Would-be denials of {of} over time with each configuration"),
        description: descriptions.join(" "),
        x: Scale::time(Timestamp(period.0), Timestamp(period.1)),
        x_title: String::new(),
        panels: vec![panel("would-be denials", HEIGHT, curves)],
    };
    figure(&chart, Some(&html! { strong { "Would-be denials of " (of) } }))
}
