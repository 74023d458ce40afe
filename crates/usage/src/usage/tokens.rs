//! Tokens that a response has used, and the forms in which APIs report them.

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
