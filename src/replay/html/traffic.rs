//! Requests and denials over time: of a configuration and of each of its limits.

use maud::{Markup, html};

use super::super::report::{ConfigurationReport, LimitReport};
use super::figure::figure;
use super::series::{chart, requests_chart};
use super::text::{counted, grouped, length, minute, share};
use crate::text::join_and;

/// How many limits have a chart.
const MOST_CHARTS: usize = 12;
/// How many limits without denials are named.
const MOST_NAMES: usize = 20;

/// The charts of a configuration, and of its limits that deny most.
pub(super) fn traffic(configuration: &ConfigurationReport) -> Markup {
    let Some(period) = configuration.period_us else {
        return html! { p.empty { "The logs have no requests." } };
    };
    let counts = &configuration.requests;
    let (mut limits, without): (Vec<&LimitReport>, Vec<&LimitReport>) =
        configuration.limits.iter().partition(|limit| limit.denied > 0);
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.denied));
    let left_out = limits.len().saturating_sub(MOST_CHARTS);
    // One limit that decides all requests has the same chart as the configuration.
    limits.retain(|limit| (limit.requests, limit.denied) != (counts.all, counts.denied));
    let without: Vec<&str> = without.iter().map(|limit| &*limit.name).take(MOST_NAMES).collect();
    let averaged = format!("means over {}", length(configuration.series.bin_us));
    if configuration.limits.is_empty() {
        let mut chart = requests_chart("Requests over time", &configuration.series, period);
        chart.x_title = averaged;
        return figure(&chart, None);
    }
    html! {
        p.muted {
            "Rates are " (averaged) ". Requests and denials have axes of their own."
        }
        (figure(
            &chart("Requests and would-be denials of all limits over time", &configuration.series, period),
            Some(&html! {
                strong { "All requests" } " "
                span.muted { (grouped(counts.denied)) " of " (counted(counts.all, "request")) " denied" }
            }),
        ))
        @for limit in limits.iter().take(MOST_CHARTS) { (of_limit(limit, period)) }
        @if left_out > 0 { p.muted { (counted(left_out as u64, "more limit")) " with fewer denials." } }
        @if !without.is_empty() { p.muted { "Limits without denials: " (join_and(&without)) "." } }
    }
}

fn of_limit(limit: &LimitReport, period: (u64, u64)) -> Markup {
    let caption = html! {
        "Limit " strong { (limit.name) } " "
        span.muted {
            (grouped(limit.denied)) " of " (counted(limit.requests, "request")) " denied ("
            (share(limit.denied, limit.requests)) ")"
            @if let Some(worst) = limit.worst {
                "; most in " (length(limit.series.bin_us)) " from " (minute(worst.start_us)) ": " (grouped(worst.denied))
            }
        }
    };
    let name = format!("Requests and would-be denials of the limit {} over time", limit.name);
    figure(&chart(&name, &limit.series, period), Some(&caption))
}
