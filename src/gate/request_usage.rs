//! What a request says about its cost: read once for all of its limits, and needed again when its response settles them.

use super::json_pointer::JsonPointer;
use crate::body::ByteCount;
use crate::http1::names::{CONTENT_LENGTH, TRANSFER_ENCODING};
use crate::http1::{RequestHead, parse_decimal_saturating};
use crate::usage::{EstimateRules, RequestFacts, Tokens};

/// What the head and the body of a request say about its cost. It is handed on to the response: a stream that does not report its
/// usage is charged the estimate of the input, and a response that names no model has the price of the model that the request names.
#[derive(Clone, Debug, Default)]
pub struct RequestUsage {
    /// What the JSON body says; none without a body, and for one that was not read or is no JSON object.
    pub facts: Option<RequestFacts>,
    /// The length of the body, as far as it was known before the limits were decided.
    pub length: BodyLength,
    /// How many bytes of the body have arrived since the request was forwarded: all of them once it has passed.
    pub received: ByteCount,
    /// The greatest number at each pointer of the body.
    pub(super) numbers: Vec<(JsonPointer, u64)>,
}

/// The length of the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// The request has no body.
    #[default]
    None,
    /// So many bytes.
    Exact(u64),
    /// A body without Content-Length that was not read to its end. So many bytes are assumed.
    Assumed(u64),
}

impl RequestUsage {
    /// What the head of a request says whose body is not read. A body without Content-Length is assumed to have `assumed` bytes.
    #[must_use]
    pub fn of_head(head: &RequestHead, assumed: u64) -> Self {
        let length = match head.fields.get_str(CONTENT_LENGTH) {
            Some(length) => {
                parse_decimal_saturating(length.as_bytes()).map_or(BodyLength::None, BodyLength::of)
            }
            None if head.fields.contains(TRANSFER_ENCODING) => BodyLength::Assumed(assumed),
            None => BodyLength::None,
        };
        Self { length, ..Self::default() }
    }

    /// What a request says whose body of this length is not read.
    #[must_use]
    pub fn of_length(bytes: u64) -> Self {
        Self { length: BodyLength::of(bytes), ..Self::default() }
    }

    /// Whether the request has a body.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.length != BodyLength::None
    }

    /// The model that the request names.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.facts.as_ref()?.model.as_deref()
    }

    /// The tokens that the request may use, as they are estimated before its limits are decided: none without a body.
    #[must_use]
    pub fn estimate_tokens(&self, rules: &EstimateRules) -> Tokens {
        match (&self.facts, self.length) {
            (Some(facts), _) => facts.estimate(rules),
            (None, BodyLength::None) => Tokens::default(),
            (None, BodyLength::Exact(bytes) | BodyLength::Assumed(bytes)) => {
                RequestFacts::by_length(bytes, rules)
            }
        }
    }

    /// [`Self::estimate_tokens`] once the body has passed: by its true length, if that was only assumed before.
    #[must_use]
    pub fn final_estimate(&self, rules: &EstimateRules) -> Tokens {
        match (&self.facts, self.length) {
            (None, BodyLength::Assumed(_)) => RequestFacts::by_length(self.received.get(), rules),
            _ => self.estimate_tokens(rules),
        }
    }

    /// Records that the request was made to ask for its usage, if that was possible.
    pub fn set_stream_usage(&mut self, is_added: bool) {
        if let (Some(facts), true) = (&mut self.facts, is_added) {
            facts.include_usage = Some(true);
        }
    }

    /// The number in the body to which this pointer leads.
    pub(super) fn number(&self, pointer: &JsonPointer) -> Option<u64> {
        self.numbers.iter().find(|(known, _)| known == pointer).map(|(_, number)| *number)
    }
}

impl BodyLength {
    /// The length of a body whose Content-Length is known.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        if bytes == 0 { Self::None } else { Self::Exact(bytes) }
    }
}
