//! Suggested limits: why, their numbers, what they deny, and lines for the configuration.

use maud::{Markup, html};

use super::super::suggest::{Check, DeniedClient, SuggestedLimit, Suggestion, WindowPeaks, toml};
use super::curve::curve;
use super::hours::hours;
use super::peaks::peaks;
use super::table::{cell, key, number, table, text};
use super::text::{counted, grouped, instant, percent, share};
use crate::text::join_and;

/// The parts of the section about a suggestion.
pub(super) fn suggestion(suggestion: &Suggestion) -> Markup {
    html! {
        p { (basis(suggestion)) }
        @if !suggestion.warnings.is_empty() {
            ul.warnings { @for warning in &suggestion.warnings { li { (warning) } } }
        }
        (peaks(suggestion))
        (curve(suggestion))
        (limits(suggestion))
        pre tabindex="0" { code { (toml(suggestion)) } }
        (checks(suggestion))
        p.muted { (settings_text(suggestion)) }
        @if !suggestion.denied.is_empty() { (denied(suggestion)) }
    }
}

/// The limits in a sentence, without a subject.
pub(super) fn numbers(suggestion: &Suggestion) -> String {
    let numbers: Vec<String> = suggestion
        .limits
        .iter()
        .map(|limit| {
            let has_burst = limit.numbers.rate.units() != limit.burst;
            let burst = has_burst.then(|| format!(" with a burst of {}", grouped(limit.burst)));
            format!("{}{}", limit.rate, burst.unwrap_or_default())
        })
        .collect();
    join_and(&numbers)
}

/// What a check found, in a sentence, without a subject.
pub(super) fn denied_clients(check: &Check) -> String {
    format!(
        "{} of {} ({}; with 95\u{a0}% confidence at most {})",
        grouped(check.denied_clients),
        counted(check.clients, "client"),
        percent(check.client_share()),
        percent(check.clients_upper_bound)
    )
}

fn settings_text(suggestion: &Suggestion) -> String {
    let settings = &suggestion.settings;
    format!(
        "The limits were chosen from the first {} of the time, so that they deny at most {} of {}, times {} as headroom \
         and rounded up. The share of denied clients in traffic of this kind is at most the bound, with a confidence of \
         95\u{a0}%.",
        percent(settings.fit),
        percent(settings.refuse_at_most),
        settings.of.name(),
        settings.headroom
    )
}

fn basis(suggestion: &Suggestion) -> String {
    let about = if suggestion.clients.relative_error > 0.0 { "about " } else { "" };
    let subject = &suggestion.subject;
    let place = match (&subject.route, subject.is_configured) {
        (_, true) => format!("The limit {} counts by {}", subject.name, join_and(&subject.key)),
        (Some(route), false) => {
            format!("The route {route} has no limit; counted by {}", join_and(&subject.key))
        }
        (None, false) => format!("These requests match no route; counted by {}", join_and(&subject.key)),
    };
    format!(
        "{place}: {} of {about}{}.",
        counted(suggestion.requests, "request"),
        counted(suggestion.clients.keys, "client")
    )
}

fn limits(suggestion: &Suggestion) -> Markup {
    let columns = [text("Limit"), number("Rate"), number("Burst"), number("Clients need")];
    let row = |limit: &SuggestedLimit| {
        vec![cell(&limit.name), cell(&limit.rate), cell(grouped(limit.burst)), cell(grouped(limit.least))]
    };
    let rows: Vec<Vec<Markup>> = suggestion.limits.iter().map(row).collect();
    table("Suggested limits, which belong together", &columns, &rows)
}

fn checks(suggestion: &Suggestion) -> Markup {
    let columns = [
        text("Time"),
        number("Clients"),
        number("Denied"),
        number("Share"),
        number("Bound, 95\u{a0}%"),
        number("Requests"),
        number("Denied"),
        number("Share"),
    ];
    let row = |name: &str, check: &Check| {
        vec![
            html! { (name) br; span.muted.whole { (instant(check.part.from.0)) " to" }
            br; span.muted.whole { (instant(check.part.until.0)) } },
            cell(grouped(check.clients)),
            cell(grouped(check.denied_clients)),
            cell(percent(check.client_share())),
            cell(percent(check.clients_upper_bound)),
            cell(grouped(check.requests)),
            cell(grouped(check.denied_requests)),
            cell(percent(check.request_share())),
        ]
    };
    let rows = [
        Some(row("chosen from", &suggestion.fit)),
        suggestion.held_back.as_ref().map(|check| row("held back", check)),
        suggestion.current.as_ref().map(|check| row("held back, with the present limit", check)),
    ];
    let rows: Vec<Vec<Markup>> = rows.into_iter().flatten().collect();
    table("Requests and clients that they deny", &columns, &rows)
}

fn denied(suggestion: &Suggestion) -> Markup {
    let peak = suggestion.peaks.get(2).map_or("1 min", |peaks: &WindowPeaks| peaks.window);
    let columns = [
        text("Client"),
        number("Requests"),
        number("Denied"),
        number("Share"),
        number(&format!("Most in {peak}")),
        text("Shape"),
        text("Why"),
        number("Requests by hour, 0 to 24 h"),
    ];
    let row = |client: &DeniedClient| {
        vec![
            key(&client.name),
            cell(grouped(client.requests)),
            cell(grouped(client.denied)),
            cell(share(client.denied, client.requests)),
            cell(grouped(client.peaks[2])),
            html! { span.whole { (client.shape.kind.name()) } },
            html! { span.reason { (client.shape.reason) } },
            hours(&client.shape.hours, "requests"),
        ]
    };
    let rows: Vec<Vec<Markup>> = suggestion.denied.iter().map(row).collect();
    table("Clients of which the suggested limits deny most, over all of the time", &columns, &rows)
}
