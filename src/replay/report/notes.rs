//! What limits the accuracy of a report, in sentences.

use super::super::replayer::Findings;
use super::super::summary::ReadSummary;
use crate::gate::Gate;
use crate::text::counted;

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
    if results.only_client().is_some() && results.requests > 1 {
        notes.push(
            "all requests have one client; if that is a proxy, name the field with the address of the client: --client-from \
             FIELD"
                .to_owned(),
        );
    }
    if results.with_host == 0
        && results.unrouted > 0
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
