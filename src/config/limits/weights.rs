//! Weights of tokens: units for each token of a kind.

use crate::config::item::Item;
use crate::usage::{Weight, Weights};

/// The most decimals of a weight in the configuration file.
pub(super) const DECIMALS: usize = 3;
/// The most decimals of a price in a file of prices.
pub(super) const PRICE_DECIMALS: usize = 9;

/// The weights that a table has.
pub(super) struct GivenWeights<'a> {
    pub input: Option<Item<'a>>,
    pub cached_input: Option<Item<'a>>,
    pub cache_write: Option<Item<'a>>,
    pub output: Option<Item<'a>>,
    pub reasoning: Option<Item<'a>>,
}

impl GivenWeights<'_> {
    /// Reads all of them, with at most `decimals` decimals. Input from and to a cache has the weight of other input by default, and
    /// the other weights are 0.
    pub fn read(&self, decimals: usize) -> Option<Weights> {
        let read = |item: Option<Item<'_>>| item.map(|item| weight(item, decimals));
        let (input, output) = (read(self.input), read(self.output));
        let (cached_input, cache_write) = (read(self.cached_input), read(self.cache_write));
        let reasoning = read(self.reasoning);
        let input = input.unwrap_or(Some(Weight::default()))?;
        Some(Weights {
            input,
            cached_input: cached_input.unwrap_or(Some(input))?,
            cache_write: cache_write.unwrap_or(Some(input))?,
            output: output.unwrap_or(Some(Weight::default()))?,
            reasoning: reasoning.unwrap_or(Some(Weight::default()))?,
        })
    }
}

/// Reads a weight: a number as the file has it, or a string.
fn weight(item: Item<'_>, decimals: usize) -> Option<Weight> {
    let text = match item.decimal_text() {
        Some(text) => text,
        None => item.string_like("a number", "such as 0.15")?.value,
    };
    if let Ok(weight) = Weight::parse(&text, decimals) {
        return Some(weight);
    }
    let problem = if Weight::parse(&text, PRICE_DECIMALS).is_ok() {
        let help = "round it up; a file of prices, `prices`, can have nine decimals";
        item.error(format!("`{}` has more than three decimals", item.name)).help(help)
    } else {
        let most = if decimals == DECIMALS { "three" } else { "nine" };
        let title =
            format!("`{}` must be a number from 0 to 1000000 with at most {most} decimals", item.name);
        item.error(title).help("without a sign and without an exponent, such as 0.15")
    };
    item.reject(problem)
}
