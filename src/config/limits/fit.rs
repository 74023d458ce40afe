//! Whether a cost fits the numbers of a limit.

use std::ops::Range;

use crate::config::item::Item;
use crate::config::report::Problem;
use crate::limit::{Algorithm, Quota};

/// A quota that a cost has to fit.
pub(super) struct Fit<'q> {
    pub quota: &'q Quota,
    /// The tier or override that has it, with its span; `None` for the limit itself.
    pub variant: Option<(String, Range<usize>)>,
}

impl Fit<'_> {
    /// The error of a cost, which `item` sets, that is more than the capacity.
    pub fn too_expensive(&self, item: Item<'_>, cost: u64, algorithm: Algorithm) -> Problem {
        let (limit, key) = (self.quota.usable(), item.name);
        let more = match algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra => "burst",
            Algorithm::LeakyBucket => "queue",
            Algorithm::Concurrency => "max_in_flight",
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => "rate",
        };
        let whose = self.variant.as_ref().map_or_else(String::new, |(whose, _)| format!(" of {whose}"));
        let title = if key == "cost" {
            format!("no request{whose} could ever be allowed: it costs {cost}, and the capacity is {limit}")
        } else {
            format!("a request{whose} that costs {cost} could never be allowed: the capacity is {limit}")
        };
        let help = format!("lower `{key}` to {limit} or less, or raise `{more}`");
        match &self.variant {
            None => item.error(title).help(help),
            Some((_, span)) => {
                Problem::error(span.clone(), title).related(item.span(), "the cost").help(help)
            }
        }
    }
}
