//! Compares what is expected of a request with what has become of it.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;

use super::observed::{Observed, ObservedLimit};
use crate::config::{Expectation, Loaded, Outcome};
use crate::time::{Micros, format_duration};

/// A difference between what is expected and what happens.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    /// The key of `expect`, such as `route` or `keys.per-address`.
    pub key: String,
    pub expected: String,
    pub actual: String,
}

/// The differences, in the order of the keys of `expect`.
pub(super) fn compare(loaded: &Loaded, expect: &Expectation, observed: &Observed) -> Vec<Difference> {
    let mut all = Differences(Vec::new());
    let why = if observed.why.is_empty() { String::new() } else { format!(" ({})", observed.why) };
    if let Some(outcome) = expect.outcome.filter(|outcome| *outcome != observed.outcome) {
        all.add("outcome", quoted(outcome.word()), format!("{}{why}", quoted(observed.outcome.word())));
    }
    all.name("route", expect.route.as_deref(), observed.route.as_deref());
    if let Some(expected) = &expect.limits {
        let (expected, actual) =
            (sorted(expected.iter()), sorted(observed.limits.iter().map(|limit| &limit.name)));
        if expected != actual {
            all.add("limits", listed(&expected), listed(&actual));
        }
    }
    let by_limit = |name: &str| observed.limits.iter().find(|limit| limit.name == name);
    for (name, expected) in expect.keys.iter().flatten() {
        let limit = by_limit(name);
        if !limit.is_some_and(|limit| has_key(loaded, limit, expected)) {
            all.add(&format!("keys.{name}"), quoted(expected), limit.map_or_else(uncounted, shown_key));
        }
    }
    for (name, expected) in expect.tiers.iter().flatten() {
        let tier = by_limit(name).and_then(|limit| limit.tier.as_deref());
        all.name(&format!("tiers.{name}"), Some(expected), tier);
    }
    all.name("consumer", expect.consumer.as_deref(), observed.consumer.as_deref());
    if let Some(expected) = expect.status.filter(|status| Some(*status) != observed.status) {
        all.add("status", expected, shown_status(observed, &why));
    }
    all.name("limit", expect.limit.as_deref(), observed.limit.as_deref());
    compare_times(&mut all, expect, observed);
    if let Some(expected) = expect.allowed.filter(|allowed| *allowed != observed.allowed) {
        all.add("allowed", expected, observed.allowed);
    }
    for (name, expected) in expect.remaining.iter().flatten() {
        let remaining = by_limit(name).map(|limit| limit.remaining);
        if remaining != Some(*expected) {
            let actual = remaining.map_or_else(uncounted, |remaining| remaining.to_string());
            all.add(&format!("remaining.{name}"), expected, actual);
        }
    }
    all.0
}

fn compare_times(all: &mut Differences, expect: &Expectation, observed: &Observed) {
    let wait = observed.retry_after.map(Duration::from_secs);
    if let Some(expected) = expect.retry_after.filter(|expected| Some(*expected) != wait) {
        let actual = wait.map_or_else(|| "none".to_owned(), |wait| quoted(&format_duration(wait)));
        all.add("retry_after", quoted(&format_duration(expected)), actual);
    }
    if let Some(expected) = expect.delay.filter(|expected| Micros::from(*expected) != observed.delay) {
        let actual = format_duration(observed.delay.into());
        all.add("delay", quoted(&format_duration(expected)), quoted(&actual));
    }
}

struct Differences(Vec<Difference>);

impl Differences {
    fn add(&mut self, key: &str, expected: impl Display, actual: impl Display) {
        let (expected, actual) = (expected.to_string(), actual.to_string());
        self.0.push(Difference { key: key.to_owned(), expected, actual });
    }

    /// Compares a name; an empty expected one is for none.
    fn name(&mut self, key: &str, expected: Option<&str>, actual: Option<&str>) {
        let Some(expected) = expected else { return };
        let expected = Some(expected).filter(|name| !name.is_empty());
        if expected != actual {
            let shown = |name: Option<&str>| name.map_or_else(|| "none".to_owned(), quoted);
            self.add(key, shown(expected), shown(actual));
        }
    }
}

/// Whether a limit counts by the key with this name.
fn has_key(loaded: &Loaded, limit: &ObservedLimit, name: &str) -> bool {
    let gate = &loaded.config.snapshot.gate;
    let keys = gate.limit_named(&limit.name).map(|id| gate.keys(id));
    let is_named = keys.and_then(|keys| keys.named(name).ok()).is_some_and(|named| named.key == limit.key);
    is_named || limit.key_name.as_deref() == Some(name)
}

fn shown_key(limit: &ObservedLimit) -> String {
    let hidden = || "another key, which is not shown since it may be a secret".to_owned();
    limit.key_name.as_deref().map_or_else(hidden, quoted)
}

fn shown_status(observed: &Observed, why: &str) -> String {
    match observed.status {
        Some(status) => format!("{status}{why}"),
        None if observed.outcome == Outcome::Forwarded => format!("none: it is forwarded{why}"),
        None => "none".to_owned(),
    }
}

fn uncounted() -> String {
    "none: the limit does not count the request".to_owned()
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { format!("{names:?}") }
}
