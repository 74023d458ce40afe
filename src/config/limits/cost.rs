//! A limit's `cost`: what a request pays, and whether it ever could.

use std::ops::{Range, RangeInclusive};

use http::header::HeaderName;

use crate::config::reader::Item;
use crate::config::report::Problem;
use crate::config::table::Table;
use crate::gate::{Cost, KeyPart};
use crate::limit::{Algorithm, Quota};

/// Costs; nothing above can be counted exactly.
const COST: RangeInclusive<u64> = 0..=1 << 53;
const MAX: RangeInclusive<u64> = 1..=1 << 53;
/// The most that a header can say, unless less is there at once.
const DEFAULT_MAX: u64 = 100;

const FORM: &str = "a cost is a number, or comes from a header: \"header:x-cost\"";

/// A cost as the file has it.
pub(super) struct ReadCost<'a> {
    said: Said,
    /// Where the largest cost stands that a request can have, if the file says.
    item: Option<Item<'a>>,
}

enum Said {
    Fixed(u64),
    Header(HeaderName, Option<u64>),
}

/// Numbers that a cost has to fit, and whose they are.
pub(super) struct Fit<'q> {
    pub quota: &'q Quota,
    /// Of which tier or override they are, and where that stands; nothing for the limit itself.
    pub variant: Option<(String, Range<usize>)>,
}

/// Reads what a request pays.
pub(super) fn read<'a>(table: &mut Table<'a>) -> Option<ReadCost<'a>> {
    let (item, max_item) = (table.item("cost"), table.item("cost_max"));
    let max = max_item.map_or(Some(None), |item| item.integer(&MAX).map(Some));
    let Some(header) = item.filter(|item| item.is_string()) else {
        let cost = item.map_or(Some(1), fixed);
        if let Some(max) = max_item {
            let problem = max.error("`cost_max` bounds what a header says, and this cost is a number");
            max.refuse::<()>(problem.help("leave it out, or take the cost from a header: \"header:x-cost\""));
        }
        return Some(ReadCost { said: Said::Fixed(cost?), item });
    };
    let name = header_name(header);
    Some(ReadCost { said: Said::Header(name?, max?), item: max_item })
}

fn fixed(item: Item<'_>) -> Option<u64> {
    if item.is_integer() {
        return item.integer(&COST);
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
        if let Said::Header(name, _) = &self.said { Some(name) } else { None }
    }

    /// The cost, if a request that costs the most could pass with all of these numbers.
    pub fn fitting(self, algorithm: Algorithm, fits: &[Fit<'_>]) -> Option<Cost> {
        let least = fits.iter().map(|fit| fit.quota.limit()).min().unwrap_or(u64::MAX);
        let largest = match &self.said {
            Said::Fixed(cost) => *cost,
            Said::Header(_, max) => max.unwrap_or(0),
        };
        let Some(item) = self.item.filter(|_| largest > least) else {
            return Some(match self.said {
                Said::Fixed(cost) => Cost::Fixed(cost),
                Said::Header(name, max) => Cost::Header { name, max: max.unwrap_or(DEFAULT_MAX.min(least)) },
            });
        };
        for fit in fits.iter().filter(|fit| fit.quota.limit() < largest) {
            item.reader.note(too_dear(item, largest, algorithm, fit));
        }
        None
    }
}

fn too_dear(item: Item<'_>, cost: u64, algorithm: Algorithm, fit: &Fit<'_>) -> Problem {
    let (limit, key) = (fit.quota.limit(), item.name);
    let more = match algorithm {
        Algorithm::TokenBucket | Algorithm::Gcra => "burst",
        Algorithm::LeakyBucket => "queue",
        Algorithm::Concurrency => "max_in_flight",
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => "rate",
    };
    let whose = fit.variant.as_ref().map_or_else(String::new, |(whose, _)| format!(" of {whose}"));
    let title = if key == "cost" {
        format!("no request{whose} could ever pass: it costs {cost}, and at most {limit} are there at once")
    } else {
        format!("a request{whose} that costs {cost} could never pass: at most {limit} are there at once")
    };
    let help = format!(
        "a {} of at most {limit}, or a larger `{more}`",
        if key == "cost" { key } else { "`cost_max`" }
    );
    match &fit.variant {
        None => item.error(title).help(help),
        Some((_, span)) => {
            Problem::error(span.clone(), title).related(item.span(), "what it costs").help(help)
        }
    }
}
