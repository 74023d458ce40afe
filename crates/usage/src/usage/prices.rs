//! Units of a limit from tokens: weights for each kind of token, and tables of weights for models.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::tokens::Tokens;

/// Billionths in one unit.
const UNIT: u64 = 1_000_000_000;

/// Decimals of a billionth.
const MAX_DECIMALS: usize = 9;

/// The greatest weight, in units.
const MAX_WEIGHT: u64 = 1_000_000;

/// The longest pattern, in characters.
const MAX_PATTERN: usize = 128;

/// Units for one token, in billionths of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

/// Why a text is no weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a weight is a number from 0 to 1000000 with at most {decimals} decimals")]
pub struct InvalidWeight {
    decimals: usize,
}

impl Weight {
    /// One unit for each token.
    pub const ONE: Self = Self(UNIT);

    /// Reads a decimal number, such as `0.15` or `3`, with at most `decimals` decimals (at most nine).
    ///
    /// # Errors
    /// Another text, or a number that is too large.
    pub fn parse(text: &str, decimals: usize) -> Result<Self, InvalidWeight> {
        let decimals = decimals.min(MAX_DECIMALS);
        let error = InvalidWeight { decimals };
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return Err(error),
            Some(parts) => parts,
            None => (text, ""),
        };
        if whole.is_empty()
            || fraction.len() > decimals
            || !(whole.bytes().chain(fraction.bytes())).all(|it| it.is_ascii_digit())
        {
            return Err(error);
        }
        let whole: u64 = whole.parse().map_err(|_| error)?;
        let fraction: u64 = format!("{fraction:0<MAX_DECIMALS$}").parse().map_err(|_| error)?;
        let billionths = whole.checked_mul(UNIT).and_then(|it| it.checked_add(fraction)).ok_or(error)?;
        if billionths > MAX_WEIGHT * UNIT { Err(error) } else { Ok(Self(billionths)) }
    }

    /// The weight of tokens that have both weights.
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
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
    /// The units of these tokens: the exact sum, rounded up once; saturates. Tokens that are part of another kind count at most as
    /// often as that kind.
    #[must_use]
    pub fn units(&self, tokens: &Tokens) -> u64 {
        let cached = tokens.cached_input.min(tokens.input);
        let written = tokens.cache_write.min(tokens.input - cached);
        let parts = [
            (tokens.input - cached - written, self.input),
            (cached, self.cached_input),
            (written, self.cache_write),
            (tokens.output, self.output),
            (tokens.reasoning.min(tokens.output), self.reasoning),
        ];
        // No overflow: 64 bits of tokens, at most 51 of a weight, and five of these.
        let billionths: u128 =
            parts.iter().map(|(tokens, weight)| u128::from(*tokens) * u128::from(weight.0)).sum();
        u64::try_from(billionths.div_ceil(u128::from(UNIT))).unwrap_or(u64::MAX)
    }

    /// The weights for an estimate, which does not know what is cached and what is reasoning: input has the greatest weight that
    /// input can have, and all output may be reasoning.
    #[must_use]
    pub fn for_estimate(self) -> Self {
        let input = self.input.max(self.cached_input).max(self.cache_write);
        let output = self.output.plus(self.reasoning);
        Self { input, cached_input: input, cache_write: input, output, reasoning: Weight::default() }
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

/// A pattern of model names, with `*` for any text. Case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPattern(Box<str>);

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern of models is a name of at most {MAX_PATTERN} printable characters, with `*` for any text")]
pub struct InvalidPattern;

impl ModelPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// An empty or too long text, or one with control characters.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let is_valid = !text.trim().is_empty()
            && text.chars().count() <= MAX_PATTERN
            && !text.chars().any(char::is_control);
        if is_valid { Ok(Self(text.into())) } else { Err(InvalidPattern) }
    }

    /// Whether it has no `*`.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// The text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches this name, in linear time.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return *self.0 == *name };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut name) = name.strip_prefix(first).and_then(|name| name.strip_suffix(last)) else {
            return false;
        };
        // The leftmost place of each part leaves the most for those after it, so no other place need be tried.
        for part in middle.split('*') {
            let Some(at) = name.find(part) else { return false };
            name = &name[at + part.len()..];
        }
        true
    }

    /// Whether it matches a dated or numbered version of this model, such as `NAME-2024-08-06` or `NAME@001`.
    fn matches_version_of(&self, name: &str) -> bool {
        let Some(version) = self.0.strip_prefix(name) else { return false };
        let number = version.strip_prefix(['-', '@', ':']);
        version.starts_with('*')
            || number.is_some_and(|it| it.starts_with(|first: char| first == '*' || first.is_ascii_digit()))
    }
}

/// Weights by model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    models: Vec<(ModelPattern, Weights)>,
    /// The place in `models` of each pattern without `*`, and with `*` those of all others.
    exact: BTreeMap<Box<str>, usize>,
    wildcards: Vec<usize>,
    default: Weights,
    /// The greatest of all weights.
    greatest: Weights,
}

impl Prices {
    /// The weights of models; `default` applies to all others. The first pattern that matches counts.
    #[must_use]
    pub fn new(models: Vec<(ModelPattern, Weights)>, default: Weights) -> Self {
        let mut exact = BTreeMap::new();
        let mut wildcards = Vec::new();
        for (place, (pattern, _)) in models.iter().enumerate() {
            if pattern.is_exact() {
                exact.entry(pattern.0.clone()).or_insert(place);
            } else {
                wildcards.push(place);
            }
        }
        let greatest = models.iter().fold(default, |greatest, (_, weights)| greatest.max(*weights));
        Self { models, exact, wildcards, default, greatest }
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
    pub fn of(&self, model: Option<&str>) -> (Weights, bool) {
        let place = model.and_then(|model| self.first_match(model));
        place.map_or((self.default, self.models.is_empty()), |place| (self.models[place].1, true))
    }

    /// The greatest weights that the model which a request names could have: those of its name and of its versions, because the
    /// server may serve another one than it was asked for. If no pattern matches the name, or there is none: the greatest of all
    /// patterns and the default.
    #[must_use]
    pub fn greatest(&self, model: Option<&str>) -> Weights {
        let Some((model, place)) = model.and_then(|model| Some((model, self.first_match(model)?))) else {
            return self.greatest;
        };
        let named = self
            .exact
            .range::<str, _>((Bound::Included(model), Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(model))
            .map(|(_, place)| *place);
        let patterns = named.chain(self.wildcards.iter().copied()).map(|place| &self.models[place]);
        let versions = patterns.filter(|(pattern, _)| pattern.matches_version_of(model));
        versions.fold(self.models[place].1, |greatest, (_, weights)| greatest.max(*weights))
    }

    fn first_match(&self, model: &str) -> Option<usize> {
        let exact = self.exact.get(model).copied();
        let wildcard = self.wildcards.iter().copied().find(|place| self.models[*place].0.matches(model));
        exact.into_iter().chain(wildcard).min()
    }
}

#[cfg(test)]
mod tests;
