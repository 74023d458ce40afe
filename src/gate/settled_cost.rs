//! Costs that are estimated when a request arrives, and settled by its response.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;

use super::json_pointer::JsonPointer;
use crate::http1::parse_decimal;
use crate::usage::{EstimateRules, Prices, Unknown, Weight, Weights};

/// A cost that a request reserves when it arrives, and that its response settles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledCost {
    /// What is reserved, and what is charged at the end.
    pub basis: CostBasis,
    /// The most that a request reserves: the least capacity of the limit, its tiers and its overrides.
    pub max_reserve: u64,
    /// The most that a settled cost can be (`cost_max`).
    pub max: u64,
    /// The longest body that is read for an estimate, in bytes (`read_body`).
    pub read_body: u64,
    /// Whether a header or trailer that the cost is read from goes to the client (`keep_cost_header`).
    pub keeps_header: bool,
    /// Whether a stream ends when the units are used up (`stop_streams`).
    pub stops_streams: bool,
    /// How long a response is read on whose client has gone (`finish_abandoned`).
    pub finish_abandoned: Duration,
}

/// What is reserved for a request, and what it is charged at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostBasis {
    /// `{ reserve = …, settle = … }`.
    Parts {
        /// The sum of these is reserved.
        reserve: Box<[ReserveTerm]>,
        /// What is charged.
        settle: CostSource,
    },
    /// `"llm_tokens"`, `{ llm = … }` or `prices`: tokens of a language model.
    Llm(LlmCost),
}

/// A part of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveTerm {
    /// A number of units.
    Units(u64),
    /// The number in a header of a trusted peer.
    Header(HeaderName),
    /// A number in the JSON body of the request.
    Body(JsonPointer),
}

/// Where the cost of a response is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// A header of the response.
    Header(HeaderName),
    /// A trailer of the response.
    Trailer(HeaderName),
    /// A number in the JSON response, or in the last event that has it (RFC 6901).
    Json(Box<str>),
    /// The bytes of the response body, as sent.
    ResponseBytes,
    /// The bytes of the request body, as sent.
    RequestBytes,
    /// The seconds from the head of the request to the last byte of the upstream, rounded up.
    Seconds,
}

/// The tokens of a language model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmCost {
    /// The units of tokens.
    pub prices: Arc<Prices>,
    /// How requests are estimated.
    pub estimate: EstimateRules,
    /// How streams get their usage.
    pub stream_usage: StreamUsage,
}

/// What a streaming request needs so that its response reports its usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUsage {
    /// Nothing: without usage, output is counted.
    #[default]
    Count,
    /// A request that does not ask for the usage is rejected.
    Require,
    /// The request for usage is added.
    Add,
}

impl fmt::Display for ReserveTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(units) => units.fmt(f),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
        }
    }
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Trailer(name) => write!(f, "trailer:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::ResponseBytes => f.write_str("response_bytes"),
            Self::RequestBytes => f.write_str("request_bytes"),
            Self::Seconds => f.write_str("seconds"),
        }
    }
}

impl CostSource {
    /// The cost in a header or trailer with these values, which have to be the same number.
    ///
    /// # Errors
    /// If there is none, several that differ, or something else.
    pub fn number<'v>(values: impl Iterator<Item = &'v [u8]>) -> Result<u64, Unknown> {
        let mut found = None;
        for value in values {
            let number = parse_decimal(value).ok_or(Unknown::Malformed)?;
            if found.is_some_and(|earlier| earlier != number) {
                return Err(Unknown::Malformed);
            }
            found = Some(number);
        }
        found.ok_or(Unknown::Absent)
    }
}

impl LlmCost {
    /// The weights of `llm_tokens`: a unit for each token.
    #[must_use]
    pub fn tokens() -> Weights {
        let (one, none) = (Weight::ONE, Weight::default());
        Weights { input: one, cached_input: one, cache_write: one, output: one, reasoning: none }
    }

    /// The form in which the configuration has it: `llm_tokens`, `llm` or `prices`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.prices.depend_on_model() {
            "prices"
        } else if *self.prices == Prices::uniform(Self::tokens()) {
            "llm_tokens"
        } else {
            "llm"
        }
    }
}

impl CostBasis {
    /// Whether it is that of tokens of a language model.
    #[must_use]
    pub fn is_llm(&self) -> bool {
        matches!(self, Self::Llm(_))
    }

    /// Whether the cost grows while the response is silent.
    #[must_use]
    pub fn grows_by_time(&self) -> bool {
        matches!(self, Self::Parts { settle: CostSource::Seconds, .. })
    }

    /// Whether the cost is read from the body of the response.
    #[must_use]
    pub fn reads_response(&self) -> bool {
        matches!(self, Self::Llm(_) | Self::Parts { settle: CostSource::Json(_), .. })
    }

    /// Whether the reservation is read from the body of the request.
    #[must_use]
    pub fn reads_request(&self) -> bool {
        match self {
            Self::Llm(_) => true,
            Self::Parts { reserve, .. } => reserve.iter().any(|term| matches!(term, ReserveTerm::Body(_))),
        }
    }
}

impl SettledCost {
    /// The headers of a request from which a reservation is read.
    pub fn request_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let terms: &[ReserveTerm] = match &self.basis {
            CostBasis::Parts { reserve, .. } => reserve,
            CostBasis::Llm(_) => &[],
        };
        terms.iter().filter_map(|term| if let ReserveTerm::Header(name) = term { Some(name) } else { None })
    }
}
