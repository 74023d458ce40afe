//! The keys of a limit that belong to some forms of its cost.

use super::limit_keys::LimitKeys;
use crate::config::table::Table;
use crate::gate::{CostBasis, CostSource};

/// A key that belongs to some of these costs: whether it belongs to one, what it is for, and how to make use of it.
type KeyBeside = (&'static str, fn(&CostBasis) -> bool, &'static str, &'static str);

const OF_LLM: &str = "is for the tokens of language models, and this limit has another cost";
const MAKE_LLM: &str = "write cost = \"llm_tokens\"";
const KEYS: [KeyBeside; 9] = [
    (
        "read_body",
        CostBasis::reads_request,
        "bounds the body that is read for the cost of a request, and this cost needs none",
        "write cost = \"llm_tokens\", or `reserve` with \"body:/POINTER\"",
    ),
    (
        "keep_cost_header",
        is_in_field,
        "is for a cost in a header or a trailer of the response, and this limit has another cost",
        "write cost = { reserve = 1, settle = \"header:x-cost\" }",
    ),
    (
        "stop_streams",
        grows,
        "ends a response whose cost grows while it is sent, and this cost does not",
        MAKE_LLM,
    ),
    (
        "finish_abandoned",
        is_at_end,
        "reads a response to its end for its cost, and this cost is not there",
        MAKE_LLM,
    ),
    ("stream_usage", CostBasis::is_llm, OF_LLM, MAKE_LLM),
    ("estimate", CostBasis::is_llm, OF_LLM, MAKE_LLM),
    ("default_output", CostBasis::is_llm, OF_LLM, MAKE_LLM),
    ("bytes_per_token", CostBasis::is_llm, OF_LLM, MAKE_LLM),
    ("default_media", CostBasis::is_llm, OF_LLM, MAKE_LLM),
];

fn is_in_field(basis: &CostBasis) -> bool {
    matches!(basis, CostBasis::Parts { settle: CostSource::Header(_) | CostSource::Trailer(_), .. })
}

fn grows(basis: &CostBasis) -> bool {
    matches!(
        basis,
        CostBasis::Llm(_)
            | CostBasis::Parts {
                settle: CostSource::Json(_) | CostSource::ResponseBytes | CostSource::Seconds,
                ..
            }
    )
}

fn is_at_end(basis: &CostBasis) -> bool {
    matches!(
        basis,
        CostBasis::Llm(_) | CostBasis::Parts { settle: CostSource::Json(_) | CostSource::Trailer(_), .. }
    )
}

/// Rejects the keys of the limit that do not belong to its cost, which is none of those here if there is no `basis`. Returns whether
/// there are none.
pub(super) fn reject(table: &Table<'_, LimitKeys>, basis: Option<&CostBasis>) -> bool {
    let mut is_valid = true;
    for (key, applies, what, cure) in KEYS {
        if let Some(item) = table.given(key).filter(|_| !basis.is_some_and(applies)) {
            let problem = item.error(format!("`{key}` {what}"));
            item.reader.report(problem.help(format!("leave it out, or {cure}")));
            is_valid = false;
        }
    }
    if basis.is_none() {
        read_values(table);
    }
    is_valid
}

/// Reads the values of all keys, so that their mistakes show as well.
fn read_values(table: &Table<'_, LimitKeys>) {
    let _ = (table.read_body().read(), table.keep_cost_header().read(), table.stop_streams().read());
    let _ = (table.finish_abandoned().read(), table.stream_usage().read(), table.estimate().read());
    let _ = (table.default_output().read(), table.bytes_per_token().read(), table.default_media().read());
}
