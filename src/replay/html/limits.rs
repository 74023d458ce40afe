//! The limits of a configuration: numbers, denials, the keys that they deny, and requests and denials over time.

use maud::{Markup, html};

use super::elements::{cell, chart, figure, hours, key, number, requests_chart, table, text};
use super::text::{counted, grouped, instant, length, minute, number as estimate, share};
use crate::replay::report::{ConfigurationReport, DeniedKey, LimitReport, MissingPartReport, RouteReport};
use crate::replay::results::LogCounts;
use crate::text::join_and;

/// How many limits have a table of their denied keys.
const MOST_TABLES: usize = 12;
/// How many keys a table has.
const MOST_KEYS: usize = 10;
/// How many routes are listed.
const MOST_ROUTES: usize = 20;

/// The tables of requests, limits and denied keys.
pub(super) fn limits(configuration: &ConfigurationReport) -> Markup {
    let limits = &configuration.limits;
    let mut denying: Vec<&LimitReport> =
        limits.iter().filter(|limit| !limit.denied_keys_by_count.is_empty()).collect();
    denying.sort_by_key(|limit| std::cmp::Reverse(limit.denied));
    let is_key_required = limits.iter().any(|limit| limit.without_key > 0);
    html! {
        (requests(&configuration.requests))
        @if configuration.routes.len() > 1 { (routes(&configuration.routes)) }
        @if limits.is_empty() { p.empty { "There are no limits." } } @else { (numbers(limits)) }
        @if is_key_required {
            p.muted { "Requests without a key lack a part of it, and the limit denies them." }
        }
        @if limits.iter().any(|limit| !limit.missing.is_empty()) { (missing(limits)) }
        @for limit in denying.iter().take(MOST_TABLES) { (denied_keys(limit)) }
        @if denying.len() > MOST_TABLES {
            p.muted { (counted((denying.len() - MOST_TABLES) as u64, "more limit")) " with denials: see --format json." }
        }
        @if !configuration.notes.is_empty() {
            ul.warnings { @for note in &configuration.notes { li { (note) } } }
        }
    }
}

fn requests(counts: &LogCounts) -> Markup {
    let fixed = [
        ("forwarded, or answered by their route", counts.forwarded, true),
        ("denied by a limit", counts.denied, true),
        ("without a route", counts.unrouted, false),
    ];
    let fixed = fixed.into_iter().filter(|(_, count, is_always)| *is_always || *count > 0);
    let fixed = fixed.map(|(name, count, _)| (name.to_owned(), count));
    let rejected = counts.rejected.iter().map(|(reason, count)| (format!("rejected: {reason}"), *count));
    let unplayed = counts.unplayed.iter().map(|(reason, count)| (format!("not played: {reason}"), *count));
    let all = std::iter::once(("all".to_owned(), counts.all));
    let row =
        |(name, count): (String, u64)| vec![cell(name), cell(grouped(count)), cell(share(count, counts.all))];
    let rows: Vec<Vec<Markup>> = fixed.chain(rejected).chain(unplayed).chain(all).map(row).collect();
    table("Requests by result", &[text("Result"), number("Requests"), number("Share")], &rows)
}

fn routes(routes: &[RouteReport]) -> Markup {
    let row = |route: &RouteReport| {
        vec![
            cell(&route.name),
            cell(grouped(route.requests)),
            cell(grouped(route.denied)),
            cell(share(route.denied, route.requests)),
        ]
    };
    let rows: Vec<Vec<Markup>> = routes.iter().take(MOST_ROUTES).map(row).collect();
    let columns = [text("Route"), number("Requests"), number("Denied"), number("Share")];
    table("Routes with the most requests", &columns, &rows)
}

fn numbers(limits: &[LimitReport]) -> Markup {
    let columns = [
        text("Limit"),
        text("Numbers"),
        text("Key"),
        number("Requests"),
        number("Denied"),
        number("Share"),
        number("Keys"),
        number("Denied keys"),
        number("Exempt"),
        number("Denied without key"),
    ];
    let row = |limit: &LimitReport| {
        vec![
            html! { (limit.name) @if limit.mode != "enforce" { " " span.shadow { (limit.mode) } } },
            html! { (limit.numbers) br; span.muted { (limit.algorithm) } },
            html! { (limit.key.join(", ")) },
            cell(grouped(limit.requests)),
            cell(grouped(limit.denied)),
            cell(share(limit.denied, limit.requests)),
            cell(estimate(limit.keys)),
            cell(estimate(limit.denied_keys)),
            cell(grouped(limit.exempt)),
            cell(grouped(limit.without_key)),
        ]
    };
    let rows: Vec<Vec<Markup>> = limits.iter().map(row).collect();
    table("Limits and what they would have denied", &columns, &rows)
}

fn missing(limits: &[LimitReport]) -> Markup {
    let columns = [text("Limit"), text("Part of its key"), number("Lacked by"), text("What to change")];
    let of_limit = |limit: &LimitReport| -> Vec<Vec<Markup>> {
        let row = |part: &MissingPartReport| {
            vec![
                cell(&limit.name),
                cell(&part.part),
                html! { (grouped(part.requests)) " of " (counted(part.of, "request")) },
                html! { span.reason { (part.cure.as_deref().unwrap_or("–")) } },
            ]
        };
        limit.missing.iter().map(row).collect()
    };
    let rows: Vec<Vec<Markup>> = limits.iter().flat_map(of_limit).collect();
    table("Parts of keys that the logs lack", &columns, &rows)
}

fn denied_keys(limit: &LimitReport) -> Markup {
    let columns = [
        text("Key"),
        number("Denied"),
        text("First denial"),
        text("Last denial"),
        number("Denials by hour, 0 to 24 h"),
    ];
    let row = |denied: &DeniedKey| {
        let about = if denied.error > 0 { "at most " } else { "" };
        vec![
            key(&denied.name),
            cell(format!("{about}{}", grouped(denied.denied))),
            html! { time { (instant(denied.first_us)) } },
            html! { time { (instant(denied.last_us)) } },
            hours(&denied.hours, "denials"),
        ]
    };
    let rows: Vec<Vec<Markup>> = limit.denied_keys_by_count.iter().take(MOST_KEYS).map(row).collect();
    table(&format!("Keys that {} denies most", limit.name), &columns, &rows)
}

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
