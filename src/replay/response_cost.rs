//! What a request has reserved of limits that settle costs, and what its response has cost, as far as a log tells.
//!
//! tidegate's own log has the units of each limit. Other logs may have tokens of a language model, from which the units follow by the
//! weights or prices of the limit; and the bytes and the duration of the response.

use super::entry::LoggedRequest;
use crate::gate::{Cost, CostBasis, CostSource, Gate, LlmCost, SettledCost};
use crate::limit::PolicyId;
use crate::time::Micros;
use crate::usage::{RequestFacts, Tokens};

/// Fields of tokens of input.
const INPUT: [&str; 4] = ["prompt_tokens", "input_tokens", "usage.prompt_tokens", "usage.input_tokens"];
/// Fields of tokens of output.
const OUTPUT: [&str; 4] =
    ["completion_tokens", "output_tokens", "usage.completion_tokens", "usage.output_tokens"];
/// Fields of the most tokens of output that a request asks for.
const MAX_OUTPUT: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
/// The field of the model.
const MODEL: [&str; 1] = ["model"];
/// The objects of tidegate's own log with the units of each limit: those that were charged, and those that were reserved.
const OWN: [&str; 2] = ["cost", "reserved"];
/// Of how many limits the units in tidegate's own log are read: a line has a bounded number of fields.
const MOST_OWN: usize = 8;

/// What is known of the cost of a response.
#[derive(Clone, Copy, Debug, Default)]
pub enum ResponseCost<'c> {
    /// Nothing.
    #[default]
    Unknown,
    /// It costs each limit that settles so many units.
    Units(u64),
    /// What a line of a log has.
    Logged(&'c LoggedRequest<'c>),
}

/// The units of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitCost {
    /// What the request has reserved, if the log tells more than the request itself.
    pub reserved: Option<u64>,
    /// What the response has cost.
    pub charged: Option<u64>,
}

/// The fields that readers must keep for limits that settle; none if there is no such limit.
pub(super) fn fields(gate: &Gate) -> Vec<String> {
    let settling = gate.limits().filter(|(_, policy)| policy.settles());
    let names: Vec<&str> = settling.map(|(_, policy)| &*policy.name).take(MOST_OWN).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let of_tokens = INPUT.iter().chain(&OUTPUT).chain(&MAX_OUTPUT).chain(&MODEL);
    let own = names.iter().flat_map(|name| OWN.map(|object| format!("{object}.{name}")));
    of_tokens.map(|field| (*field).to_owned()).chain(own).collect()
}

impl ResponseCost<'_> {
    /// What the response costs a limit of the configuration; none if that is not known, or the limit does not settle.
    #[must_use]
    pub fn charged(self, gate: &Gate, limit: PolicyId) -> Option<u64> {
        self.of(gate, limit).charged
    }

    /// The units of a limit of the configuration; nothing is known of one that does not settle.
    pub(super) fn of(self, gate: &Gate, limit: PolicyId) -> LimitCost {
        let Some(Cost::Settled(cost)) = gate.limit_rules.get(limit).map(|rule| &rule.cost) else {
            return LimitCost::default();
        };
        match self {
            Self::Unknown => LimitCost::default(),
            Self::Units(units) => LimitCost { reserved: None, charged: Some(units) },
            Self::Logged(entry) => {
                let name = &gate.limits.policies[limit].name;
                let [charged, reserved] = OWN.map(|object| number(entry, &[&format!("{object}.{name}")]));
                let other = by_source(cost, entry);
                LimitCost { reserved: reserved.or(other.reserved), charged: charged.or(other.charged) }
            }
        }
    }
}

/// The units by what the limit settles by.
fn by_source(cost: &SettledCost, entry: &LoggedRequest<'_>) -> LimitCost {
    match &cost.basis {
        CostBasis::Llm(llm) => by_tokens(cost, llm, entry),
        CostBasis::Parts { settle: CostSource::ResponseBytes, .. } => {
            LimitCost { reserved: None, charged: entry.bytes }
        }
        CostBasis::Parts { settle: CostSource::Seconds, .. } => {
            LimitCost { reserved: None, charged: entry.duration.map(Micros::ceil_secs) }
        }
        CostBasis::Parts { .. } => LimitCost::default(),
    }
}

/// The units of logged tokens. What was reserved is estimated as if the input had been estimated exactly.
fn by_tokens(cost: &SettledCost, llm: &LlmCost, entry: &LoggedRequest<'_>) -> LimitCost {
    let (input, output) = (number(entry, &INPUT), number(entry, &OUTPUT));
    if input.is_none() && output.is_none() {
        return LimitCost::default();
    }
    let (input, output) = (input.unwrap_or_default(), output.unwrap_or_default());
    let model = MODEL.iter().find_map(|field| str::from_utf8(entry.field(field)?).ok());
    let mut facts = RequestFacts::default();
    facts.max_output = number(entry, &MAX_OUTPUT);
    facts.token_ids = input;
    let reserved = llm.prices.greatest(model).units(&facts.estimate(&llm.estimate));
    let tokens = Tokens { input, output, ..Tokens::default() };
    LimitCost {
        reserved: Some(reserved.clamp(1, cost.max_reserve.max(1))),
        charged: Some(llm.prices.of(model).0.units(&tokens)),
    }
}

/// The number in the first of these fields that has one.
fn number(entry: &LoggedRequest<'_>, fields: &[&str]) -> Option<u64> {
    fields.iter().find_map(|field| str::from_utf8(entry.field(field)?).ok()?.parse().ok())
}
