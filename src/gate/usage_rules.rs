//! What the limits of a route read of the bodies of requests for costs that responses settle.

use super::body_fields::is_json;
use super::json_pointer::JsonPointer;
use super::request_usage::{BodyLength, RequestUsage};
use super::settled_cost::{CostBasis, LlmCost, ReserveTerm, SettledCost, StreamUsage};
use crate::body::ByteCount;
use crate::http1::{RequestHead, parse_decimal_saturating};
use crate::usage::RequestFacts;

/// A body without Content-Length that is not read is assumed to have this part of the most that is read.
const ASSUMED_PART: u64 = 4;

/// Headers of a request whose body must not be changed, because they depend on it: digests (RFC 9530, RFC 1864) and signatures
/// (RFC 9421, AWS).
const OF_UNCHANGED_BODY: [&[u8]; 7] = [
    b"content-digest",
    b"repr-digest",
    b"digest",
    b"content-md5",
    b"signature",
    b"signature-input",
    b"x-amz-content-sha256",
];

/// What the limits of a route read of the bodies of requests for their costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRules {
    /// The longest body that is read, in bytes.
    pub read_body: u64,
    /// The numbers that reservations name.
    pointers: Vec<JsonPointer>,
    /// Whether streaming requests are made to ask for their usage.
    adds_stream_usage: bool,
}

impl UsageRules {
    /// What limits with these costs read; none if they read no bodies.
    pub fn of<'c>(costs: impl Iterator<Item = &'c SettledCost>) -> Option<Self> {
        let mut rules = Self { read_body: 0, pointers: Vec::new(), adds_stream_usage: false };
        for cost in costs.filter(|cost| cost.basis.reads_request()) {
            rules.read_body = rules.read_body.max(cost.read_body);
            match &cost.basis {
                CostBasis::Llm(LlmCost { stream_usage, .. }) => {
                    rules.adds_stream_usage |= *stream_usage == StreamUsage::Add;
                }
                CostBasis::Parts { reserve, .. } => {
                    rules.pointers.extend(reserve.iter().filter_map(|term| {
                        if let ReserveTerm::Body(pointer) = term { Some(pointer.clone()) } else { None }
                    }));
                }
            }
        }
        (rules.read_body > 0).then_some(rules)
    }

    /// Whether the body of a request can be read, by its head.
    #[must_use]
    pub fn can_read(head: &RequestHead) -> bool {
        is_json(head)
    }

    /// What a request says whose body is not read.
    #[must_use]
    pub fn unread(&self, head: &RequestHead) -> RequestUsage {
        RequestUsage::of_head(head, self.read_body / ASSUMED_PART)
    }

    /// What a request says whose body is longer than what is read of it.
    #[must_use]
    pub fn too_long(&self, head: &RequestHead) -> RequestUsage {
        RequestUsage::of_head(head, self.read_body)
    }

    /// What a request with this body says.
    #[must_use]
    pub fn read(&self, head: &RequestHead, body: &[u8]) -> RequestUsage {
        let text = str::from_utf8(body).ok().filter(|_| is_json(head));
        let greatest = |pointer: &JsonPointer| {
            let values = pointer.values(text?).ok()?;
            let greatest = values.iter().filter_map(|value| number(value)).max()?;
            Some((pointer.clone(), greatest))
        };
        RequestUsage {
            facts: text.and_then(|text| RequestFacts::read(text.as_bytes())),
            length: BodyLength::of(body.len() as u64),
            received: ByteCount::default(),
            numbers: self.pointers.iter().filter_map(greatest).collect(),
        }
    }

    /// Whether a streaming request is made to ask for its usage: if it does not say whether it wants that, and nothing in its head
    /// depends on the body.
    #[must_use]
    pub fn adds_stream_usage(&self, head: &RequestHead, usage: &RequestUsage) -> bool {
        let lacks_it = |facts: &RequestFacts| facts.is_stream && facts.include_usage.is_none();
        self.adds_stream_usage
            && usage.facts.as_ref().is_some_and(lacks_it)
            && !head.fields.iter().any(|field| OF_UNCHANGED_BODY.contains(&field.name.as_bytes()))
    }
}

/// The whole number that a value is, at least that of one with a fraction; a greater one than can be counted is the greatest.
fn number(value: &str) -> Option<u64> {
    let (digits, is_exact) = match value.split_once('.') {
        Some((digits, fraction)) => (digits, fraction.bytes().all(|digit| digit == b'0')),
        None => (value, true),
    };
    let whole = parse_decimal_saturating(digits.as_bytes())?;
    Some(if is_exact { whole } else { whole.saturating_add(1) })
}
