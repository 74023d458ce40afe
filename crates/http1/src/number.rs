//! Formats and parses numbers: decimal, and the digits of hexadecimal ones.

/// The lower-case hexadecimal digits, by value.
pub const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
/// The upper-case hexadecimal digits, by value.
pub const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The sixteen lower-case hexadecimal digits of a number.
#[must_use]
pub fn hex_digits(number: u64) -> [u8; 16] {
    const ONES: u128 = 0x0101_0101_0101_0101_0101_0101_0101_0101;
    // Spread the half-bytes over the bytes of a wider number, in which each byte then becomes its digit.
    let mut bytes = u128::from(number);
    for (shift, mask) in [
        (32, 0x0000_0000_ffff_ffff_0000_0000_ffff_ffff),
        (16, 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f),
    ] {
        bytes = (bytes | bytes << shift) & mask;
    }
    // 1 in the bytes of the digits from a to f.
    let letters = (bytes + 6 * ONES) >> 4 & ONES;
    (bytes + u128::from(b'0') * ONES + letters * u128::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// Whether the text is one or more ASCII digits and nothing else. Unlike `str::parse`, this rejects a sign.
#[must_use]
pub fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

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

    #[test]
    fn digits_have_no_sign_or_blank_and_are_not_empty() {
        for text in ["0", "007", "18446744073709551616"] {
            assert!(is_digits(text.as_bytes()), "{text}");
        }
        for text in ["", "+1", "-1", " 1", "1 ", "1.0", "1_000", "a", "٣"] {
            assert!(!is_digits(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn hexadecimal_digits_are_those_of_the_formatter() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX] {
            assert_eq!(hex_digits(number), *format!("{number:016x}").as_bytes());
        }
    }

    #[test]
    fn hexadecimal_digits_are_at_their_values() {
        for value in 0_u8..16 {
            assert_eq!(format!("{value:x}").as_bytes(), [LOWER_HEX[usize::from(value)]]);
            assert_eq!(format!("{value:X}").as_bytes(), [UPPER_HEX[usize::from(value)]]);
        }
    }
}
