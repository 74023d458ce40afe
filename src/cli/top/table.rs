//! The most frequent keys as a table.

use std::time::Duration;

use crate::admin::api::{TopKey, TopLimit, TopList};
use crate::cli::table::aligned;
use crate::time::format_duration;

/// Formats a table of keys, those of one consumer if there is one, or a message if there are none.
pub(super) fn format(list: &TopList, consumer: Option<&str>) -> String {
    let (what, column) = match &*list.by {
        "denials" => ("denials", "DENIALS"),
        _ => ("requests of limits", "REQUESTS"),
    };
    let whose = consumer.map_or_else(String::new, |name| format!(" of the consumer {name}"));
    let time = format_duration(Duration::from_secs(list.seconds.max(1)));
    let rows: Vec<[String; 5]> =
        list.limits.iter().flat_map(|limit| limit.keys.iter().map(|key| row(limit, key))).collect();
    if rows.is_empty() {
        return format!("no {what}{whose} in the last {time}");
    }
    let title = format!("{what}{whose} in the last {time}\n");
    let lines = aligned(["LIMIT", "CONSUMER", "KEY", column, "SHARE"], rows.into_iter());
    [vec![title], lines].concat().join("\n")
}

fn row(limit: &TopLimit, key: &TopKey) -> [String; 5] {
    let name = match &*limit.mode {
        "shadow" => format!("{} (shadow)", limit.limit),
        _ => limit.limit.clone(),
    };
    let consumer = match &key.consumer {
        Some(name) => name.clone(),
        None if key.several_consumers => "(several)".to_owned(),
        None => "-".to_owned(),
    };
    let shown = key.name.as_ref().unwrap_or(&key.key).clone();
    let count = match key.error {
        0 => key.count.to_string(),
        error => format!("{}-{}", key.count.saturating_sub(error), key.count),
    };
    [name, consumer, shown, count, format!("{} %", percent(key.count, limit.total))]
}

/// The share of a count in percent, rounded down.
fn percent(count: u64, total: u64) -> u64 {
    count.saturating_mul(100).checked_div(total).unwrap_or_default().min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(consumer: Option<&str>, count: u64, error: u64) -> TopKey {
        TopKey {
            consumer: consumer.map(str::to_owned),
            several_consumers: false,
            key: "tag:lOi_WN7gUW3I4LyfzWuHMA".to_owned(),
            name: None,
            count,
            error,
        }
    }

    fn limit(name: &str, mode: &str, keys: Vec<TopKey>) -> TopLimit {
        TopLimit { limit: name.to_owned(), mode: mode.to_owned(), total: 400, max_error: 4, keys }
    }

    #[test]
    fn counts_that_may_be_too_high_are_ranges() {
        let plain = TopKey { name: Some("10.0.0.1".to_owned()), several_consumers: true, ..key(None, 7, 0) };
        let list = TopList {
            by: "denials".to_owned(),
            window: "10m".to_owned(),
            seconds: 570,
            limits: vec![
                limit("per-consumer", "enforce", vec![key(Some("acme"), 300, 0), key(None, 99, 3)]),
                limit("wide", "shadow", vec![plain]),
                limit("quiet", "enforce", vec![]),
            ],
        };
        assert_eq!(
            format(&list, None),
            "denials in the last 9m 30s

LIMIT          CONSUMER   KEY                         DENIALS  SHARE
per-consumer   acme       tag:lOi_WN7gUW3I4LyfzWuHMA  300      75 %
per-consumer   -          tag:lOi_WN7gUW3I4LyfzWuHMA  96-99    24 %
wide (shadow)  (several)  10.0.0.1                    7        1 %"
        );
    }

    #[test]
    fn a_time_without_events_is_stated() {
        let list = TopList {
            by: "traffic".to_owned(),
            window: "1m".to_owned(),
            seconds: 59,
            limits: vec![limit("quiet", "enforce", vec![])],
        };
        assert_eq!(format(&list, None), "no requests of limits in the last 59s");
    }
}
