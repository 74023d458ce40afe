//! Chooses limits from the first part of a history, and checks them on the rest.

use serde::Serialize;

use super::admitted::admitted_in;
use super::burst::RATES;
use super::check::{Check, check};
use super::denied_clients::{DeniedClient, top_denied};
use super::distribution::{Distribution, Quantiles};
use super::history::{History, KeyCount, Part};
use super::limits::{LimitNumbers, Role, rate_text, units_per_minute};
use super::needs::Needs;
use super::peaks::{DAY, WINDOWS};
use super::settings::{ShareOf, SuggestSettings};
use super::subject::SuggestionSubject;
use super::warning::{Warning, allowed_exceptions};
use crate::limit::{Quota, Rate};
use crate::time::{Micros, Timestamp};

/// Limits, why they were chosen, and what they would have denied.
#[derive(Clone, Debug, Serialize)]
pub struct Suggestion {
    /// For what they are.
    pub subject: SuggestionSubject,
    /// What was asked for.
    pub settings: SuggestSettings,
    /// All requests of the log.
    pub requests: u64,
    /// All clients of the log.
    pub clients: KeyCount,
    /// How much clients do in each period, on the time of the fit.
    pub peaks: Vec<WindowPeaks>,
    /// Pairs of rate and burst that deny none or few of these clients.
    pub curve: Vec<CurvePoint>,
    /// The limits, which belong together.
    pub limits: Vec<SuggestedLimit>,
    /// What they deny on the time from which they were chosen.
    pub fit: Check,
    /// What they deny on the time that was held back; none if it has no requests.
    pub held_back: Option<Check>,
    /// What the limit of the configuration denies of the time that was held back, if there is one.
    pub current: Option<Check>,
    /// The clients of which most requests are denied, over all of the time.
    pub denied: Vec<DeniedClient>,
    /// Reasons to distrust it.
    pub warnings: Vec<Warning>,
}

/// The most units of clients in any period of one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowPeaks {
    /// The length, such as `1 min`.
    pub window: &'static str,
    /// Quantiles over clients.
    pub clients: Quantiles,
    /// Quantiles over requests: each counts with the value of its client.
    pub requests: Quantiles,
    /// For a plot: values from 0 on, each with the number of clients that have a larger one.
    pub steps: Vec<(u64, u64)>,
    /// The most units that the suggested limits admit in such a period to a client that has not used them.
    pub suggested: Option<u64>,
    /// The most units that the limit of the configuration admits in the same way, if there is one.
    pub current: Option<u64>,
}

/// A rate, and the least bursts with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurvePoint {
    /// The rate, such as `5/s`.
    pub rate: String,
    /// The units of the rate in a minute.
    pub per_minute: u64,
    /// The least burst that denies no request.
    pub for_all: u64,
    /// The least burst that denies requests of at most the share of clients that may be denied.
    pub at_most: u64,
    /// For a plot: bursts, each with the number of clients that need a larger one.
    pub steps: Vec<(u64, u64)>,
}

/// A limit with its numbers as text.
#[derive(Clone, Debug, Serialize)]
pub struct SuggestedLimit {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The rate, such as `5/s`.
    pub rate: String,
    /// What may be spent at once.
    pub burst: u64,
    /// The least burst or units that the clients of the fit need, before headroom and rounding.
    pub least: u64,
    /// Its numbers.
    #[serde(skip)]
    pub numbers: LimitNumbers,
}

/// Suggests limits for the keys of a history. `current` has the quotas of the limits in the configuration, if any. None if
/// there are no clients to choose from.
#[must_use]
pub fn suggest(
    history: &History,
    subject: SuggestionSubject,
    settings: &SuggestSettings,
    current: &[Quota],
) -> Option<Suggestion> {
    let (fit, held_back) = split(history.span()?, settings.fit);
    let needs = Needs::measure(history, fit);
    if needs.clients == 0 {
        return None;
    }
    let exceptions = exceptions(history, &needs, fit, settings);
    let limits = needs.limits(exceptions, Some(settings.headroom));
    let quotas = quotas(&limits);
    let checked = Some(check(history, held_back, &quotas).0).filter(|check| check.requests > 0);
    let of_current = || check(history, held_back, current).0;
    let held_back_requests = checked.as_ref().map_or(0, |check| check.requests);
    Some(Suggestion {
        settings: *settings,
        requests: history.requests(),
        clients: history.key_count(),
        peaks: peaks(&needs, &quotas, current),
        curve: curve(&needs, allowed_exceptions(settings.refuse_at_most, needs.clients)),
        limits: limits.iter().map(|limit| SuggestedLimit::new(&subject, *limit)).collect(),
        fit: check(history, fit, &quotas).0,
        current: (checked.is_some() && !current.is_empty()).then(of_current),
        denied: top_denied(history, &quotas),
        warnings: Warning::all(history, (&needs, exceptions), held_back_requests, settings),
        held_back: checked,
        subject,
    })
}

impl SuggestedLimit {
    fn new(subject: &SuggestionSubject, numbers: LimitNumbers) -> Self {
        Self {
            name: format!("{}-{}", subject.name, numbers.role.name()),
            role: numbers.role,
            rate: numbers.rate_text(),
            burst: numbers.burst,
            least: numbers.least,
            numbers,
        }
    }
}

/// The most clients that may exceed each limit so that all limits together, without headroom, deny at most the share.
fn exceptions(history: &History, needs: &Needs, fit: Part, settings: &SuggestSettings) -> u64 {
    let fits = |exceptions: u64| {
        let found = check(history, fit, &quotas(&needs.limits(exceptions, None))).0;
        let denied = match settings.of {
            ShareOf::Clients => found.client_share(),
            ShareOf::Requests => found.request_share(),
        };
        // A share such as 0.001 is not exact in binary.
        denied <= settings.refuse_at_most + 1e-12
    };
    let most = match settings.of {
        ShareOf::Clients => allowed_exceptions(settings.refuse_at_most, needs.clients),
        ShareOf::Requests => needs.clients / 2,
    };
    // Without exceptions nothing is denied. The more exceptions, the lower the limits, and the more is denied.
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = u64::midpoint(good, bad);
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

fn quotas(limits: &[LimitNumbers]) -> Vec<Quota> {
    limits.iter().filter_map(|limit| limit.quota().ok()).collect()
}

/// Divides the time in two. If it has two days or more, at midnight in UTC, so that both parts have whole days.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn split(span: Part, fit: f64) -> (Part, Part) {
    // The first instant always belongs to the fit.
    let exact = span.from.after(Micros(((span.length().0 as f64 * fit) as u64).max(1)));
    let midnight = Timestamp((exact.0 + DAY.0 / 2) / DAY.0 * DAY.0);
    let is_inside = span.from < midnight && midnight < span.until;
    let at = if is_inside && span.length() >= Micros(2 * DAY.0) { midnight } else { exact };
    (Part { from: span.from, until: at }, Part { from: at, until: span.until })
}

fn peaks(needs: &Needs, suggested: &[Quota], current: &[Quota]) -> Vec<WindowPeaks> {
    let of = |(distribution, (window, length)): (&Distribution, (&'static str, Micros))| WindowPeaks {
        window,
        clients: distribution.of_clients(),
        requests: distribution.of_requests(),
        steps: std::iter::once((0, needs.clients)).chain(distribution.steps()).collect(),
        suggested: admitted_in(suggested, length),
        current: admitted_in(current, length),
    };
    needs.peaks.iter().zip(WINDOWS).map(of).collect()
}

/// The curve, without rates beyond the first with which the least burst that denies none no longer falls.
fn curve(needs: &Needs, exceptions: u64) -> Vec<CurvePoint> {
    let point = |rate: Rate, place: usize| CurvePoint {
        rate: rate_text(rate),
        per_minute: units_per_minute(rate),
        for_all: needs.bursts[place].exceeded_by(0),
        at_most: needs.bursts[place].exceeded_by(exceptions),
        steps: needs.bursts[place].steps(),
    };
    let mut points: Vec<CurvePoint> = (0..RATES).map(|place| point(needs.grid.rates[place], place)).collect();
    let last = points.last().map_or(0, |last| last.for_all);
    let flat = points.iter().position(|point| point.for_all == last).unwrap_or_default();
    points.truncate(flat + 1);
    points
}
