//! Explains how an upstream with `overload` admits a request: its class, and the key by which it takes turns.

use crate::cli::describe;
use crate::cli::explain::explained::TextRows;
use crate::gate::{Gate, Subject};
use crate::overload::{LimitSpec, Mode, OverloadSpec};
use crate::proxy::AdmissionRule;

/// Explains the limit, the class and the fair key.
pub(super) fn explain(
    rows: &mut TextRows,
    gate: &Gate,
    (rule, spec): (&AdmissionRule, &OverloadSpec),
    subject: &Subject<'_>,
) {
    let limit = match spec.limit {
        LimitSpec::Fixed(limit) => format!("a limit of {limit} requests in flight"),
        LimitSpec::Adaptive { min, max } => {
            format!("a learned limit of requests in flight, from {min} to {max}")
        }
    };
    let mode = if spec.mode == Mode::Shadow { ", which refuses none (`mode = \"shadow\"`)" } else { "" };
    rows.row("overload", format!("{limit}{mode}"));
    rows.row("class", describe::class(gate, subject));
    for part in &rule.fair_by.parts {
        let turns = match part.value_or_recorded(subject).one() {
            Some(value) => format!("by {part} = {}", String::from_utf8_lossy(&value)),
            None => format!("by client_ip = {}, since the request has no {part}", subject.client),
        };
        rows.row("turns", turns);
    }
}
