//! The keys of `cost` as a table, and of files of prices.

use super::limit_keys::MAX_UNITS;
use crate::config::keys::keys;
use crate::config::keys::kinds::{Decimal, Either, Integer, Text};

/// Units.
pub(super) type Units = Integer<1, MAX_UNITS>;
/// Units for a token, as a number or as a string.
type WeightKind = Either<Decimal<0, 1_000_000>, Text>;

keys! {
    /// The keys of `cost` as a table.
    CostKeys {
        /// What a request takes when it arrives: a number, `"header:NAME"`, a number in the JSON body of the request
        /// (`"body:/POINTER"`), or an array of these, which is their sum. At least 1, and at most the capacity
        reserve: Either<Units, Either<Text, List<Either<Units, Text>>>>;
        /// What the request has cost in the end: `"header:NAME"` or `"trailer:NAME"` of the response, a number in its JSON
        /// (`"json:/POINTER"`), `"response_bytes"`, `"request_bytes"` or `"seconds"`
        settle: Text;
        /// Units for each token of a language model, such as `{ input = 1, output = 4 }`
        llm: KeyTable<WeightKeys>;
    }
    mistaken IN_COST
}

keys! {
    /// The keys of `llm`.
    WeightKeys {
        /// Units for a token of input, with up to three decimals
        input: WeightKind = 0;
        /// Units for a token of input from a cache, in place of `input`
        cached_input: WeightKind, or "that of `input`";
        /// Units for a token of input that is written to a cache, in place of `input`
        cache_write: WeightKind, or "that of `input`";
        /// Units for a token of output
        output: WeightKind = 0;
        /// Units for a token of reasoning, in addition to `output`
        reasoning: WeightKind = 0;
    }
    mistaken IN_WEIGHTS
}

keys! {
    /// The keys of a file of prices.
    PricesKeys {
        /// The prices of models that no pattern matches
        default: KeyTable<PriceKeys>;
        /// The prices of models by patterns of their names, with `*` for any text; the first pattern that matches counts
        models: NamedTable<KeyTable<PriceKeys>>;
    }
    mistaken IN_PRICES
}

keys! {
    /// The keys of a model in a file of prices.
    PriceKeys {
        /// Units for a token of input, with up to nine decimals
        input: WeightKind, required 2.5;
        /// Units for a token of input from a cache, in place of `input`
        cached_input: WeightKind, or "that of `input`";
        /// Units for a token of input that is written to a cache, in place of `input`
        cache_write: WeightKind, or "that of `input`";
        /// Units for a token of output
        output: WeightKind, required 10;
        /// Units for a token of reasoning, in addition to `output`
        reasoning: WeightKind = 0;
    }
    mistaken IN_WEIGHTS
}
