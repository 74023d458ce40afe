//! The cost of a request, and whether the limit could ever allow it.

use std::ops::Range;

use http::header::HeaderName;

use super::limit_keys::LimitKeys;
use crate::config::item::Item;
use crate::config::report::Problem;
use crate::config::table::Table;
use crate::gate::{Cost, KeyPart};
use crate::limit::{Algorithm, Quota};

const FORM: &str = "a cost is a number, or comes from a header: \"header:x-cost\"";

/// A cost as the file has it.
pub(super) struct ReadCost<'a> {
    amount: Amount,
    /// The value of the file that sets the largest cost, if there is one.
    item: Option<Item<'a>>,
}

enum Amount {
    Fixed(u64),
    /// A header, and its highest value that counts.
    Header(HeaderName, u64),
}

/// A quota that a cost has to fit.
pub(super) struct Fit<'q> {
    pub quota: &'q Quota,
    /// The tier or override that has it, with its span; `None` for the limit itself.
    pub variant: Option<(String, Range<usize>)>,
}

/// Reads the cost of a request.
pub(super) fn read<'a>(table: &Table<'a, LimitKeys>) -> Option<ReadCost<'a>> {
    let (item, max_item) = (table.cost().given(), table.cost_max().given());
    let max = table.cost_max().read();
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
    item.string_like("a number or the name of a header", FORM).map(|_| 1)
}

fn header_name(item: Item<'_>) -> Option<HeaderName> {
    let text = item.string()?;
    text.parsed("a header", FORM, |text| match KeyPart::parse(text) {
        Some(KeyPart::Header(name)) => Some(name),
        _ => None,
    })
}

impl ReadCost<'_> {
    /// The header that sets it, if one does.
    pub fn header(&self) -> Option<&HeaderName> {
        if let Amount::Header(name, _) = &self.amount { Some(name) } else { None }
    }

    /// The cost, if a request that costs the most could pass with all of these numbers.
    pub fn fitting(self, algorithm: Algorithm, fits: &[Fit<'_>]) -> Option<Cost> {
        let least = fits.iter().map(|fit| fit.quota.limit()).min().unwrap_or(u64::MAX);
        let largest = match &self.amount {
            Amount::Fixed(cost) => *cost,
            Amount::Header(_, max) => *max,
        };
        let Some(item) = self.item.filter(|_| largest > least) else {
            return Some(match self.amount {
                Amount::Fixed(cost) => Cost::Fixed(cost),
                // Only the default can be more than the capacity here.
                Amount::Header(name, max) => Cost::Header { name, max: max.min(least) },
            });
        };
        for fit in fits.iter().filter(|fit| fit.quota.limit() < largest) {
            item.reader.report(too_expensive(item, largest, algorithm, fit));
        }
        None
    }
}

fn too_expensive(item: Item<'_>, cost: u64, algorithm: Algorithm, fit: &Fit<'_>) -> Problem {
    let (limit, key) = (fit.quota.limit(), item.name);
    let more = match algorithm {
        Algorithm::TokenBucket | Algorithm::Gcra => "burst",
        Algorithm::LeakyBucket => "queue",
        Algorithm::Concurrency => "max_in_flight",
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => "rate",
    };
    let whose = fit.variant.as_ref().map_or_else(String::new, |(whose, _)| format!(" of {whose}"));
    let title = if key == "cost" {
        format!("no request{whose} could ever be allowed: it costs {cost}, and the capacity is {limit}")
    } else {
        format!("a request{whose} that costs {cost} could never be allowed: the capacity is {limit}")
    };
    let help = format!("lower `{key}` to {limit} or less, or raise `{more}`");
    match &fit.variant {
        None => item.error(title).help(help),
        Some((_, span)) => Problem::error(span.clone(), title).related(item.span(), "the cost").help(help),
    }
}
