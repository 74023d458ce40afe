//! Suggested limits as text.

use super::super::output::aligned;
use crate::replay::suggest::{Check, HistoryPart, Quantiles, SlotsSuggestion, Suggestion, percent};
use crate::replay::utc_second;
use crate::text::plural;

/// The lines of a suggestion: what clients do, rates with their bursts, the limits, and what these deny. What is not of all of
/// the log says of which part it is.
pub(super) fn lines(suggestion: &Suggestion) -> Vec<String> {
    let mut lines = vec![String::new(), header(suggestion)];
    lines.extend(suggestion.warnings.iter().map(|warning| format!("warning: {warning}")));
    let all = format!("all of the log, {}", times(suggestion.time));
    section(&mut lines, &format!("Most requests of a client in any period, in {all}"), peaks(suggestion));
    section(&mut lines, &format!("Least burst for each rate, in {all}"), curve(suggestion));
    if !suggestion.limits.is_empty() {
        let title = format!(
            "Suggested limits, chosen from the first {} of the time with requests, {}",
            percent(suggestion.settings.fit),
            times(suggestion.fit.part)
        );
        section(&mut lines, &title, limits(suggestion));
        section(&mut lines, "What they deny", checks(suggestion));
    }
    section(
        &mut lines,
        &format!("Clients with the most denied requests or the busiest minutes, in {all}"),
        listed(suggestion),
    );
    lines.push(String::new());
    lines.extend(suggestion.toml.lines().map(str::to_owned));
    lines
}

/// The first and the last second of a part of the time.
fn times(part: HistoryPart) -> String {
    format!("{} to {}", utc_second(part.from.0), utc_second(part.until.0.saturating_sub(1)))
}

/// The lines of suggestions for limits on concurrency.
pub(super) fn slots(suggestions: &[SlotsSuggestion]) -> Vec<String> {
    if suggestions.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "Most requests of a client in flight at once".to_owned()];
    let header = [
        "LIMIT",
        "HALF OF CLIENTS",
        "90 %",
        "99 %",
        "99.9 %",
        "ALL",
        "NOW",
        "EXCEEDED BY",
        "SUGGESTED",
        "EXCEEDED BY",
    ];
    let row = |of: &SlotsSuggestion| {
        let (current, suggested) = (of.current_exceeded_by, of.exceeded_by);
        let exceeded = |clients: u64| format!("{clients} of {}", of.clients);
        let Quantiles { p50, p90, p99, p99_9, max } = of.peaks;
        [
            of.name.clone(),
            p50.to_string(),
            p90.to_string(),
            p99.to_string(),
            p99_9.to_string(),
            max.to_string(),
            of.current.to_string(),
            exceeded(current),
            of.suggested.map_or_else(|| "-".to_owned(), |slots| format!("max_in_flight = {slots}")),
            exceeded(suggested),
        ]
    };
    lines.extend(aligned(header, suggestions.iter().map(row)));
    for of in suggestions {
        let mut note = |requests: u64, why: &str| {
            if requests > 0 {
                lines.push(format!("note: limit {}: {requests} requests are left out: {why}", of.name));
            }
        };
        note(of.without_duration, "the log does not have how long they took");
        note(of.left_out, "there are too many keys");
    }
    lines
}

fn section(lines: &mut Vec<String>, title: &str, table: Vec<String>) {
    lines.extend([String::new(), title.to_owned()]);
    lines.extend(table.into_iter().map(|line| format!("  {line}")));
}

fn header(suggestion: &Suggestion) -> String {
    let (subject, clients) = (&suggestion.subject, suggestion.clients.keys);
    let about = if suggestion.clients.relative_error > 0.0 { "about " } else { "" };
    format!(
        "{}, by {}: {} request{} of {about}{clients} client{}",
        subject.name,
        subject.key.join(" and "),
        suggestion.requests,
        plural(suggestion.requests),
        plural(clients)
    )
}

fn peaks(suggestion: &Suggestion) -> Vec<String> {
    let header = ["PERIOD", "HALF OF CLIENTS", "90 %", "99 %", "99.9 %", "ALL", "99 % OF REQUESTS"];
    let row = |clients: Quantiles, requests: Quantiles| {
        [clients.p50, clients.p90, clients.p99, clients.p99_9, clients.max, requests.p99]
            .map(|n| n.to_string())
    };
    let rows = suggestion.peaks.iter().map(|peaks| {
        let [p50, p90, p99, p99_9, max, requests] = row(peaks.clients, peaks.requests);
        [peaks.window.to_owned(), p50, p90, p99, p99_9, max, requests]
    });
    aligned(header, rows)
}

fn curve(suggestion: &Suggestion) -> Vec<String> {
    let share = format!("DENIES AT MOST {} OF CLIENTS", percent(suggestion.settings.deny_at_most));
    let rows = suggestion.curve.iter();
    let rows = rows.map(|point| [point.rate.clone(), point.for_all.to_string(), point.at_most.to_string()]);
    aligned(["RATE", "DENIES NONE", &share], rows)
}

fn limits(suggestion: &Suggestion) -> Vec<String> {
    let rows = suggestion.limits.iter().map(|limit| {
        [limit.name.clone(), limit.rate.clone(), limit.burst.to_string(), limit.least.to_string()]
    });
    aligned(["LIMIT", "RATE", "AT ONCE", "CLIENTS NEED"], rows)
}

fn checks(suggestion: &Suggestion) -> Vec<String> {
    // The numbers are chosen so that they fit the first part, so for it there is no bound.
    let of = |name: &str, check: &Check, has_bound: bool| {
        let bound = has_bound.then(|| format!("at most {}", percent(check.clients_upper_bound)));
        [
            name.to_owned(),
            utc_second(check.part.from.0),
            utc_second(check.part.until.0.saturating_sub(1)),
            format!("{} of {} ({})", check.denied_clients, check.clients, percent(check.client_share())),
            bound.unwrap_or_default(),
            format!("{} of {} ({})", check.denied_requests, check.requests, percent(check.request_share())),
        ]
    };
    let rows = [
        Some(of("chosen from", &suggestion.fit, false)),
        suggestion.held_back.as_ref().map(|check| of("held back", check, true)),
        suggestion.current.as_ref().map(|check| of("held back, present limit", check, true)),
    ];
    aligned(
        ["PART OF THE LOG", "FROM", "TO", "CLIENTS", "WITH 95 % CONFIDENCE", "REQUESTS"],
        rows.into_iter().flatten(),
    )
}

fn listed(suggestion: &Suggestion) -> Vec<String> {
    let rows = suggestion.listed.iter().map(|client| {
        [
            client.name.clone(),
            client.requests.to_string(),
            client.denied.to_string(),
            client.peaks[2].to_string(),
            client.shape.kind.name().to_owned(),
            client.shape.reason.clone(),
            client.user_agent.clone().unwrap_or_else(|| "-".to_owned()),
            client.consumer.clone().unwrap_or_default(),
        ]
    });
    let has_consumers = suggestion.listed.iter().any(|client| client.consumer.is_some());
    let consumer = if has_consumers { "CONSUMER" } else { "" };
    let header = ["CLIENT", "REQUESTS", "DENIED", "MOST IN 1 MIN", "SHAPE", "WHY", "USER AGENT", consumer];
    aligned(header, rows)
}
