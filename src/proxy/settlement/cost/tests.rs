//! What responses cost.

use std::time::Duration;

use super::*;
use crate::gate::BodyLength;
use crate::usage::{Dialect, EstimateRules, ModelPattern, Prices};

fn cost(basis: CostBasis) -> SettledCost {
    SettledCost {
        basis,
        max_reserve: 1_000,
        max: 100_000,
        read_body: 1 << 20,
        keeps_header: false,
        stops_streams: false,
        finish_abandoned: Duration::ZERO,
    }
}

fn settled_by(settle: CostSource) -> SettledCost {
    cost(CostBasis::Parts { reserve: Box::default(), settle })
}

fn llm(stream_usage: StreamUsage) -> SettledCost {
    let prices = Arc::new(Prices::uniform(LlmCost::tokens()));
    cost(CostBasis::Llm(LlmCost { prices, estimate: EstimateRules::default(), stream_usage }))
}

fn request(has_body: bool) -> SettledRequest {
    let length = if has_body { BodyLength::Exact(400) } else { BodyLength::None };
    let mut usage = RequestUsage::default();
    usage.length = length;
    SettledRequest { started: Stopwatch::start(), is_head: false, usage: Arc::new(usage) }
}

fn seen(end: End, observed: &Observed, is_stream: bool) -> Seen<'_> {
    Seen { end, observed: Ok(observed), is_stream, bytes: 77, trailers: None }
}

#[test]
fn a_header_is_one_number() {
    let name = HeaderName::from_static("x-cost");
    let units = |values: &[&'static str]| {
        let fields: Fields = values.iter().map(|value| ("x-cost", *value)).collect();
        header_units(&fields, &name)
    };
    assert_eq!((units(&["7"]), units(&["0"]), units(&["7", "007"])), (Ok(7), Ok(0), Ok(7)));
    assert_eq!(units(&[]), Err(Unknown::Absent));
    for malformed in [&["7", "8"][..], &["7, 7"], &["-1"], &["+1"], &["1.5"], &["1e3"], &[""], &["x"]] {
        assert_eq!(units(malformed), Err(Unknown::Malformed), "{malformed:?}");
    }
}

#[test]
fn a_trailer_is_needed_at_the_end_alone() {
    let by_trailer = settled_by(CostSource::Trailer(HeaderName::from_static("x-cost")));
    let (observed, request) = (Observed::default(), request(true));
    let trailers: HeaderMap =
        [(HeaderName::from_static("x-cost"), "12".parse().unwrap())].into_iter().collect();
    let none = HeaderMap::new();
    let with =
        |end, trailers| units(&by_trailer, 0, &request, &Seen { trailers, ..seen(end, &observed, false) });
    assert_eq!(with(End::Whole, Some(&trailers)), Ok(Some(12)));
    assert_eq!(with(End::Whole, Some(&none)), Err(Unknown::Absent));
    assert_eq!((with(End::Whole, None), with(End::Early, None)), (Err(Unknown::Absent), Ok(None)));
}

#[test]
fn bytes_are_those_so_far_and_seconds_are_rounded_up() {
    let observed = Observed::default();
    for end in [End::Whole, End::Early] {
        let by = |source| units(&settled_by(source), 0, &request(true), &seen(end, &observed, false));
        assert_eq!(by(CostSource::ResponseBytes), Ok(Some(77)));
        assert_eq!(by(CostSource::RequestBytes), Ok(Some(0)));
        // The cached time may not have passed.
        assert!(matches!(by(CostSource::Seconds), Ok(Some(0..=60))));
    }
}

#[test]
fn a_number_in_the_body_is_that_of_a_whole_document_or_of_the_last_event() {
    let by_pointer = settled_by(CostSource::Json("/cost".into()));
    let of = |value, is_whole, end, is_stream, has_body| {
        let observed = Observed { values: vec![value], is_whole, ..Observed::default() };
        units(&by_pointer, 0, &request(has_body), &seen(end, &observed, is_stream))
    };
    let number = Value::Number(9);
    assert_eq!(of(number, true, End::Whole, false, true), Ok(Some(9)));
    assert_eq!(of(number, false, End::Whole, false, true), Err(Unknown::Malformed));
    assert_eq!(of(number, false, End::Early, false, true), Ok(None));
    assert_eq!(of(number, false, End::Early, true, true), Ok(Some(9)));
    assert_eq!(of(Value::Absent, true, End::Whole, false, true), Err(Unknown::Absent));
    assert_eq!(of(Value::Absent, true, End::Whole, false, false), Ok(Some(0)));
    assert_eq!(of(Value::Invalid, true, End::Whole, false, false), Err(Unknown::Malformed));
    assert_eq!(of(Value::Absent, false, End::Early, true, true), Ok(None));
}

#[test]
fn tokens_are_those_reported_or_counted_in_a_stream() {
    let reported = Some(Tokens { input: 11, output: 5, ..Tokens::default() });
    let of = |observed: &Observed, end, is_stream, usage| {
        units(&llm(usage), 0, &request(true), &seen(end, observed, is_stream))
    };
    let base = Observed { is_whole: true, ..Observed::default() };
    let whole = Observed { tokens: reported, counted_output: 90, ..base.clone() };
    let count = StreamUsage::Count;
    // What is reported at the end is the truth, whatever was counted.
    assert_eq!(of(&whole, End::Whole, true, count), Ok(Some(16)));
    assert_eq!(of(&whole, End::Whole, false, count), Ok(Some(16)));
    // An early end: the greater output of both, and nothing for a body that is no stream.
    assert_eq!(of(&whole, End::Early, true, count), Ok(Some(101)));
    let cut = Observed { is_whole: false, ..whole.clone() };
    assert_eq!(of(&cut, End::Early, false, count), Ok(None));
    assert_eq!(of(&cut, End::Whole, false, count), Err(Unknown::Malformed));
    // Without usage: the estimate of the input, 400 bytes, and what was counted.
    let counted = Observed { counted_output: 90, dialect: Some(Dialect::OpenAiChat), ..base.clone() };
    assert_eq!(of(&counted, End::Whole, true, count), Ok(Some(190)));
    assert_eq!(of(&counted, End::Early, true, count), Ok(Some(190)));
    assert_eq!(of(&counted, End::Whole, true, StreamUsage::Require), Err(Unknown::Absent));
    // A stream of something else keeps its estimate.
    assert_eq!(of(&base, End::Whole, true, count), Err(Unknown::Absent));
    assert_eq!(of(&base, End::Early, true, count), Ok(None));
    assert_eq!(of(&base, End::Whole, false, count), Err(Unknown::Absent));
}

#[test]
fn a_request_without_a_body_that_generates_nothing_costs_nothing() {
    let observed = Observed { is_whole: true, ..Observed::default() };
    let count = llm(StreamUsage::Count);
    assert_eq!(units(&count, 0, &request(false), &seen(End::Whole, &observed, false)), Ok(Some(0)));
}

#[test]
fn a_body_that_can_not_be_read_has_an_unknown_cost() {
    let unread =
        |end| Seen { end, observed: Err(Unknown::Encoding), is_stream: false, bytes: 0, trailers: None };
    for cost in [llm(StreamUsage::Count), settled_by(CostSource::Json("/cost".into()))] {
        assert_eq!(units(&cost, 0, &request(true), &unread(End::Whole)), Err(Unknown::Encoding));
        assert_eq!(units(&cost, 0, &request(true), &unread(End::Early)), Ok(None));
    }
}

#[test]
fn usage_without_tokens_has_its_reason() {
    let of = |unknown, end, has_body| {
        let observed = Observed { is_whole: true, unknown: Some(unknown), ..Observed::default() };
        units(&llm(StreamUsage::Count), 0, &request(has_body), &seen(end, &observed, false))
    };
    // A transcription that is paid by its duration.
    for has_body in [true, false] {
        assert_eq!(of(Unknown::Type, End::Whole, has_body), Err(Unknown::Type));
        assert_eq!(of(Unknown::Malformed, End::Whole, has_body), Err(Unknown::Malformed));
        assert_eq!(of(Unknown::Type, End::Early, has_body), Ok(None));
    }
    assert_eq!(of(Unknown::Absent, End::Whole, false), Ok(Some(0)));
    let stream = Observed {
        is_whole: true,
        unknown: Some(Unknown::Type),
        dialect: Some(Dialect::OpenAiChat),
        counted_output: 5,
        ..Observed::default()
    };
    let of_stream = units(&llm(StreamUsage::Count), 0, &request(true), &seen(End::Whole, &stream, true));
    assert_eq!(of_stream, Err(Unknown::Type));
}

#[test]
fn a_model_without_a_price_is_noticed() {
    let pattern = ModelPattern::parse("known*").unwrap();
    let prices = Arc::new(Prices::new(vec![(pattern, LlmCost::tokens())], LlmCost::tokens()));
    let (estimate, stream_usage) = (EstimateRules::default(), StreamUsage::Count);
    let by_model = cost(CostBasis::Llm(LlmCost { prices, estimate, stream_usage }));
    for (model, is_unknown) in [(Some("known-1"), false), (Some("other"), true), (None, false)] {
        let observed = Observed { model: model.map(Into::into), ..Observed::default() };
        let seen = seen(End::Whole, &observed, false);
        assert_eq!(has_unknown_model(&by_model, &seen), is_unknown, "{model:?}");
        assert!(!has_unknown_model(&llm(StreamUsage::Count), &seen), "a price for all models");
    }
}
