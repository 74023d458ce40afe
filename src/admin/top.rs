//! Reports the most frequent keys of limits, the keys that limits deny, and the requests that upstreams refuse.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::api::{KeyList, KeyStatus, TopClass, TopKey, TopLimit, TopList, TopUpstream};
use super::keys::{KeyOperations, consumer_of, max_listed, parameters};
use super::limits;
use super::response::AdminError;
use super::state::Admin;
use crate::limit::{Policy, PolicyId};
use crate::overload::Class;
use crate::telemetry::{Counter, KeyConsumer, Summary, TopBy, TopWindow};
use crate::time::monotonic;

/// The value of `by` for what upstreams have refused.
const REFUSALS: &str = "refusals";
/// How many keys of a limit are listed by default.
const DEFAULT_LISTED: usize = 10;
/// The most keys of a limit that can be listed.
const MAX_LISTED: usize = 100;

/// The parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopQuery {
    /// The most frequent keys.
    Keys(KeyQuery),
    /// The upstreams that refuse the most.
    Refusals(TopWindow),
}

/// The parameters of a request for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyQuery {
    window: TopWindow,
    by: TopBy,
    /// None for all limits.
    limit: Option<PolicyId>,
    count: usize,
}

impl TopQuery {
    /// Parses a query.
    pub fn parse(query: &str, keys: &KeyOperations<'_>) -> Result<Self, AdminError> {
        let [window, by, limit, count] = parameters(query, ["window", "by", "limit", "count"])?;
        let window = window.map_or(Ok(TopWindow::TenMinutes), |window| parse_window(&window))?;
        if by.as_deref() == Some(REFUSALS) {
            return if limit.is_none() && count.is_none() {
                Ok(Self::Refusals(window))
            } else {
                Err(AdminError::bad_request(
                    "refusals of upstreams have no `limit` and no `count`".to_owned(),
                ))
            };
        }
        Ok(Self::Keys(KeyQuery {
            window,
            by: by.map_or(Ok(TopBy::Denials), |by| parse_by(&by))?,
            limit: limit.map(|limit| keys.limit(&limit)).transpose()?,
            count: count.map_or(Ok(DEFAULT_LISTED), |count| parse_count(&count))?,
        }))
    }
}

/// The most frequent keys, or the upstreams that refuse the most.
pub(super) fn list(admin: &Admin, query: &TopQuery) -> TopList {
    match query {
        TopQuery::Keys(query) => keys(admin, query),
        TopQuery::Refusals(window) => refusals(admin, *window),
    }
}

/// What upstreams with `overload` have refused, by class.
fn refusals(admin: &Admin, window: TopWindow) -> TopList {
    let span = Duration::from_secs(window.minutes() * 60);
    let (refusals, covered) = admin.activity.refusals(span, &admin.metrics);
    let upstream = |(name, counts): (Arc<str>, [u64; Class::COUNT])| {
        let classes = Class::ALL.iter().zip(counts).filter(|(_, count)| *count > 0);
        TopUpstream {
            upstream: name.to_string(),
            total: counts.iter().sum(),
            classes: classes.map(|(class, count)| TopClass { class: class.to_string(), count }).collect(),
        }
    };
    TopList {
        by: REFUSALS.to_owned(),
        window: format!("{}m", window.minutes()),
        seconds: covered.as_secs(),
        limits: Vec::new(),
        upstreams: refusals.ranked().into_iter().map(upstream).collect(),
    }
}

/// The most frequent keys of one limit or of all.
fn keys(admin: &Admin, query: &KeyQuery) -> TopList {
    let KeyQuery { window, by, limit, count } = *query;
    let gate = &admin.snapshot.gate;
    let limits: Vec<&Policy> = match limit {
        Some(limit) => vec![&gate.limits.policies[limit]],
        None => gate.limits().map(|(_, policy)| policy).collect(),
    };
    let (names, now) = (limits.iter().map(|policy| &*policy.name), monotonic());
    let summaries = admin.top.as_ref().map(|top| top.summaries(names, (window, by), now)).unwrap_or_default();
    let seconds = admin.top.as_ref().map_or(0, |top| top.covered(window, now).as_secs());
    let limits = limits.iter().zip(&summaries);
    let mut limits: Vec<TopLimit> =
        limits.map(|(policy, summary)| top_limit(policy, summary, count, admin.shows_key_names)).collect();
    limits.sort_by_key(|limit| Reverse(limit.total));
    let by = match by {
        TopBy::Denials => "denials",
        TopBy::Traffic => "traffic",
    };
    TopList {
        by: by.to_owned(),
        window: format!("{}m", window.minutes()),
        seconds,
        limits,
        upstreams: Vec::new(),
    }
}

fn top_limit(policy: &Policy, summary: &Summary, count: usize, shows_names: bool) -> TopLimit {
    TopLimit {
        limit: policy.name.to_string(),
        mode: policy.mode().to_owned(),
        total: summary.events(),
        max_error: summary.max_error(),
        keys: summary.counters().iter().take(count).map(|counter| top_key(counter, shows_names)).collect(),
    }
}

fn top_key(counter: &Counter, shows_names: bool) -> TopKey {
    let label = counter.label.as_deref();
    let name = label.filter(|_| shows_names).and_then(|label| label.name.as_deref());
    TopKey {
        consumer: consumer_of(counter),
        several_consumers: label.is_some_and(|label| label.consumer == KeyConsumer::Several),
        key: limits::tag(counter.key),
        name: name.map(str::to_owned),
        count: counter.count,
        error: counter.error,
    }
}

fn parse_window(text: &str) -> Result<TopWindow, AdminError> {
    let seconds = humantime::parse_duration(text).map_or(0, |window| window.as_secs());
    let window = TopWindow::ALL.into_iter().find(|window| window.minutes() * 60 == seconds);
    window.ok_or_else(|| AdminError::bad_request(format!("`window` must be 1m, 10m or 60m, not `{text}`")))
}

fn parse_by(text: &str) -> Result<TopBy, AdminError> {
    match text {
        "denials" => Ok(TopBy::Denials),
        "traffic" => Ok(TopBy::Traffic),
        _ => Err(AdminError::bad_request(format!("`by` must be denials, traffic or refusals, not `{text}`"))),
    }
}

fn parse_count(text: &str) -> Result<usize, AdminError> {
    let count = text.parse().ok().filter(|count| (1..=MAX_LISTED).contains(count));
    count.ok_or_else(|| {
        AdminError::bad_request(format!("`count` must be from 1 to {MAX_LISTED}, not `{text}`"))
    })
}

/// The keys that limits have denied in the last hour, those with the most denials first.
pub(super) async fn denied_keys(keys: &KeyOperations<'_>, query: &str) -> Result<KeyList, AdminError> {
    let [limit, max] = parameters(query, ["limit", "max"])?;
    let max = max_listed(max)?;
    let gate = keys.gate;
    let limits: Vec<&Policy> = match limit {
        Some(limit) => vec![&gate.limits.policies[keys.limit(&limit)?]],
        None => gate.limits().map(|(_, policy)| policy).collect(),
    };
    let names = || limits.iter().map(|policy| &*policy.name);
    let counted = keys.top.map(|top| top.summaries(names(), (TopWindow::Hour, TopBy::Denials), monotonic()));
    let counted = counted.unwrap_or_default();
    let mut denied: Vec<(&str, &Counter)> = names()
        .zip(&counted)
        .flat_map(|(limit, summary)| summary.counters().iter().map(move |counter| (limit, counter)))
        .collect();
    denied.sort_by_key(|(_, counter)| Reverse(counter.count));
    let more = denied.len() > max;
    denied.truncate(max);
    let mut listed = KeyList { keys: Vec::new(), more };
    for (limit, counter) in denied {
        let consumer = consumer_of(counter);
        let statuses = keys.statuses(limit, &limits::tag(counter.key), consumer.as_deref()).await?;
        let with_denials =
            |status| KeyStatus { denials: Some(counter.count), consumer: consumer.clone(), ..status };
        listed.keys.extend(told(statuses).into_iter().map(with_denials));
    }
    Ok(listed)
}

/// The statuses that tell something: those of the tiers that have counted the key, or else the first.
fn told(statuses: Vec<KeyStatus>) -> Vec<KeyStatus> {
    let is_notable = statuses.iter().any(KeyStatus::is_notable);
    let count = if is_notable { statuses.len() } else { 1 };
    statuses.into_iter().filter(|status| !is_notable || status.is_notable()).take(count).collect()
}
