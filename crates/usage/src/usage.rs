//! Token usage of language models.
//!
//! [`UsageReader`] reads a response while it passes, [`RequestFacts`] describes a request, [`Weights`] and [`Prices`] make units of
//! a limit from [`Tokens`], and [`stop_event`] is the event that ends a stream at its budget.

mod prices;
mod reader;
mod request;
mod stop;

pub use prices::{InvalidPattern, InvalidWeight, ModelPattern, Prices, Weight, Weights};
pub use reader::{Framing, Observed, Unknown, UsageReader, Value};
pub use request::{EstimateRules, Media, RequestFacts, with_stream_usage};
pub use stop::stop_event;

/// How many tokens of each kind a response has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens of the input, with those from and to a cache.
    pub input: u64,
    /// The part of `input` that was read from a cache.
    pub cached_input: u64,
    /// The part of `input` that was written to a cache.
    pub cache_write: u64,
    /// Tokens of the output, with those of the reasoning.
    pub output: u64,
    /// The part of `output` that the client does not see.
    pub reasoning: u64,
}

/// The form of the events of a response, which the form of an error in it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `OpenAI` chat completions, and servers that are compatible.
    OpenAiChat,
    /// `OpenAI` responses.
    OpenAiResponses,
    /// Anthropic messages.
    Anthropic,
    /// Gemini.
    Gemini,
    /// Ollama.
    Ollama,
}
