//! Costs that the response decides: what a request reserves, what it is charged in the end, and the keys beside `cost`.

use std::path::Path;
use std::sync::Arc;

use http::header::HeaderName;

use super::cost_keys::{CostKeys, WeightKeys};
use super::cost_parts::{source, terms};
use super::fit::Fit;
use super::limit_keys::{LimitKeys, MAX_UNITS};
use super::weights::{DECIMALS, GivenWeights};
use super::{beside_cost, prices};
use crate::config::item::Item;
use crate::config::report::Problem;
use crate::config::table::Table;
use crate::gate::{CostBasis, LlmCost, ReserveTerm, SettledCost};
use crate::limit::Algorithm;
use crate::usage::{EstimateRules, Prices, Tokens, Weight, Weights};

const FORM: &str = "such as cost = { reserve = 1, settle = \"header:x-cost\" }, or cost = { llm = { input = 1, output = 4 } }";
/// The most that a settled cost can be by default, in capacities of the limit.
pub(super) const MAX_CAPACITIES: u64 = 100;
/// Thousandths in one.
const THOUSANDTHS: f64 = 1000.0;

/// What a request reserves and is charged in the end, without the keys beside it.
pub(super) struct Reserving<'a> {
    basis: CostBasis,
    /// The value of the file that says what is reserved.
    item: Item<'a>,
}

/// A cost that the response decides, before the numbers of the limit are known.
pub(super) struct Settled<'a> {
    cost: SettledCost,
    max: Option<u64>,
    item: Item<'a>,
}

/// Rejects a limit whose algorithm can't correct what it has taken.
pub(super) fn check_algorithm(item: Item<'_>, algorithm: Algorithm) -> Option<()> {
    let why = match algorithm {
        Algorithm::LeakyBucket => {
            "a position in the queue can't be corrected: requests behind it wait already"
        }
        Algorithm::Concurrency => {
            "it counts requests in flight, and each has one slot until its response has ended"
        }
        _ => return Some(()),
    };
    let title = format!("a {} can't have a cost that the response decides: {why}", algorithm.name());
    item.reject(item.error(title).help("use another algorithm, such as \"token_bucket\" or \"fixed_window\""))
}

/// The tokens of a language model, each of which is a unit.
pub(super) fn tokens<'a>(item: Item<'a>, table: &Table<'a, LimitKeys>) -> Option<Reserving<'a>> {
    llm(item, table, Prices::uniform(LlmCost::tokens()).into())
}

/// The tokens of a language model, by a file of prices that is relative to `directory`.
pub(super) fn with_prices<'a>(
    item: Item<'a>,
    table: &Table<'a, LimitKeys>,
    directory: &Path,
) -> Option<Reserving<'a>> {
    let prices = prices::prices(item, directory);
    // The keys beside it are read all the same, so that their mistakes show as well.
    let read = llm(item, table, prices.clone().unwrap_or_else(|| Prices::uniform(no_weights()).into()));
    prices.and(read)
}

fn no_weights() -> Weights {
    let none = Weight::default();
    Weights { input: none, cached_input: none, cache_write: none, output: none, reasoning: none }
}

fn llm<'a>(item: Item<'a>, table: &Table<'a, LimitKeys>, prices: Arc<Prices>) -> Option<Reserving<'a>> {
    let (default_output, bytes_per_token) = (table.default_output().read(), table.bytes_per_token().read());
    let (default_media, output_share) = (table.default_media().read(), table.estimate().with(share));
    let stream_usage = table.stream_usage().read();
    let estimate = EstimateRules {
        default_output: default_output?,
        bytes_per_token: bytes_per_token?,
        default_media: default_media?,
        output_share: output_share?,
    };
    let basis = CostBasis::Llm(LlmCost { prices, estimate, stream_usage: stream_usage? });
    Some(Reserving { basis, item })
}

/// Reads a share in thousandths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most 1000")]
fn share(item: Item<'_>) -> Option<u32> {
    let thousandths = item.decimal(&(0.0..=1.0))? * THOUSANDTHS;
    let rounded = thousandths.round();
    if (thousandths - rounded).abs() > 1e-6 {
        let problem = item.error(format!("`{}` has more than three decimals", item.name));
        return item.reject(problem.help("such as 0.5, for half of the largest output"));
    }
    Some(rounded as u32)
}

/// Reads the table `cost`.
pub(super) fn from_table<'a>(item: Item<'a>, limit: &Table<'a, LimitKeys>) -> Option<Reserving<'a>> {
    let table = Table::<CostKeys>::of_or(item, "`cost`", FORM)?;
    let (reserve, settle, llm) = (table.reserve().given(), table.settle().given(), table.llm().given());
    let read = match (llm, reserve.or(settle)) {
        (Some(tokens), None) => {
            weights(tokens).and_then(|weights| self::llm(tokens, limit, Prices::uniform(weights).into()))
        }
        (Some(tokens), Some(other)) => {
            let problem =
                other.error(format!("`llm` reserves and settles tokens, and needs no `{}`", other.name));
            other.reject(problem.related(tokens.span(), "the tokens").help("leave one of them out"))
        }
        (None, None) => {
            item.reject(item.error("`cost` does not say what a request costs").help(FORM).derived())
        }
        (None, Some(_)) => parts(&table),
    };
    table.close();
    read
}

fn weights(item: Item<'_>) -> Option<Weights> {
    let table = Table::<WeightKeys>::of_or(item, "`llm`", "such as llm = { input = 1, output = 4 }")?;
    let given = GivenWeights {
        input: table.input().given(),
        cached_input: table.cached_input().given(),
        cache_write: table.cache_write().given(),
        output: table.output().given(),
        reasoning: table.reasoning().given(),
    };
    let weights = given.read(DECIMALS);
    table.close();
    let weights = weights?;
    if weights == no_weights() {
        let problem = item.error("no token has a weight, so no request would cost anything");
        return item.reject(problem.help("such as llm = { input = 1, output = 4 }"));
    }
    Some(weights)
}

fn parts<'a>(table: &Table<'a, CostKeys>) -> Option<Reserving<'a>> {
    let (reserve, settle) =
        (table.reserve().require("reserve = 1"), table.settle().require("settle = \"header:x-cost\""));
    let (terms, source) = (reserve.and_then(terms), settle.and_then(source));
    let basis = CostBasis::Parts { reserve: terms?.into(), settle: source? };
    Some(Reserving { basis, item: reserve? })
}

impl<'a> Settled<'a> {
    /// A cost with the keys beside it. `max` is that of the file.
    pub fn read(table: &Table<'a, LimitKeys>, reserving: Reserving<'a>, max: Option<u64>) -> Option<Self> {
        let Reserving { basis, item } = reserving;
        let is_valid = beside_cost::reject(table, Some(&basis));
        let (read_body, keeps_header) = (table.read_body().read(), table.keep_cost_header().read());
        let (stops_streams, finish_abandoned) =
            (table.stop_streams().read(), table.finish_abandoned().read());
        let cost = SettledCost {
            basis,
            max_reserve: MAX_UNITS,
            max: MAX_UNITS,
            read_body: u64::try_from(read_body?).ok()?,
            keeps_header: keeps_header?,
            stops_streams: stops_streams?,
            finish_abandoned: finish_abandoned?,
        };
        is_valid.then_some(Self { cost, max, item })
    }

    /// The first header of a request that it reads.
    pub fn header(&self) -> Option<&HeaderName> {
        self.cost.request_headers().next()
    }

    /// The cost of a limit with these numbers, the least of which has the capacity `least`. Warns of what each request reserves, if
    /// that is more than a capacity.
    pub fn fitted(self, fits: &[Fit<'_>], least: u64) -> SettledCost {
        for fit in fits {
            self.warn_of_reserve(fit);
        }
        let own = fits.iter().find(|fit| fit.variant.is_none()).map_or(least, |fit| fit.quota.usable());
        let max = self.max.unwrap_or_else(|| own.saturating_mul(MAX_CAPACITIES)).min(MAX_UNITS);
        SettledCost { max_reserve: least, max, ..self.cost }
    }

    fn warn_of_reserve(&self, fit: &Fit<'_>) {
        let (limit, least) = (fit.quota.usable(), least_reserved(&self.cost.basis));
        if least <= limit {
            return;
        }
        let whose = fit.variant.as_ref().map_or_else(String::new, |(whose, _)| format!(" of {whose}"));
        let which = if self.cost.basis.is_llm() { "without a maximum of output tokens " } else { "" };
        let title = format!(
            "a request{whose} {which}reserves the whole capacity of {limit}, since its estimate is {least}: such requests pass one at a time"
        );
        let help = if self.cost.basis.is_llm() {
            "lower `default_output` or `estimate`, or give the limit more units"
        } else {
            "lower `reserve`, or give the limit more units"
        };
        let problem = match &fit.variant {
            None => Problem::warning(self.item.span(), title),
            Some((_, span)) => {
                Problem::warning(span.clone(), title).related(self.item.span(), "the estimate")
            }
        };
        self.item.reader.report(problem.help(help));
    }
}

/// What a request reserves at least: for a language model, one that names no maximum of its output.
fn least_reserved(basis: &CostBasis) -> u64 {
    match basis {
        CostBasis::Parts { reserve, .. } => reserve.iter().fold(0, |sum: u64, term| match term {
            ReserveTerm::Units(units) => sum.saturating_add(*units),
            ReserveTerm::Header(_) | ReserveTerm::Body(_) => sum,
        }),
        CostBasis::Llm(cost) => {
            let rules = &cost.estimate;
            let output = rules.default_output.saturating_mul(u64::from(rules.output_share)) / 1000;
            // All of it may be reasoning.
            cost.prices.greatest(None).units(&Tokens { output, reasoning: output, ..Tokens::default() })
        }
    }
}
