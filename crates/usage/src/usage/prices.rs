//! Units of a limit from tokens: weights for each kind of token, and tables of weights for models.

use super::Tokens;

/// Units for one token, in billionths of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

/// Why a text is no weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a weight is a number from 0 to 1000000 with at most nine decimals")]
pub struct InvalidWeight;

impl Weight {
    /// One unit for each token.
    pub const ONE: Self = Self(1_000_000_000);

    /// Reads a decimal number, such as `0.15` or `3`, with at most `decimals` decimals (at most nine).
    ///
    /// # Errors
    /// Another text, or a number that is too large.
    pub fn parse(_text: &str, _decimals: usize) -> Result<Self, InvalidWeight> {
        Err(InvalidWeight)
    }
}

/// Units for the tokens of each kind. Kinds that are part of another kind have the units of their own kind alone:
/// `cached_input` and `cache_write` in place of `input`, and `reasoning` beside `output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of input that was neither read from a cache nor written to it.
    pub input: Weight,
    /// Of input from a cache.
    pub cached_input: Weight,
    /// Of input that was written to a cache.
    pub cache_write: Weight,
    /// Of output.
    pub output: Weight,
    /// Of reasoning, in addition to `output`.
    pub reasoning: Weight,
}

impl Weights {
    /// The units of these tokens: the exact sum, rounded up once; saturates.
    #[must_use]
    pub fn units(&self, _tokens: &Tokens) -> u64 {
        0
    }

    /// For each kind of token the greater of both weights.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
            reasoning: self.reasoning.max(other.reasoning),
        }
    }
}

/// A pattern of model names, with `*` for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPattern(Box<str>);

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern of models is a name of at most 128 printable characters, with `*` for any text")]
pub struct InvalidPattern;

impl ModelPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// An empty or too long text, or one with control characters.
    pub fn parse(_text: &str) -> Result<Self, InvalidPattern> {
        Err(InvalidPattern)
    }

    /// Whether it has no `*`.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }
}

/// Weights by model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    models: Vec<(ModelPattern, Weights)>,
    default: Weights,
}

impl Prices {
    /// The weights of models; `default` applies to all others. The first pattern that matches counts.
    #[must_use]
    pub fn new(models: Vec<(ModelPattern, Weights)>, default: Weights) -> Self {
        Self { models, default }
    }

    /// The same weights for every model.
    #[must_use]
    pub fn uniform(weights: Weights) -> Self {
        Self::new(Vec::new(), weights)
    }

    /// Whether the weights depend on the model.
    #[must_use]
    pub fn depend_on_model(&self) -> bool {
        !self.models.is_empty()
    }

    /// The weights of the model that a response names, and whether a pattern matches it; without a table every model is known.
    #[must_use]
    pub fn of(&self, _model: Option<&str>) -> (Weights, bool) {
        (self.default, true)
    }

    /// The greatest weights that the model which a request names could have: the server may serve another one. Those of all
    /// patterns and the default, if the request names none that a pattern matches.
    #[must_use]
    pub fn greatest(&self, _model: Option<&str>) -> Weights {
        self.default
    }
}
