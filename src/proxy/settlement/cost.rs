//! What a response has cost, from what was seen of it.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::gate::{BodyFields, CostBasis, CostSource, LlmCost, RequestUsage, SettledCost, StreamUsage};
use crate::http1::{Fields, RequestHead};
use crate::time::Stopwatch;
use crate::usage::{Observed, Tokens, Unknown, Value};

/// What is known of a request whose response settles limits.
#[derive(Debug)]
pub(in crate::proxy) struct SettledRequest {
    /// Since the head of the request arrived.
    pub started: Stopwatch,
    /// Whether it is a HEAD request.
    pub is_head: bool,
    /// What it says about its cost.
    pub usage: Arc<RequestUsage>,
}

impl SettledRequest {
    /// The request with this head, and what was read of its body.
    pub fn new(head: &RequestHead, body: Option<&BodyFields>, started: Stopwatch, is_head: bool) -> Self {
        let usage = body.and_then(BodyFields::usage).cloned();
        let usage = usage.unwrap_or_else(|| Arc::new(RequestUsage::of_head(head, 0)));
        Self { started, is_head, usage }
    }
}

/// How a response has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is complete.
    Whole,
    /// The client, the server or the proxy has ended it before.
    Early,
}

/// What was seen of a response.
pub(super) struct Seen<'a> {
    pub end: End,
    /// What its body says; why nothing can be read in it.
    pub observed: Result<&'a Observed, Unknown>,
    /// Whether its body is a stream of events.
    pub is_stream: bool,
    /// The bytes of its body that have been passed on.
    pub bytes: u64,
    pub trailers: Option<&'a HeaderMap>,
}

/// The units that a request is charged: none if its reservation stays, as for a body that is no stream and has ended early.
///
/// # Errors
/// Why the cost of a complete response is unknown.
pub(super) fn units(
    cost: &SettledCost,
    pointer: usize,
    request: &SettledRequest,
    seen: &Seen<'_>,
) -> Result<Option<u64>, Unknown> {
    let source = match &cost.basis {
        CostBasis::Llm(llm) => return llm_units(llm, request, seen),
        CostBasis::Parts { settle, .. } => settle,
    };
    match source {
        CostSource::Trailer(name) => trailer_units(name, seen),
        CostSource::Json(_) => json_units(pointer, request, seen),
        CostSource::ResponseBytes => Ok(Some(seen.bytes)),
        CostSource::RequestBytes => Ok(Some(request.usage.received.get())),
        CostSource::Seconds => Ok(Some(request.started.elapsed().0.div_ceil(1_000_000_000))),
        // Known since the head of the response.
        CostSource::Header(_) => Ok(None),
    }
}

/// The number in a header of a response.
///
/// # Errors
/// If there is none, several that differ, or something else.
pub(super) fn header_units(fields: &Fields, name: &HeaderName) -> Result<u64, Unknown> {
    CostSource::number(fields.get_all(name))
}

/// Whether the cost is measured rather than told by the server.
pub(super) fn is_measured(cost: &SettledCost) -> bool {
    let CostBasis::Parts { settle, .. } = &cost.basis else { return false };
    matches!(settle, CostSource::ResponseBytes | CostSource::RequestBytes | CostSource::Seconds)
}

/// The pointer to the cost in the body of the response.
pub(super) fn pointer(cost: &SettledCost) -> Option<&str> {
    match &cost.basis {
        CostBasis::Parts { settle: CostSource::Json(pointer), .. } => Some(pointer),
        _ => None,
    }
}

fn trailer_units(name: &HeaderName, seen: &Seen<'_>) -> Result<Option<u64>, Unknown> {
    let values = seen.trailers.map(|trailers| trailers.get_all(name));
    let values = values.into_iter().flatten().map(HeaderValue::as_bytes);
    match (CostSource::number(values), seen.end) {
        (Ok(units), _) => Ok(Some(units)),
        (Err(_), End::Early) => Ok(None),
        (Err(unknown), End::Whole) => Err(unknown),
    }
}

fn json_units(pointer: usize, request: &SettledRequest, seen: &Seen<'_>) -> Result<Option<u64>, Unknown> {
    let observed = match (seen.observed, seen.end) {
        (Ok(observed), _) => observed,
        (Err(_), End::Early) => return Ok(None),
        (Err(unknown), End::Whole) => return Err(unknown),
    };
    let value = observed.values.get(pointer).copied().unwrap_or_default();
    match (value, seen.end) {
        // Of a document that was cut, and of a later event, the number may be another one.
        (Value::Number(units), _) if seen.is_stream || observed.is_whole => Ok(Some(units)),
        (_, End::Early) => Ok(None),
        (Value::Absent, End::Whole) if observed.is_whole && !request.usage.has_body() => Ok(Some(0)),
        (Value::Absent, End::Whole) if observed.is_whole => Err(Unknown::Absent),
        _ => Err(Unknown::Malformed),
    }
}

fn llm_units(cost: &LlmCost, request: &SettledRequest, seen: &Seen<'_>) -> Result<Option<u64>, Unknown> {
    let observed = match (seen.observed, seen.end) {
        (Ok(observed), _) => observed,
        (Err(_), End::Early) => return Ok(None),
        (Err(unknown), End::Whole) => return Err(unknown),
    };
    let is_over = seen.end == End::Whole && observed.is_whole;
    let tokens = match observed.tokens {
        Some(tokens) if is_over => tokens,
        // It is paid by its duration, whatever its text.
        None if is_over && observed.unknown == Some(Unknown::Type) => return Err(Unknown::Type),
        _ if seen.is_stream && (observed.tokens.is_some() || observed.dialect.is_some()) => {
            // A server that stops in between reports what it has counted so far, or nothing.
            if is_over && cost.stream_usage == StreamUsage::Require {
                return Err(Unknown::Absent);
            }
            counted(cost, request, observed)
        }
        _ if seen.end == End::Early => return Ok(None),
        None if observed.is_whole => match observed.unknown.unwrap_or(Unknown::Absent) {
            Unknown::Absent if !request.usage.has_body() => Tokens::default(),
            unknown => return Err(unknown),
        },
        _ => return Err(Unknown::Malformed),
    };
    let named = observed.model.as_deref();
    let weights = match named {
        Some(model) => cost.prices.of(Some(model)).0,
        None => cost.prices.greatest(request.usage.model()),
    };
    Ok(Some(weights.units(&tokens)))
}

/// Whether no price is for the model that a response names, so that it has the default prices.
pub(super) fn has_unknown_model(cost: &SettledCost, seen: &Seen<'_>) -> bool {
    let (CostBasis::Llm(llm), Ok(observed)) = (&cost.basis, seen.observed) else { return false };
    observed.model.is_some() && !llm.prices.of(observed.model.as_deref()).1
}

/// The tokens of a stream that has not reported all of its usage: of the output the greater of what it has reported and what was
/// counted in the text, and of the input what it has reported, or the estimate.
fn counted(cost: &LlmCost, request: &SettledRequest, observed: &Observed) -> Tokens {
    let estimate = || Tokens { output: 0, ..request.usage.final_estimate(&cost.estimate) };
    let mut tokens = observed.tokens.unwrap_or_else(estimate);
    tokens.output = tokens.output.max(observed.counted_output);
    tokens
}

#[cfg(test)]
mod tests;
