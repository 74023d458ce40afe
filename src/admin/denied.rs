//! Lists the keys that limits deny, with what is stored of them.

use std::cmp::Reverse;

use super::api::{KeyList, KeyStatus};
use super::keys::{KeyOperations, max_listed, parameters};
use super::names;
use super::response::AdminError;
use crate::limit::Policy;
use crate::telemetry::{Counter, KeyConsumer, TopBy, TopKeys, TopWindow};
use crate::time::monotonic;

/// The keys that limits have denied in the last hour, those with the most denials first.
pub(super) async fn list(
    keys: &KeyOperations<'_>,
    top: Option<&TopKeys>,
    query: &str,
) -> Result<KeyList, AdminError> {
    let [limit, max] = parameters(query, ["limit", "max"])?;
    let max = max_listed(max)?;
    let gate = keys.gate;
    let limits: Vec<&Policy> = match limit {
        Some(limit) => vec![&gate.limits.policies[keys.limit(&limit)?]],
        None => gate.limits().map(|(_, policy)| policy).collect(),
    };
    let names = || limits.iter().map(|policy| &*policy.name);
    let counted = top.map(|top| top.summaries(names(), (TopWindow::Hour, TopBy::Denials), monotonic()));
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
        let statuses = told(keys.statuses(limit, &names::tag(counter.key)).await?);
        listed.keys.extend(statuses.into_iter().map(|status| with_denials(status, counter)));
    }
    Ok(listed)
}

/// The statuses that tell something: those of the tiers that have counted the key, or else the first.
fn told(statuses: Vec<KeyStatus>) -> Vec<KeyStatus> {
    let is_notable = statuses.iter().any(KeyStatus::is_notable);
    let count = if is_notable { statuses.len() } else { 1 };
    statuses.into_iter().filter(|status| !is_notable || status.is_notable()).take(count).collect()
}

fn with_denials(status: KeyStatus, counter: &Counter) -> KeyStatus {
    let consumer = match counter.label.as_deref().map(|label| &label.consumer) {
        Some(KeyConsumer::One(name)) => Some(name.to_string()),
        _ => None,
    };
    KeyStatus { denials: Some(counter.count), consumer, ..status }
}
