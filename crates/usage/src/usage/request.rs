//! What a request to a language model says about its cost.

mod media;
mod names;
mod number;
mod scan;
mod stream_options;
mod text;

pub use media::Media;
use scan::Scan;

use super::tokens::Tokens;

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

impl EstimateRules {
    fn tokens_of_text(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_per_token.max(1))
    }
}

/// What the body of a request says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model; none if the request names several.
    pub model: Option<Box<str>>,
    /// The greatest maximum of output tokens, times the number of responses that it requests.
    pub max_output: Option<u64>,
    /// How many responses it requests, at least one.
    pub choices: u64,
    /// Bytes of all that the server may take for text: the body without media and without whitespace between its values.
    pub text_bytes: u64,
    /// Tokens that the client has written as numbers.
    pub token_ids: u64,
    /// Images and other media in base64, and references to media.
    pub media: Media,
    /// Whether it requests a stream.
    pub is_stream: bool,
    /// `stream_options.include_usage`, if it is there.
    pub include_usage: Option<bool>,
    /// Maxima in a form that only some servers read, such as `"100"` and `1e2`, and -1: they raise the estimate, never lower it.
    uncertain: UncertainMaxima,
}

/// Maxima of the output that some servers read, and others ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UncertainMaxima {
    greatest: u64,
    has_unbounded: bool,
}

impl RequestFacts {
    /// What a JSON body says; none if it is malformed or no object. Reads leniently, because servers do: names count in any case and
    /// with or without underscores, escapes in them are decoded, and of a repeated name the greatest value counts.
    ///
    /// Takes linear time, and a memory that does not depend on the body.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        Some(Scan::read(body)?.facts)
    }

    /// The estimate by the length of a body that was not read.
    #[must_use]
    pub fn by_length(bytes: u64, rules: &EstimateRules) -> Tokens {
        Tokens { input: rules.tokens_of_text(bytes), output: rules.default_output, ..Tokens::default() }
    }

    /// The tokens that the request may use.
    #[must_use]
    pub fn estimate(&self, rules: &EstimateRules) -> Tokens {
        let text = rules.tokens_of_text(self.text_bytes);
        let input =
            text.saturating_add(self.token_ids).saturating_add(self.media.tokens(rules.default_media));
        Tokens { input, output: self.output(rules), ..Tokens::default() }
    }

    fn output(&self, rules: &EstimateRules) -> u64 {
        let choices = self.choices.max(1);
        let share = |maximum: u64| {
            let thousandths = u128::from(maximum) * u128::from(rules.output_share);
            u64::try_from(thousandths.div_ceil(1000)).unwrap_or(u64::MAX)
        };
        let default = rules.default_output.saturating_mul(choices);
        let uncertain = share(self.uncertain.greatest.saturating_mul(choices));
        match self.max_output.map(share) {
            Some(maximum) if self.uncertain.has_unbounded => maximum.max(default).max(uncertain),
            Some(maximum) => maximum.max(uncertain),
            None => default.max(uncertain),
        }
    }
}

/// The body of a streaming request with `stream_options.include_usage`; none if it has an explicit value, or is no JSON object, or
/// if it is unclear where a server would read it (a `stream_options` that is repeated, no object, or written in another way).
/// Nothing else is changed.
#[must_use]
pub fn with_stream_usage(body: &[u8]) -> Option<Vec<u8>> {
    let (at, inserted) = Scan::read(body)?.stream_options.insertion()?;
    let mut with_usage = Vec::with_capacity(body.len() + inserted.len());
    with_usage.extend_from_slice(&body[..at]);
    with_usage.extend_from_slice(inserted.as_bytes());
    with_usage.extend_from_slice(&body[at..]);
    Some(with_usage)
}

#[cfg(test)]
mod tests;
