//! Two configurations side by side.

use maud::{Markup, html};

use super::super::report::{ConfigurationReport, LimitReport, LogCounts};
use super::figure::{figure, legend, line};
use super::series::{RateCurve, panel};
use super::table::{cell, number, table, text};
use super::text::{grouped, number as estimate, share};
use crate::plot::{Chart, CurveForm, Scale};
use crate::time::Timestamp;

/// The height of a chart, in pixels.
const HEIGHT: f64 = 120.0;
/// How many limits have a chart.
const MOST_CHARTS: usize = 12;

/// The counts of both, and their denials over time.
pub(super) fn comparison(before: &ConfigurationReport, after: &ConfigurationReport) -> Markup {
    let limits = limits(before, after);
    let mut denying: Vec<&ComparedLimit<'_>> = limits.iter().filter(|pair| pair.denied() > 0).collect();
    denying.sort_by_key(|pair| std::cmp::Reverse(pair.denied()));
    let series = |configuration: &ConfigurationReport, class| {
        RateCurve::of(class, &configuration.series, |bin| bin.denied).with_form(CurveForm::Steps)
    };
    let period = before.period_us.unwrap_or_default();
    let all = [series(before, "before"), series(after, "after")];
    html! {
        p { "Both configurations decided the same requests." }
        (counts(before, after, &limits))
        (legend(&[line("before", name(before)), line("after", name(after))]))
        (denials("all limits", &all, period))
        @for pair in denying.iter().take(MOST_CHARTS) {
            (denials(&format!("the limit {}", pair.name), &pair.curves(), period))
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

fn limits<'a>(before: &'a ConfigurationReport, after: &'a ConfigurationReport) -> Vec<ComparedLimit<'a>> {
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

fn counts(before: &ConfigurationReport, after: &ConfigurationReport, limits: &[ComparedLimit<'_>]) -> Markup {
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

fn denials(of: &str, curves: &[RateCurve], period: (u64, u64)) -> Markup {
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
