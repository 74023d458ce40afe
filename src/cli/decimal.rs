//! Seconds as decimal numbers, exact to the microsecond.

use crate::http1::is_digits;
use crate::time::Micros;

/// The largest number of seconds: in the year 2096, far enough below 2^53 µs that sums stay exact in Lua's doubles.
const MAX_SECONDS: u64 = 4_000_000_000;
/// Digits after the decimal point.
const DECIMALS: usize = 6;

/// Why a text is not a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecimalError {
    /// It is not a decimal number.
    #[error("is not a number of seconds")]
    Malformed,
    /// It is below zero.
    #[error("is before the Unix epoch, where the clock starts")]
    Negative,
    /// It is finer than a microsecond.
    #[error("has more than six decimals")]
    TooFine,
    /// It is too large to be counted exactly.
    #[error("is more than {MAX_SECONDS} seconds")]
    TooLarge,
}

impl DecimalError {
    /// How to correct the text.
    pub fn help(self) -> &'static str {
        match self {
            Self::Malformed => "seconds are written like 12 or 0.25; a line is SECONDS [KEY [COST [FLIGHT]]]",
            Self::Negative => "count seconds from 0",
            Self::TooFine => "time is counted in microseconds: leave out what follows the sixth decimal",
            Self::TooLarge => "count from a later start, so that the first arrival is near 0",
        }
    }
}

/// Parses seconds with up to six decimals.
pub(super) fn parse(text: &str) -> Result<Micros, DecimalError> {
    if text.starts_with('-') {
        return Err(DecimalError::Negative);
    }
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    if !is_digits(whole.as_bytes()) || !fraction.is_none_or(|text| is_digits(text.as_bytes())) {
        return Err(DecimalError::Malformed);
    }
    let fraction = fraction.unwrap_or("");
    if fraction.len() > DECIMALS {
        return Err(DecimalError::TooFine);
    }
    let seconds: u64 = whole.parse().map_err(|_| DecimalError::TooLarge)?;
    if seconds > MAX_SECONDS {
        return Err(DecimalError::TooLarge);
    }
    let scale = (fraction.len()..DECIMALS).fold(1, |scale, _| scale * 10);
    let micros = fraction.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')) * scale;
    Ok(Micros(seconds * Micros::SECOND.0 + micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::format_seconds;

    #[test]
    fn seconds_are_parsed_to_the_microsecond() {
        for (text, micros) in [("0", 0), ("0.25", 250_000), ("1.000001", 1_000_001), ("007.1", 7_100_000)] {
            assert_eq!(parse(text), Ok(Micros(micros)), "{text}");
        }
        assert_eq!(parse("4000000000.999999"), Ok(Micros(4_000_000_000_999_999)));
    }

    #[test]
    fn other_texts_than_seconds_are_rejected() {
        use DecimalError::{Malformed, Negative, TooFine, TooLarge};
        for (text, error) in [
            ("", Malformed),
            (".5", Malformed),
            ("5.", Malformed),
            ("1e3", Malformed),
            ("+1", Malformed),
            ("1.2.3", Malformed),
            ("1,5", Malformed),
            ("-1", Negative),
            ("0.0000001", TooFine),
            ("4000000001", TooLarge),
            ("99999999999999999999999", TooLarge),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn formatted_seconds_are_parsed_back() {
        for micros in [0, 1, 10, 250_000, 999_999, 1_000_000, 1_000_001, 60_000_000, 4_000_000_000_000_001] {
            assert_eq!(parse(&format_seconds(Micros(micros))), Ok(Micros(micros)));
        }
    }
}
