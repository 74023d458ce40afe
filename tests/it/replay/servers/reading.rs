//! Compares what a log says with what was sent.

use std::path::PathBuf;

use jiff::tz::TimeZone;
use tidegate::replay::{Arrivals, Format, LoggedRequest, ReadOptions, ReadSummary};
use tidegate::time::{Micros, Timestamp};

use super::traffic::{Request, Sent};
use crate::support::ZONE;

/// How exactly servers measure times in milliseconds, of which they drop the rest.
const TOLERANCE: Micros = Micros(5_000);

/// What a log has of requests.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    pub host: Host,
    /// Whether it has referer and user agent.
    pub has_headers: bool,
    /// Whether it has the names of users that no server has authenticated.
    pub has_users: bool,
    /// Whether it replaces what is not UTF-8.
    pub is_unicode: bool,
    pub times: Times,
}

/// The hosts in a log.
#[derive(Clone, Copy, Debug)]
pub enum Host {
    /// Those of absolute targets.
    OfTarget,
    /// Those of absolute targets, and this one for all other requests.
    Configured(&'static str),
    /// Those that were requested.
    OfRequest,
}

/// The times in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The end of each response, in seconds.
    EndSeconds,
    /// The arrival of each request, in seconds.
    ArrivalSeconds,
    /// Arrivals and durations, in milliseconds or less.
    Exact,
}

/// Reads logs, whose formats are found.
#[track_caller]
pub fn read(logs: &[PathBuf]) -> (Vec<Format>, Vec<LoggedRequest<'static>>, ReadSummary) {
    let options = ReadOptions { zone: TimeZone::posix(ZONE).unwrap(), ..ReadOptions::default() };
    let mut arrivals = Arrivals::open(logs, &options).unwrap();
    let formats = arrivals.formats().iter().map(|(_, format)| format.clone()).collect();
    let entries = arrivals.by_ref().collect();
    (formats, entries, arrivals.summary())
}

/// Checks that logs have this format, all that was sent, and `others` lines without a request.
#[track_caller]
pub fn check(logs: &[PathBuf], format: &Format, logged: Logged, sent: &[Sent], others: usize) {
    let (formats, entries, summary) = read(logs);
    assert!(formats.iter().all(|found| found == format), "{formats:?}");
    let texts = logs.iter().map(|log| String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned());
    let texts = texts.collect::<String>();
    let count = sent.len() as u64;
    let expected = ReadSummary {
        lines: count + others as u64,
        entries: count,
        without_request: others as u64,
        whole_seconds: if logged.times == Times::Exact { 0 } else { count },
        ..ReadSummary::default()
    };
    assert_eq!(summary, expected, "{format}:\n{texts}");
    assert!(entries.is_sorted_by_key(|entry| entry.arrival), "{format}");
    for (entry, sent) in entries.iter().zip(in_order(sent, logged.times)) {
        let case = format!("{format}, {:?}:\n{texts}", sent.request);
        assert_request(entry, &sent.request, logged, &case);
        assert_times(entry, sent, logged.times, &case);
    }
}

/// What was sent, in the order in which a log has it: a server that logs only the ends of responses has the slow request last.
fn in_order(sent: &[Sent], times: Times) -> Vec<&Sent> {
    let mut sent: Vec<&Sent> = sent.iter().collect();
    if times == Times::EndSeconds {
        sent.sort_by_key(|sent| sent.logged);
    }
    sent
}

#[track_caller]
fn assert_request(entry: &LoggedRequest<'_>, request: &Request, logged: Logged, case: &str) {
    let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
    let found = (&*entry.method, &*entry.target, entry.protocol.as_deref(), entry.status);
    let protocol = Some(request.protocol.as_bytes());
    let expected = (request.method.as_bytes(), request.target.as_bytes(), protocol, Some(request.status));
    assert_eq!(found, expected, "{case}");
    assert_eq!(entry.client, Some(request.client.parse().unwrap()), "{case}");
    let host = match logged.host {
        Host::OfTarget => request.absolute_host,
        Host::Configured(name) => request.absolute_host.or(Some(name)),
        Host::OfRequest => request.host,
    };
    assert_eq!(text(entry.host.as_deref()).as_deref(), host, "{case}");
    let referer = request.referer.filter(|_| logged.has_headers);
    assert_eq!(text(entry.referer.as_deref()).as_deref(), referer, "{case}");
    let user = request.user.filter(|_| logged.has_users);
    assert_eq!(text(entry.user.as_deref()).as_deref(), user, "{case}");
    let agent = request.user_agent.filter(|_| logged.has_headers);
    if logged.is_unicode {
        assert_eq!(text(entry.user_agent.as_deref()), text(agent), "{case}");
    } else {
        assert_eq!(entry.user_agent.as_deref(), agent, "{case}");
    }
    assert!(entry.bytes >= Some(6) || request.method == "HEAD", "{case}");
}

#[track_caller]
fn assert_times(entry: &LoggedRequest<'_>, sent: &Sent, times: Times, case: &str) {
    let tolerance = if times == Times::Exact { TOLERANCE } else { Micros::SECOND };
    let earliest = Timestamp(sent.since.0 - tolerance.0);
    assert!((earliest..=sent.logged.after(tolerance)).contains(&entry.end()), "{case}");
    assert!((earliest..=sent.logged.after(tolerance)).contains(&entry.arrival), "{case}");
    assert_eq!(entry.duration.is_some(), times == Times::Exact, "{case}");
    if let Some(duration) = entry.duration {
        assert!(duration.0 + TOLERANCE.0 >= sent.held.0, "{duration:?}, {case}");
        assert!(duration.0 <= sent.logged.since(sent.since).0 + TOLERANCE.0, "{duration:?}, {case}");
    }
}
