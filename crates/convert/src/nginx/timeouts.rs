//! Timeouts and tries of a location.

use super::scope::Scope;
use crate::duration::timeout;
use crate::model::TomlRoute;

/// The most retries of a route.
const MOST_RETRIES: u64 = 5;

/// Units of time with their milliseconds, the longest first.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Sets the timeouts and retries of a route.
pub(super) fn set_times(route: &mut TomlRoute, scope: &Scope<'_>) {
    if let Some(directive) = scope.last("proxy_read_timeout") {
        match milliseconds(&directive.args.join(" ")) {
            Some(0) | None => route.notes.push(directive.finding("this is no timeout")),
            Some(milliseconds) => route.timeout = timeout(milliseconds),
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
