//! Suggested numbers of limits on concurrency.

use maud::{Markup, html};

use super::super::suggest::SlotsSuggestion;
use super::table::{cell, number, table, text};
use super::text::{counted, grouped};

/// The table of the requests that clients have in flight, with notes on the requests that were not counted.
pub(super) fn slots(suggestions: &[SlotsSuggestion]) -> Markup {
    let columns = [
        text("Limit"),
        number("Half of clients"),
        number("99\u{a0}%"),
        number("99.9\u{a0}%"),
        number("All"),
        number("Present"),
        number("Exceeded by"),
        number("Suggested"),
        number("Exceeded by"),
    ];
    let row = |of: &SlotsSuggestion| {
        let exceeded = |clients: u64| html! { (grouped(clients)) " of " (counted(of.clients, "client")) };
        vec![
            cell(&of.name),
            cell(grouped(of.peaks.p50)),
            cell(grouped(of.peaks.p99)),
            cell(grouped(of.peaks.p99_9)),
            cell(grouped(of.peaks.max)),
            cell(grouped(of.current)),
            exceeded(of.current_exceeded_by),
            cell(of.suggested.map_or_else(|| "–".to_owned(), grouped)),
            exceeded(of.exceeded_by),
        ]
    };
    let rows: Vec<Vec<Markup>> = suggestions.iter().map(row).collect();
    let note = |name: &str, requests: u64, why: &str| {
        html! {
            @if requests > 0 { li { "limit " (name) ": " (counted(requests, "request")) " left out, since " (why) } }
        }
    };
    html! {
        (table("Most requests of a client in flight at once", &columns, &rows))
        @if suggestions.iter().any(|of| of.without_duration + of.left_out > 0) {
            ul.warnings {
                @for of in suggestions {
                    (note(&of.name, of.without_duration, "the logs do not have how long they took"))
                    (note(&of.name, of.left_out, "there are too many keys"))
                }
            }
        }
    }
}
