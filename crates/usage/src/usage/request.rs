//! What a request to a language model says about its cost.

use super::Tokens;

/// How tokens are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimateRules {
    /// Tokens of output of a request that names no maximum.
    pub default_output: u64,
    /// Bytes of text for each token of input.
    pub bytes_per_token: u64,
    /// Tokens of input for each image or other medium.
    pub default_media: u64,
    /// The share of the maximum of the output that is reserved, in thousandths.
    pub output_share: u32,
}

impl Default for EstimateRules {
    fn default() -> Self {
        Self { default_output: 1024, bytes_per_token: 4, default_media: 1000, output_share: 1000 }
    }
}

/// What the body of a request says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model.
    pub model: Option<Box<str>>,
    /// The greatest maximum of output tokens, times the number of responses that it requests.
    pub max_output: Option<u64>,
    /// How many responses it requests.
    pub choices: u64,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Tokens of media at least, by their size.
    pub media: u64,
    /// How many media there are.
    pub media_count: u64,
    /// Whether it requests a stream.
    pub is_stream: bool,
    /// `stream_options.include_usage`, if it is there.
    pub include_usage: Option<bool>,
}

impl RequestFacts {
    /// What a JSON body says; none if it is malformed or no object.
    #[must_use]
    pub fn read(_body: &[u8]) -> Option<Self> {
        None
    }

    /// The estimate by the length of a body that was not read.
    #[must_use]
    pub fn by_length(bytes: u64, rules: &EstimateRules) -> Tokens {
        Tokens { input: bytes / rules.bytes_per_token, output: rules.default_output, ..Tokens::default() }
    }

    /// The tokens that the request may use.
    #[must_use]
    pub fn estimate(&self, _rules: &EstimateRules) -> Tokens {
        Tokens::default()
    }
}

/// The body of a streaming request with `stream_options.include_usage`; none if it has an explicit value, or is no JSON object.
#[must_use]
pub fn with_stream_usage(_body: &[u8]) -> Option<Vec<u8>> {
    None
}
