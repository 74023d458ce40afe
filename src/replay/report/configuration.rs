//! What a configuration would have done.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::format::Format;
use super::super::missing::LogAdvice;
use super::super::replayer::Findings;
use super::super::results::Results;
use super::super::suggest::{SlotsSuggestion, SuggestSettings, Suggestion};
use super::limit::LimitReport;
use super::notes::findings_notes;
use super::route::RouteReport;
use super::series::SeriesReport;
use crate::config::Loaded;

/// What a configuration would have done.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigurationReport {
    /// The name of the file; none without one.
    pub file: Option<String>,
    /// The requests.
    pub requests: LogCounts,
    /// The arrivals of the first and of the last request, in microseconds since 1970.
    pub period_us: Option<(u64, u64)>,
    /// Requests and denials over time.
    pub series: SeriesReport,
    /// The routes with the most requests first.
    pub routes: Vec<RouteReport>,
    /// What each limit would have done.
    pub limits: Vec<LimitReport>,
    /// Limits that are suggested.
    pub suggestions: Vec<Suggestion>,
    /// Numbers that are suggested for limits on concurrency.
    pub slots: Vec<SlotsSuggestion>,
    /// The client of all requests, if there is only one.
    pub only_client: Option<String>,
    /// What limits the accuracy of the results.
    pub notes: Vec<String>,
}

/// The requests of a log, by what would have happened to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogCounts {
    /// All.
    pub all: u64,
    /// Those that are forwarded, or get the response of their route.
    pub forwarded: u64,
    /// Those that a limit denies.
    pub denied: u64,
    /// Those without a route.
    pub unrouted: u64,
    /// Those that are rejected for another reason, by the reason.
    pub rejected: BTreeMap<String, u64>,
    /// Those of which the log has too little to play them, by the reason.
    pub unplayed: BTreeMap<String, u64>,
}

impl ConfigurationReport {
    /// What a configuration would have done; `file` is its name, and `format` the one of the first log. Limits are suggested
    /// if there are settings for them.
    #[must_use]
    pub fn new(
        (file, loaded): (Option<String>, &Loaded),
        findings: Findings,
        format: Option<&Format>,
        settings: Option<&SuggestSettings>,
    ) -> Self {
        let gate = &loaded.config.snapshot.gate;
        let (suggestions, left_out) =
            settings.map(|settings| findings.suggestions(settings)).unwrap_or_default();
        let slots = settings.map(|settings| findings.slots(gate, settings)).unwrap_or_default();
        let notes = findings_notes(gate, &findings, left_out);
        let results = findings.results;
        let mut advice = format.map(|format| LogAdvice::new(format.clone(), results.extra_fields));
        Self {
            file,
            requests: LogCounts::new(&results),
            period_us: results.period.map(|(first, last)| (first.0, last.0)),
            series: SeriesReport::new(&results.series),
            routes: RouteReport::most_used(gate, &results.routes),
            only_client: results
                .only_client()
                .filter(|_| results.requests > 1)
                .map(|client| client.to_string()),
            limits: gate
                .limits()
                .zip(results.limits)
                .map(|((id, _), results)| LimitReport::new(loaded, id, results, advice.as_mut()))
                .collect(),
            suggestions,
            slots,
            notes,
        }
    }
}

impl LogCounts {
    /// Whether the log had too little of every request to play it.
    #[must_use]
    pub fn are_none_played(&self) -> bool {
        self.unplayed.values().sum::<u64>() == self.all
    }

    fn new(results: &Results) -> Self {
        Self {
            all: results.requests,
            forwarded: results.forwarded,
            denied: results.denied,
            unrouted: results.unrouted,
            rejected: results.rejected.clone(),
            unplayed: results.unplayed.clone(),
        }
    }
}
