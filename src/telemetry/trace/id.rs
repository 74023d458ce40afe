//! The ids of traces and spans.

use std::fmt;

use crate::http1::hex_digits;

/// An id as hexadecimal digits in lower case, not all of which are zero. Kept as text, since headers and the access log
/// have it in this form; the binary form is needed for exported spans alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexId<const DIGITS: usize>([u8; DIGITS]);

/// The id of a trace.
pub type TraceId = HexId<32>;
/// The id of a span.
pub type SpanId = HexId<16>;

impl<const DIGITS: usize> HexId<DIGITS> {
    /// Parses an id.
    #[must_use]
    pub fn parse(text: &[u8; DIGITS]) -> Option<Self> {
        let is_zero = text.iter().all(|digit| *digit == b'0');
        (is_hex(text) && !is_zero).then_some(Self(*text))
    }

    /// The id with these digits, which are hexadecimal and in lower case, and not all zero.
    #[must_use]
    pub fn from_digits(digits: [u8; DIGITS]) -> Self {
        Self(digits)
    }

    /// A random id.
    #[must_use]
    pub fn random() -> Self {
        let mut digits = [0; DIGITS];
        for part in digits.chunks_exact_mut(16) {
            part.copy_from_slice(&hex_digits(fastrand::u64(..).max(1)));
        }
        Self(digits)
    }

    /// The digits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; DIGITS] {
        &self.0
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // They are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The binary form.
    pub(super) fn binary(&self) -> impl Iterator<Item = u8> {
        self.0.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1]))
    }
}

impl<const DIGITS: usize> fmt::Display for HexId<DIGITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<const DIGITS: usize> fmt::Debug for HexId<DIGITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether these are hexadecimal digits in lower case. A loop without an early exit is vectorized.
pub(super) fn is_hex(text: &[u8]) -> bool {
    text.iter().fold(true, |is_hex, byte| is_hex & matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The value of a digit.
pub(super) fn value(digit: u8) -> u8 {
    if digit <= b'9' { digit & 15 } else { digit - b'a' + 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_lower_case_hexadecimal_and_not_zero() {
        let id = SpanId::parse(b"00f067aa0ba902b7").unwrap();
        assert_eq!(id.as_str(), "00f067aa0ba902b7");
        assert_eq!(id.binary().collect::<Vec<_>>(), 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        for text in [
            b"0000000000000000",
            b"00F067AA0BA902B7",
            b"00f067aa0ba902bg",
            b"00f067aa0ba902b ",
            b"00f067aa0ba902:7",
        ] {
            assert_eq!(SpanId::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn random_ids_are_valid_and_differ() {
        let (one, other) = (TraceId::random(), TraceId::random());
        assert_eq!(TraceId::parse(one.as_bytes()), Some(one));
        assert_ne!(one, other);
    }
}
