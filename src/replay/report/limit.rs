//! What one limit would have done.

use serde::Serialize;

use super::super::missing::LogAdvice;
use super::super::results::LimitResults;
use super::super::tally::{Bin, Number};
use super::denied_key::DeniedKey;
use super::series::SeriesReport;
use crate::config::Loaded;
use crate::limit::PolicyId;

/// How many denied keys are listed.
const LISTED: usize = 20;

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
    /// Whether it is in shadow mode, so that its denials are the ones that it would make.
    pub shadow: bool,
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
    /// Requests that are rejected since they lack a part of its key.
    pub rejected: u64,
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
            numbers: loaded.limits[id].numbers.to_string(),
            key: gate.limit_rules[id].key.parts.iter().map(ToString::to_string).collect(),
            shadow: policy.shadow,
            requests: tally.requests(),
            denied: tally.denied(),
            keys: tally.keys(),
            denied_keys: tally.denied_keys(),
            exempt: results.exempt,
            rejected: results.rejected,
            missing: missing.collect(),
            worst: denied_bins.max_by_key(|bin| bin.denied),
            series: SeriesReport::new(tally.series()),
            denied_keys_by_count: tally.into_most_denied().into_iter().take(LISTED).map(Into::into).collect(),
        }
    }
}
