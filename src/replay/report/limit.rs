//! What a limit or a route would have done: counts, the keys with most denials, and requests and denials over time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::Loaded;
use crate::gate::{Gate, RouteId};
use crate::limit::{Key, PolicyId};
use crate::replay::part_sources::LogAdvice;
use crate::replay::results::{LimitResults, RouteResults};
use crate::replay::tally::{Bin, KeyDenials, Number, Series};

/// How many denied keys are listed.
const LISTED_KEYS: usize = 20;

/// What one limit would have done.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    /// Its name.
    pub name: String,
    /// Its algorithm.
    pub algorithm: &'static str,
    /// Its numbers as the configuration has them.
    pub numbers: String,
    /// The parts of its key.
    pub key: Vec<String>,
    /// Its mode. In `shadow` and `mark` its denials are the ones that it would make.
    pub mode: &'static str,
    /// The requests that it decides.
    pub requests: u64,
    /// Those that it denies.
    pub denied: u64,
    /// Its keys.
    pub keys: Number,
    /// Those of which requests are denied.
    pub denied_keys: Number,
    /// Requests that it exempts.
    pub exempt: u64,
    /// Requests that are denied since they lack a part of its key.
    pub without_key: u64,
    /// The parts of its key that requests of the log lack.
    pub missing: Vec<MissingPartReport>,
    /// The keys with the most denials.
    pub denied_keys_by_count: Vec<DeniedKey>,
    /// The span of time with the most denials.
    pub worst: Option<Bin>,
    /// Requests and denials over time.
    pub series: SeriesReport,
}

/// A part of a key that requests of the log lack.
#[derive(Clone, Debug, Serialize)]
pub struct MissingPartReport {
    /// The part.
    pub part: String,
    /// How many requests lack it.
    pub requests: u64,
    /// How many there are.
    pub of: u64,
    /// What to add to the log if all requests lack it.
    pub cure: Option<String>,
}

impl LimitReport {
    /// What a limit would have done; `advice` is about the log.
    pub(super) fn new(
        loaded: &Loaded,
        id: PolicyId,
        results: LimitResults,
        mut advice: Option<&mut LogAdvice>,
    ) -> Self {
        let gate = &loaded.config.snapshot.gate;
        let policy = &gate.limits.policies[id];
        let tally = results.tally;
        let denied_bins = tally.series().bins().filter(|bin| bin.denied > 0);
        let missing = results.missing.iter().filter(|(_, lacking)| *lacking > 0);
        let missing = missing.map(|(part, lacking)| MissingPartReport {
            part: part.to_string(),
            requests: *lacking,
            of: results.requests,
            cure: advice
                .as_mut()
                .filter(|_| *lacking == results.requests)
                .map(|advice| advice.how_to_log(part)),
        });
        Self {
            name: policy.name.to_string(),
            algorithm: policy.quota.algorithm().name(),
            numbers: gate.numbers[id].to_string(),
            key: gate.limit_rules[id].key.parts.iter().map(ToString::to_string).collect(),
            mode: policy.mode(),
            requests: tally.requests(),
            denied: tally.denied(),
            keys: tally.keys(),
            denied_keys: tally.denied_keys(),
            exempt: results.exempt,
            without_key: results.without_key,
            missing: missing.collect(),
            worst: denied_bins.max_by_key(|bin| bin.denied),
            series: SeriesReport::new(tally.series()),
            denied_keys_by_count: tally
                .into_most_denied()
                .into_iter()
                .take(LISTED_KEYS)
                .map(Into::into)
                .collect(),
        }
    }
}

/// A key with many denials.
#[derive(Clone, Debug, Serialize)]
pub struct DeniedKey {
    /// The values of its parts, or its tag.
    pub name: String,
    /// Its denials, perhaps up to `error` too many.
    pub denied: u64,
    /// By how much `denied` may be too high.
    pub error: u64,
    /// Its first denial, in microseconds since 1970.
    pub first_us: u64,
    /// Its last denial.
    pub last_us: u64,
    /// Its denials by the hour of the day, in UTC.
    pub hours: [u64; 24],
}

impl From<KeyDenials> for DeniedKey {
    fn from(denials: KeyDenials) -> Self {
        let tag = || format!("{}{}", Key::TAG, denials.key);
        Self {
            name: denials.label.name.as_deref().map_or_else(tag, str::to_owned),
            denied: denials.count,
            error: denials.error,
            first_us: denials.first.0,
            last_us: denials.last.0,
            hours: denials.hours,
        }
    }
}

/// Requests and denials over time.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesReport {
    /// The length of each span of time, in microseconds.
    pub bin_us: u64,
    /// The spans, without gaps.
    pub bins: Vec<Bin>,
}

impl SeriesReport {
    pub(super) fn new(series: &Series) -> Self {
        Self { bin_us: series.width().0, bins: series.bins().collect() }
    }
}

/// How many routes are listed.
const LISTED_ROUTES: usize = 1_000;

/// What would have happened to the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteReport {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Those that a limit would have denied.
    pub denied: u64,
}

impl RouteReport {
    /// The routes with the most requests first.
    pub(super) fn most_used(gate: &Gate, results: &BTreeMap<RouteId, RouteResults>) -> Vec<Self> {
        let mut routes: Vec<(&RouteId, &RouteResults)> = results.iter().collect();
        routes.sort_by_key(|(id, route)| (Reverse(route.requests), **id));
        let report = |(id, route): (&RouteId, &RouteResults)| Self {
            name: gate.routes.get(*id).name.to_string(),
            requests: route.requests,
            denied: route.denied,
        };
        routes.into_iter().take(LISTED_ROUTES).map(report).collect()
    }
}
