//! Keys as a table.

use std::time::Duration;

use crate::admin::api::{Standing, Standings};
use crate::time::format_duration;

const HEAD: [&str; 5] = ["LIMIT", "KEY", "STATE", "LEFT", "WHOLE IN"];

/// A table of keys, or why there is none.
pub(super) fn table(standings: &Standings) -> String {
    if standings.keys.is_empty() && !standings.more {
        return "no key is known: nobody has spent anything, or all of it has come back".to_owned();
    }
    let rows: Vec<[String; 5]> =
        std::iter::once(HEAD.map(str::to_owned)).chain(standings.keys.iter().map(row)).collect();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let mut lines: Vec<String> = rows.iter().map(|row| line(row, &widths)).collect();
    if standings.more {
        lines.push("and more: show them with a larger --max".to_owned());
    }
    lines.join("\n")
}

fn row(standing: &Standing) -> [String; 5] {
    let limit = match &standing.tier {
        Some(tier) => format!("{}.{tier}", standing.limit),
        None => standing.limit.clone(),
    };
    let until = standing.until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
    let state = match standing.cause.as_deref() {
        None => "passes".to_owned(),
        Some("quota") => "used up".to_owned(),
        Some("ban") => format!("banned{until}"),
        Some("block") => format!("blocked{until}"),
        Some(other) => format!("{other}{until}"),
    };
    let left = format!("{} of {}", standing.remaining, standing.of);
    [limit, standing.key.clone(), state, left, span(standing.reset_after)]
}

fn line(row: &[String; 5], widths: &[usize; 5]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

/// A number of seconds for people: rounded up to milliseconds below a second, and to whole seconds above.
fn span(seconds: f64) -> String {
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
    fn the_table_is_aligned() {
        let standing = Standing {
            limit: "per-key".into(),
            tier: None,
            key: "tag:lOi_WN7gUW3I4LyfzWuHMA".into(),
            allowed: true,
            cause: None,
            of: 5,
            remaining: 3,
            reset_after: 23.2,
            until: None,
        };
        let banned = Standing {
            tier: Some("pro".into()),
            allowed: false,
            cause: Some("ban".into()),
            remaining: 0,
            reset_after: 0.25,
            until: Some("2026-11-20T21:00:00Z".into()),
            ..standing.clone()
        };
        let table = table(&Standings { keys: vec![standing, banned], more: true });
        assert_eq!(
            table,
            "LIMIT        KEY                         STATE                              LEFT    WHOLE IN
per-key      tag:lOi_WN7gUW3I4LyfzWuHMA  passes                             3 of 5  24s
per-key.pro  tag:lOi_WN7gUW3I4LyfzWuHMA  banned until 2026-11-20T21:00:00Z  0 of 5  250ms
and more: show them with a larger --max"
        );
    }

    #[test]
    fn spans_round_up() {
        for (seconds, text) in
            [(0.0, "-"), (0.000_001, "1ms"), (1.5, "2s"), (90.0, "1m 30s"), (f64::NAN, "?")]
        {
            assert_eq!(span(seconds), text);
        }
    }
}
