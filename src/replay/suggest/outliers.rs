//! The clients that are left out when limits are chosen: those that need most in comparison with others.

use std::cmp::Reverse;

use super::check::check;
use super::history::History;
use super::needs::{ClientNeeds, Measure, Needs};
use super::peaks::{WINDOWS, peaks};
use super::settings::{ShareOf, SuggestSettings};
use super::warning::allowed_exceptions;
use crate::limit::Quota;

/// Up to so many clients are few.
const FEW: usize = 3;
/// How many times more than others a few clients need that are worth a warning.
const FAR_ABOVE: u64 = 3;
/// Clients are compared with those that one in so many exceeds.
const ONE_IN: u64 = 100;
/// The most clients that are left out for a share of requests.
const MOST_FOR_REQUESTS: u64 = 10_000;
/// Factors are counted in parts of this.
const PRECISION: u128 = 1_000_000;

/// A few clients that need far more than the others, and are not left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outliers {
    /// How many clients would have to be left out.
    pub left_out: u64,
    /// How many clients there are.
    pub clients: u64,
    /// The rate that is enough for all clients, such as `300/minute`: that of the present limit, with its burst in proportion, or
    /// without one that of a limit by the minute. None if no rate is enough.
    pub rate: Option<String>,
    /// The rate that is enough without them.
    pub others: String,
}

/// The needs of the clients that are not left out, and a few among them that need far more than the others.
#[derive(Debug)]
pub(super) struct Remaining {
    pub needs: Needs,
    pub outliers: Option<Outliers>,
}

impl Remaining {
    /// Leaves out as many clients as the share allows that may be denied. So each limit has room for all remaining clients, and
    /// the limits together deny at most the share.
    pub fn choose(history: &History, measure: &Measure<'_>, all: &Needs, settings: &SuggestSettings) -> Self {
        let most = match settings.of {
            ShareOf::Clients => allowed_exceptions(settings.deny_at_most, all.clients),
            ShareOf::Requests => (all.clients / 2).min(MOST_FOR_REQUESTS),
        };
        let ranked = ranked(history, measure, all, most * 2 + FEW as u64);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(ranked.len());
        let without = |count: usize| all.without(&ranked[..count]);
        let fits = |count: usize| {
            let quotas: Vec<Quota> =
                measure.limits(&without(count), None).into_iter().map(|limit| limit.quota).collect();
            // A share such as 0.001 is not exact in binary.
            check(history, all.part, &quotas).request_share() <= settings.deny_at_most + 1e-12
        };
        let count = match settings.of {
            ShareOf::Clients => most,
            ShareOf::Requests => largest(most, fits),
        };
        let needs = without(count);
        let units = measure.units(&needs);
        let outliers = (count + 1..=ranked.len().min(count * 2 + FEW)).find_map(|left_out| {
            let others = measure.units(&without(left_out));
            let is_far_above = others.saturating_mul(FAR_ABOVE) <= units;
            let others = measure.rate_text(others).filter(|_| is_far_above)?;
            let (left_out, clients) = (left_out as u64, all.clients);
            Some(Outliers { left_out, clients, rate: measure.rate_text(units), others })
        });
        Self { needs, outliers }
    }
}

/// The needs of the `most` clients whose peaks in any period are the most times those of others, which are those that one
/// in [`ONE_IN`] exceeds.
fn ranked(history: &History, measure: &Measure<'_>, all: &Needs, most: u64) -> Vec<ClientNeeds> {
    let compared = (all.clients / ONE_IN + FEW as u64).max(most).min(all.clients.saturating_sub(1));
    let others: [u64; WINDOWS.len()] =
        std::array::from_fn(|window| all.peaks[window].exceeded_by(compared).max(1));
    let least = others.into_iter().min().unwrap_or_default();
    let mut factors = Vec::new();
    history.visit(all.part, |key| {
        // Most clients have fewer units than that in all of the time.
        let units = key.arrivals.iter().fold(0, |units: u64, arrival| units.saturating_add(arrival.cost));
        if units > least {
            let factor = |(peak, other)| u128::from(peak) * PRECISION / u128::from(other);
            let factor = peaks(key.arrivals).into_iter().zip(others).map(factor).max();
            factors.extend(factor.filter(|factor| *factor > PRECISION).map(Reverse).zip(Some(key.position)));
        }
    });
    factors.sort_unstable();
    let mut buffer = Vec::new();
    let mut needs = |(_, position): (_, usize)| {
        Some(measure.client(history.read(position, all.part, &mut buffer)?.arrivals))
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    factors.into_iter().take(most).filter_map(&mut needs).collect()
}

/// The largest number up to `most` that fits, if all smaller ones do; zero fits.
fn largest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}
