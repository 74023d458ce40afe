//! What a request reserves for a cost that its response settles.

use super::body_fields::BodyFields;
use super::key_part;
use super::request_usage::RequestUsage;
use super::settled_cost::{CostBasis, LlmCost, ReserveTerm, SettledCost, StreamUsage};
use super::subject::Subject;
use crate::http1::parse_decimal_saturating;

/// Units that a request reserves when it arrives: at least one, and at most the capacity. Of a request whose body is not read
/// yet it is the least that it can be. `is_trusted` says whether the peer's headers count.
pub(super) fn units(cost: &SettledCost, subject: &Subject<'_>, is_trusted: impl Fn() -> bool) -> u64 {
    let units = match &cost.basis {
        CostBasis::Llm(llm) => subject.body.map_or(1, |body| of_tokens(llm, subject, body)),
        CostBasis::Parts { reserve, .. } => of_terms(reserve, subject, is_trusted),
    };
    units.clamp(1, cost.max_reserve.max(1))
}

fn of_tokens(llm: &LlmCost, subject: &Subject<'_>, body: &BodyFields) -> u64 {
    let units = |usage: &RequestUsage| {
        let weights = llm.prices.greatest(usage.model()).for_estimate();
        weights.units(&usage.estimate_tokens(&llm.estimate))
    };
    match body.usage() {
        Some(usage) => units(usage),
        None => units(&RequestUsage::of_head(subject.head, 0)),
    }
}

fn of_terms(terms: &[ReserveTerm], subject: &Subject<'_>, is_trusted: impl Fn() -> bool) -> u64 {
    let units = terms.iter().map(|term| match term {
        ReserveTerm::Units(units) => *units,
        ReserveTerm::Header(name) => {
            let value = key_part::header(subject.head, name).one().filter(|_| is_trusted());
            value.and_then(|digits| parse_decimal_saturating(&digits)).unwrap_or(0)
        }
        ReserveTerm::Body(pointer) => {
            subject.body.and_then(|body| body.usage()?.number(pointer)).unwrap_or(0)
        }
    });
    units.fold(0, u64::saturating_add)
}

/// Whether a request asks for a stream, and not for its usage, where that is required (`stream_usage = "require"`).
pub(super) fn lacks_stream_usage(cost: &SettledCost, body: &BodyFields) -> bool {
    let is_required = matches!(&cost.basis, CostBasis::Llm(llm) if llm.stream_usage == StreamUsage::Require);
    let facts = body.usage().and_then(|usage| usage.facts.as_ref()).filter(|_| is_required);
    facts.is_some_and(|facts| facts.is_stream && facts.include_usage != Some(true))
}
