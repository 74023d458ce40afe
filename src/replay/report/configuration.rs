//! What a configuration would have done, and what limits the accuracy of a report, in sentences.

use serde::Serialize;

use super::limit::{LimitReport, RouteReport, SeriesReport};
use super::utc_second;
use crate::config::Loaded;
use crate::gate::Gate;
use crate::replay::arrivals::ReadSummary;
use crate::replay::format::Format;
use crate::replay::part_sources::LogAdvice;
use crate::replay::replayer::Findings;
use crate::replay::results::LogCounts;
use crate::replay::suggest::{SlotsSuggestion, SuggestSettings, Suggestion, WrittenLimits};
use crate::text::counted;

/// A configuration with the name of its file, and its limits as the file has them.
pub struct NamedConfig {
    /// The name of the file; none for the configuration that is used without one.
    pub file: Option<String>,
    /// The configuration.
    pub loaded: Loaded,
    /// Its limits as the file has them.
    pub written: WrittenLimits,
}

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

impl ConfigurationReport {
    /// What a configuration would have done; `format` is that of the first log. Limits are suggested if there are settings for them.
    #[must_use]
    pub fn new(
        NamedConfig { file, loaded, written }: &NamedConfig,
        findings: Findings,
        format: Option<&Format>,
        settings: Option<&SuggestSettings>,
    ) -> Self {
        let gate = &loaded.config.snapshot.gate;
        let (suggestions, left_out) =
            settings.map(|settings| findings.suggestions(settings, written)).unwrap_or_default();
        let slots = settings.map(|settings| findings.slots(gate, settings)).unwrap_or_default();
        let notes = findings_notes(gate, &findings, left_out);
        let results = findings.results;
        let only_client = results.only_client().filter(|_| results.counts.all > 1);
        let only_client = only_client.map(|client| client.to_string());
        let mut advice = format.map(|format| LogAdvice::new(format.clone(), results.extra_fields));
        Self {
            file: file.clone(),
            requests: results.counts,
            period_us: results.period.map(|(first, last)| (first.0, last.0)),
            series: SeriesReport::new(&results.series),
            routes: RouteReport::most_used(gate, &results.routes),
            only_client,
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

/// How many dates are shown of requests that are left out.
const SHOWN_DATES: usize = 5;

/// About the reading of the logs.
#[must_use]
pub fn notes(summary: &ReadSummary) -> Vec<String> {
    let mut notes = Vec::new();
    for (log, error) in &summary.broken {
        notes.push(format!("{log} was not read to its end: {error}"));
    }
    if summary.whole_seconds > 0 {
        let of = counted_u64(summary.whole_seconds, "request");
        notes.push(format!(
            "the times of {of} have no fraction; their arrivals are spread evenly within their second, so bursts of less than \
             a second can't be seen; suggestions take all requests of a key in one second for simultaneous"
        ));
    }
    if summary.late > 0 {
        let of = counted_u64(summary.late, "request");
        let cure = if summary.is_unsorted() {
            "the log is not sorted by time, so the numbers are wrong: sort it, or set a longer --window"
        } else {
            "a longer --window avoids this"
        };
        notes.push(format!("{of} arrived before the window for reordering, and are played late; {cure}"));
    }
    if !summary.far_dates.is_empty() {
        let of = counted(summary.far_dates.len(), "request");
        let mut dates: Vec<String> =
            summary.far_dates.iter().take(SHOWN_DATES).map(|date| utc_second(date.0)).collect();
        dates.extend((summary.far_dates.len() > SHOWN_DATES).then(|| "…".to_owned()));
        notes.push(format!(
            "{of} left out, dated far from all others ({}): correct or remove the lines",
            dates.join(", ")
        ));
    }
    if summary.is_window_cut {
        notes.push(
            "the window for reordering had more requests than are kept, and was shorter at times".to_owned(),
        );
    }
    notes
}

/// About the results of one configuration.
pub(super) fn findings_notes(gate: &Gate, findings: &Findings, left_out: u64) -> Vec<String> {
    let results = &findings.results;
    let mut notes = Vec::new();
    if results.only_client().is_some() && results.counts.all > 1 {
        notes.push(
            "all requests have one client; if that is a proxy, name the field with the address of the client: --client-from \
             FIELD"
                .to_owned(),
        );
    }
    if results.with_host == 0
        && results.counts.unrouted > 0
        && gate.routes.routes().iter().any(|route| route.host.is_some())
    {
        notes.push("the log has no host, and some routes are for one host: name it with --host".to_owned());
    }
    if findings.evictions > 0 {
        let of = counted_u64(findings.evictions, "time");
        notes.push(format!(
            "there were more keys than --max-keys: {of} a key started again without its counts, so more would have been denied"
        ));
    }
    for (limit, count) in &findings.unknown_costs {
        let (name, of) = (&gate.limits.policies[*limit].name, counted_u64(*count, "request"));
        notes.push(format!(
            "the log does not tell what {of} cost limit {name}: they stay charged with what was reserved; see tidegate replay \
             --help for the fields"
        ));
    }
    if left_out > 0 {
        let of = counted_u64(left_out, "request");
        notes.push(format!(
            "there are too many limits and routes to suggest limits for all: {of} are left out"
        ));
    }
    notes
}

fn counted_u64(count: u64, thing: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), thing)
}
