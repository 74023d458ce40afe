//! Explains how an upstream admits a request: with `overload` its class, and the key by which it takes turns; and the bound of
//! the tunnels of its client.

use std::num::NonZeroUsize;

use crate::cli::describe;
use crate::cli::explain::explained::TextRows;
use crate::gate::{Gate, Subject};
use crate::http1::names::UPGRADE;
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
    for turns in fair_keys(rule, subject) {
        rows.row("turns", turns);
    }
}

/// Explains the bound of open tunnels, if the request asks for one.
pub(super) fn explain_tunnels(
    rows: &mut TextRows,
    rule: Option<&AdmissionRule>,
    max: Option<NonZeroUsize>,
    subject: &Subject<'_>,
) {
    let Some(max) = max.filter(|_| subject.head.fields.contains(UPGRADE)) else { return };
    let keys: Vec<String> = rule.into_iter().flat_map(|rule| fair_keys(rule, subject)).collect();
    let by = if keys.is_empty() { format!("by client_ip = {}", subject.client) } else { keys.join(", ") };
    rows.row("tunnels", format!("at most {max} of this client at once, {by} (`max_tunnels_per_client`)"));
}

/// The key by which a request takes turns.
fn fair_keys<'s>(rule: &'s AdmissionRule, subject: &'s Subject<'_>) -> impl Iterator<Item = String> + 's {
    rule.fair_by.parts.iter().map(|part| match part.value_or_recorded(subject).one() {
        Some(value) => format!("by {part} = {}", String::from_utf8_lossy(&value)),
        None => format!("by client_ip = {}, since the request has no {part}", subject.client),
    })
}
