//! Formats and parses decimal numbers.

use crate::text::is_digits;

/// Appends the decimal digits of a number.
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Parses a number that consists of digits only, without sign or whitespace; none for anything else, and if it overflows.
#[must_use]
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses digits like [`parse_decimal`], but a number above `u64::MAX` is `u64::MAX`.
#[must_use]
pub fn parse_decimal_saturating(digits: &[u8]) -> Option<u64> {
    is_digits(digits).then(|| parse_decimal(digits).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_and_parsed() {
        for number in [0, 1, 9, 10, 99, 100, 1_234_567_890, u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(parse_decimal(&out), Some(number));
        }
        assert_eq!(parse_decimal(b"007"), Some(7));
        for invalid in [&b""[..], b"+1", b"-1", b" 1", b"1 ", b"0x1", b"18446744073709551616", b"1,1"] {
            assert_eq!(parse_decimal(invalid), None, "{invalid:?}");
        }
    }
}
