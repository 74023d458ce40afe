//! Timeouts and tries of a location.

use super::scope::Scope;
use super::tree::Directive;
use crate::duration::{shown, timeout};
use crate::model::TomlRoute;
use crate::note::Note;

/// The most retries of a route.
const MOST_RETRIES: u64 = 5;

/// Units of time with their milliseconds, the longest first.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The default of the timeouts of nginx, in milliseconds.
const DEFAULT: u64 = 60_000;
/// The default of `connect_timeout`, in milliseconds.
const DEFAULT_CONNECT: u64 = 5_000;

/// The `connect_timeout` of a location, where it is not the default of tidegate.
pub(super) fn connect_timeout(scope: &Scope<'_>) -> Result<Option<String>, Note> {
    let Some(directive) = scope.last("proxy_connect_timeout") else { return Ok(None) };
    let milliseconds = time(directive).filter(|time| *time > 0);
    let milliseconds = milliseconds.ok_or_else(|| directive.finding("this is no timeout"))?;
    Ok((milliseconds != DEFAULT_CONNECT).then(|| shown(milliseconds)))
}

/// The time of a directive, in milliseconds.
fn time(directive: &Directive) -> Option<u64> {
    milliseconds(&directive.args.join(" "))
}

/// Sets the timeouts and retries of a route.
pub(super) fn set_times(route: &mut TomlRoute, scope: &Scope<'_>) {
    if let Some(directive) = scope.last("proxy_read_timeout") {
        match time(directive) {
            Some(0) | None => route.notes.push(directive.finding("this is no timeout")),
            Some(milliseconds) => route.timeout = timeout(milliseconds),
        }
    }
    if let Some(directive) = scope.last("proxy_send_timeout") {
        let read = scope.last("proxy_read_timeout").map_or(Some(DEFAULT), time);
        if time(directive) != read {
            let reason =
                "`stall_timeout` is that of `proxy_read_timeout`, and also bounds writes to the server";
            route.notes.push(directive.finding(reason));
        }
    }
    let is_off = scope.last("proxy_next_upstream").is_some_and(|directive| directive.arg(0) == "off");
    let tries = scope.last("proxy_next_upstream_tries").and_then(|directive| directive.arg(0).parse().ok());
    route.retries = match tries {
        _ if is_off => Some(0),
        // Without a bound nginx tries each server once.
        None | Some(0) => None,
        Some(tries) => Some((tries - 1_u64).min(MOST_RETRIES)),
    };
}

/// Reads a time of nginx, such as `90`, `500ms` or `1m30s`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1_000);
    }
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let after = &rest[digits..];
        let unit = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == &after[..unit])?;
        sum = sum.checked_add(rest[..digits].parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = after[unit..].trim_start();
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_nginx() {
        for (text, expected) in [
            ("90", Some(90_000)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("1h 5m", Some(3_900_000)),
            ("1d", Some(86_400_000)),
            ("", None),
            ("x", None),
            ("5x", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
