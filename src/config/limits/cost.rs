//! The cost of a request, and whether the limit could ever allow it.

use std::path::Path;

use http::header::HeaderName;

use super::beside_cost;
use super::fit::Fit;
use super::limit_keys::LimitKeys;
use super::settled::{self, Reserving, Settled};
use crate::config::item::Item;
use crate::config::table::Table;
use crate::gate::{Cost, KeyPart};
use crate::limit::{Algorithm, Policy};

const FORM: &str = "a cost is a number, comes from a header, \"header:x-cost\", or is decided by the response: \"llm_tokens\", or a \
     table such as { reserve = 1, settle = \"header:x-cost\" }";
/// The highest value that counts of a header.
const DEFAULT_MAX: u64 = 100;
/// The cost of a request to a language model.
const LLM_TOKENS: &str = "llm_tokens";

/// A cost as the file has it.
pub(super) struct ReadCost<'a> {
    amount: Amount<'a>,
    /// The value of the file that sets the largest cost, if there is one.
    item: Option<Item<'a>>,
}

enum Amount<'a> {
    Fixed(u64),
    /// A header, and its highest value that counts.
    Header(HeaderName, u64),
    /// An estimate, which the response corrects.
    Settled(Settled<'a>),
}

/// Reads the cost of a request, with the keys of the limit that belong to it. Files that it names are relative to `directory`.
pub(super) fn read_cost<'a>(
    table: &Table<'a, LimitKeys>,
    algorithm: Option<Algorithm>,
    directory: &Path,
) -> Option<ReadCost<'a>> {
    let (item, prices) = (table.cost().given(), table.prices().given());
    if has_settled_form(item, prices) {
        let reserving = settled_form(item, prices, table, directory);
        let max = table.cost_max().given().map_or(Some(None), |item| table.cost_max().value(item).map(Some));
        let settled = Settled::read(table, reserving?, max?)?;
        let item = prices.or(item)?;
        settled::check_algorithm(item, algorithm?)?;
        return Some(ReadCost { amount: Amount::Settled(settled), item: Some(item) });
    }
    beside_cost::reject(table, None);
    known_cost(table, item)
}

/// Whether the response decides the cost.
fn has_settled_form(item: Option<Item<'_>>, prices: Option<Item<'_>>) -> bool {
    prices.is_some() || item.is_some_and(|item| item.is_text(LLM_TOKENS) || item.is_table())
}

/// Reads a cost that the response decides.
fn settled_form<'a>(
    item: Option<Item<'a>>,
    prices: Option<Item<'a>>,
    table: &Table<'a, LimitKeys>,
    directory: &Path,
) -> Option<Reserving<'a>> {
    match (prices, item) {
        (Some(prices), None) => settled::with_prices(prices, table, directory),
        (Some(prices), Some(item)) => {
            let problem =
                item.error("`prices` is the cost of tokens, and this limit has another `cost` as well");
            item.reject(problem.related(prices.span(), "the prices").help("leave `cost` or `prices` out"))
        }
        (None, Some(item)) if item.is_text(LLM_TOKENS) => settled::tokens(item, table),
        (None, item) => settled::from_table(item?, table),
    }
}

/// Reads a cost that is known when a request arrives.
fn known_cost<'a>(table: &Table<'a, LimitKeys>, item: Option<Item<'a>>) -> Option<ReadCost<'a>> {
    let max_item = table.cost_max().given();
    let max = max_item.map_or(Some(DEFAULT_MAX), |item| table.cost_max().value(item));
    let Some(header) = item.filter(|item| item.is_string()) else {
        let cost = fixed(table, table.cost().item());
        if let Some(max) = max_item {
            let problem = max.error("`cost_max` bounds the value of a header, and this `cost` is a number");
            max.reject::<()>(problem.help("leave it out, or take the cost from a header: \"header:x-cost\""));
        }
        return Some(ReadCost { amount: Amount::Fixed(cost?), item });
    };
    let name = header_name(header);
    Some(ReadCost { amount: Amount::Header(name?, max?), item: max_item })
}

fn fixed<'a>(table: &Table<'a, LimitKeys>, item: Item<'a>) -> Option<u64> {
    if item.is_integer() {
        return table.cost().first(item);
    }
    item.string_like("a number, the name of a header or a table", FORM).map(|_| 1)
}

fn header_name(item: Item<'_>) -> Option<HeaderName> {
    let text = item.string()?;
    text.parsed("a cost", FORM, |text| match KeyPart::parse(text) {
        Some(KeyPart::Header(name)) => Some(name),
        _ => None,
    })
}

impl ReadCost<'_> {
    /// The first header of a request that sets it, if one does.
    pub fn header(&self) -> Option<&HeaderName> {
        match &self.amount {
            Amount::Fixed(_) => None,
            Amount::Header(name, _) => Some(name),
            Amount::Settled(settled) => settled.header(),
        }
    }

    /// Whether the response decides it.
    pub fn settles(&self) -> bool {
        matches!(self.amount, Amount::Settled(_))
    }

    /// The cost, if a request that costs the most could pass with all of these numbers.
    pub fn fitting(self, algorithm: Algorithm, fits: &[Fit<'_>]) -> Option<Cost> {
        let least = fits.iter().map(|fit| fit.quota.usable()).min().unwrap_or(u64::MAX);
        let largest = match self.amount {
            Amount::Settled(settled) => return Some(Cost::Settled(Box::new(settled.fitted(fits, least)))),
            Amount::Fixed(cost) => cost,
            Amount::Header(_, max) => max,
        };
        let Some(item) = self.item.filter(|_| largest > least) else {
            return Some(match self.amount {
                // Only the default can be more than the capacity here.
                Amount::Header(name, max) => Cost::Header { name, max: max.min(least) },
                _ => Cost::Fixed(largest),
            });
        };
        for fit in fits.iter().filter(|fit| fit.quota.usable() < largest) {
            item.reader.report(fit.too_expensive(item, largest, algorithm));
        }
        None
    }
}

/// The policy of a limit with this cost.
pub(super) fn applied(policy: Policy, cost: &Cost) -> Policy {
    match cost {
        Cost::Settled(cost) => policy.with_settlement(cost.max),
        Cost::Fixed(_) | Cost::Header { .. } => policy,
    }
}
