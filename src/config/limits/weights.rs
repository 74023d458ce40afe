//! Weights of tokens: units for each token of a kind.

use crate::config::item::Item;
use crate::usage::{Weight, Weights};

/// The most decimals of a weight in the configuration file.
pub(super) const DECIMALS: usize = 3;
/// The most decimals of a price in a file of prices.
pub(super) const PRICE_DECIMALS: usize = 9;

/// The largest weight.
const MAX: f64 = 1_000_000.0;

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
    let most = if decimals == DECIMALS { "three" } else { "nine" };
    let form = format!("write a number from 0 to {MAX} with at most {most} decimals, such as 0.15");
    let number = match item.decimal_text() {
        Some(number) => number,
        // With a prefix, such as 0x10.
        None if item.is_integer() => String::new(),
        None => {
            let text = item.string_like("a decimal number or a string", &form)?;
            return text.parsed("a weight", &form, |text| Weight::parse(text, decimals).ok());
        }
    };
    if let Ok(weight) = Weight::parse(&number, decimals) {
        return Some(weight);
    }
    if !number.is_empty() {
        item.decimal(&(0.0..=MAX))?;
    }
    let problem = if Weight::parse(&number, PRICE_DECIMALS).is_ok() {
        let problem = item.error(format!("`{}` has more than {most} decimals", item.name));
        problem.help("round it up; the prices of a file, `prices`, can have nine decimals")
    } else {
        item.error(format!("`{}` has a prefix, an exponent, or too many decimals", item.name)).help(form)
    };
    item.reject(problem)
}
