//! Small text helpers that several modules need.

use std::borrow::Borrow;
use std::fmt::Write as _;

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

/// The ending of a regular English noun after this count: `s` unless the count is 1.
#[must_use]
pub fn plural(count: impl Copy + PartialEq + From<u8>) -> &'static str {
    if count == 1.into() { "" } else { "s" }
}

/// A count with its noun: `1 route`, `2 routes`.
#[must_use]
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", plural(count))
}

/// The words as an English list: `a, b and c`.
#[must_use]
pub fn join_and<S: Borrow<str>>(words: &[S]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {}", others.join(", "), last.borrow()),
        _ => words.concat(),
    }
}

/// Whether the text is one or more ASCII digits and nothing else. Unlike `str::parse`, this rejects a sign.
#[must_use]
pub fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// A basic string of TOML, in quotes.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            _ if character.is_control() => {
                // Writing to a String can't fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0_u64, 1, 2, 257].map(plural), ["s", "", "s", "s"]);
        assert_eq!(plural(1_usize), "");
        assert_eq!((counted(1, "route"), counted(0, "route")), ("1 route".to_owned(), "0 routes".to_owned()));
    }

    #[test]
    fn words_are_joined_with_commas_and_one_and() {
        assert_eq!(join_and::<&str>(&[]), "");
        assert_eq!(join_and(&["a"]), "a");
        assert_eq!(join_and(&["a", "b"]), "a and b");
        assert_eq!(join_and(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
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
    fn text_is_quoted_for_toml() {
        assert_eq!(toml_string("header:x-\"a\\b\"\n\r"), r#""header:x-\"a\\b\"\n\u000d""#);
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
