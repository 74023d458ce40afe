//! The status of keys as a table.

use std::time::Duration;

use crate::admin::api::{KeyList, KeyStatus, RaiseInfo, RaisesList};
use crate::cli::table::aligned;
use crate::time::format_duration;

const HEADER: [&str; 5] = ["LIMIT", "KEY", "STATE", "LEFT", "RESET IN"];
const DENIED_HEADER: [&str; 7] = ["LIMIT", "CONSUMER", "KEY", "DENIED", "STATE", "LEFT", "RESET IN"];

const RAISES_HEADER: [&str; 5] = ["LIMIT", "KEY", "RAISED BY", "UNTIL", "STARTED BY"];

/// Formats a table of keys, or a message if there are none.
pub(super) fn format(list: &KeyList) -> String {
    if list.keys.is_empty() && !list.more {
        return "no keys: nothing has been charged, or all of it has been refilled".to_owned();
    }
    let mut lines = aligned(HEADER, list.keys.iter().map(row));
    if list.more {
        lines.push("and more: list them with a larger --max".to_owned());
    }
    lines.join("\n")
}

/// Formats a table of denied keys, those of one consumer if there is one, or a message if there are none.
pub(super) fn format_denied(list: &KeyList, consumer: Option<&str>) -> String {
    if list.keys.is_empty() {
        let whose = consumer.map_or_else(String::new, |name| format!(" of the consumer {name}"));
        return format!("no keys: nothing{whose} was denied in the last hour");
    }
    let row = |status: &KeyStatus| {
        let [limit, key, state, left, reset] = row(status);
        let denied = status.denials.unwrap_or_default().to_string();
        [limit, status.consumer.clone().unwrap_or_else(|| "-".to_owned()), key, denied, state, left, reset]
    };
    let mut lines = aligned(DENIED_HEADER, list.keys.iter().map(row));
    if list.more {
        lines.push("and more: list them with a larger --max".to_owned());
    }
    lines.join("\n")
}

/// Formats a table of raises, or a message if there are none.
pub(super) fn format_raises(list: &RaisesList) -> String {
    if list.raises.is_empty() {
        return "no keys are raised".to_owned();
    }
    let row = |raise: &RaiseInfo| {
        let RaiseInfo { limit, key, by, until, started_by } = raise.clone();
        [limit, key, by, until, started_by]
    };
    aligned(RAISES_HEADER, list.raises.iter().map(row)).join("\n")
}

fn row(status: &KeyStatus) -> [String; 5] {
    let limit = match &status.tier {
        Some(tier) => format!("{}.{tier}", status.limit),
        None => status.limit.clone(),
    };
    let until = status.until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
    let state = match status.cause.as_deref() {
        None => "allowed".to_owned(),
        Some("quota") => "used up".to_owned(),
        Some("ban") => format!("banned{until}"),
        Some("block") => format!("blocked{until}"),
        Some(other) => format!("{other}{until}"),
    };
    let left = format!("{} of {}", status.remaining, status.of);
    let state = match &status.raised {
        Some(factor) => format!("{state}, raised by {factor}"),
        None => state,
    };
    [limit, status.key.clone(), state, left, format_span(status.reset_after)]
}

/// Formats seconds, rounded up: to milliseconds below a second, and to whole seconds above.
fn format_span(seconds: f64) -> String {
    let Ok(span) = Duration::try_from_secs_f64(seconds) else { return "?".to_owned() };
    if span.is_zero() {
        return "-".to_owned();
    }
    let unit = if span < Duration::from_secs(1) { 1_000 } else { 1_000_000 };
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).div_ceil(unit).saturating_mul(unit);
    format_duration(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let status = KeyStatus {
            limit: "per-key".into(),
            tier: None,
            key: "tag:lOi_WN7gUW3I4LyfzWuHMA".into(),
            allowed: true,
            cause: None,
            denials: None,
            consumer: None,
            of: 5,
            remaining: 3,
            raised: None,
            reset_after: 23.2,
            until: None,
        };
        let banned = KeyStatus {
            tier: Some("pro".into()),
            allowed: false,
            cause: Some("ban".into()),
            remaining: 0,
            reset_after: 0.25,
            until: Some("2026-11-20T21:00:00Z".into()),
            ..status.clone()
        };
        let table = format(&KeyList { keys: vec![status, banned], more: true });
        assert_eq!(
            table,
            "LIMIT        KEY                         STATE                              LEFT    RESET IN
per-key      tag:lOi_WN7gUW3I4LyfzWuHMA  allowed                            3 of 5  24s
per-key.pro  tag:lOi_WN7gUW3I4LyfzWuHMA  banned until 2026-11-20T21:00:00Z  0 of 5  250ms
and more: list them with a larger --max"
        );
    }

    #[test]
    fn spans_round_up() {
        for (seconds, text) in
            [(0.0, "-"), (0.000_001, "1ms"), (1.5, "2s"), (90.0, "1m 30s"), (f64::NAN, "?")]
        {
            assert_eq!(format_span(seconds), text);
        }
    }
}
