//! Durations of tidegate.

/// The longest timeout, in milliseconds.
const LONGEST: u64 = 24 * 60 * 60 * 1_000;
/// The default of `response_timeout` and `stall_timeout`, in milliseconds.
const DEFAULT: u64 = 60_000;
/// Units with their milliseconds, the longest first.
const UNITS: [(&str, u64); 3] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// The value of a timeout of so many milliseconds; `None` if it is the default.
pub(super) fn timeout(milliseconds: u64) -> Option<String> {
    let timeout = milliseconds.min(LONGEST);
    (timeout != DEFAULT).then(|| shown(timeout))
}

/// A timeout of so many milliseconds, from 1 ms to 24 h.
pub(super) fn shown(milliseconds: u64) -> String {
    let milliseconds = milliseconds.clamp(1, LONGEST);
    let whole = UNITS.iter().find(|(_, factor)| milliseconds.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&("ms", 1));
    format!("{}{unit}", milliseconds / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_the_longest_unit_that_fits() {
        for (milliseconds, expected) in [
            (90_000, Some("90s")),
            (120_000, Some("2m")),
            (500, Some("500ms")),
            (3_600_000, Some("1h")),
            (1_000_000_000, Some("24h")),
            (60_000, None),
        ] {
            assert_eq!(timeout(milliseconds).as_deref(), expected, "{milliseconds}");
        }
    }
}
