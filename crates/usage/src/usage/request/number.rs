//! Numbers in requests.

/// Numbers that are longer are treated as the greatest.
const MAX_LENGTH: usize = 64;

/// A whole number, or what a server may read as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WholeNumber {
    /// Digits; saturates.
    Plain(u64),
    /// Written in a way that only some servers read, such as `1e3`; rounded up.
    Uncertain(u64),
    /// Less than zero.
    Negative,
}

impl WholeNumber {
    /// Reads a number of JSON.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        if !text.first().is_some_and(|first| first.is_ascii_digit() || *first == b'-') {
            return None;
        }
        if text.iter().all(u8::is_ascii_digit) {
            let digit =
                |value: u64, digit: &u8| value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            return Some(Self::Plain(text.iter().fold(0, digit)));
        }
        if text.len() > MAX_LENGTH {
            return Some(Self::Uncertain(u64::MAX));
        }
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        if value < 0.0 {
            return Some(Self::Negative);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and the conversion saturates"
        )]
        let rounded = value.ceil() as u64;
        Some(Self::Uncertain(rounded))
    }

    /// The same number in a string.
    pub(super) fn uncertain(self) -> Self {
        if let Self::Plain(value) = self { Self::Uncertain(value) } else { self }
    }
}

/// Whether this is a literal or number of JSON (RFC 8259 §6).
pub(super) fn is_json(token: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if matches!(token, b"true" | b"false" | b"null") {
        return true;
    }
    let rest = token.strip_prefix(b"-").unwrap_or(token);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let decimals = digits(fraction);
        if decimals == 0 {
            return false;
        }
        rest = &fraction[decimals..];
    }
    let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) else {
        return rest.is_empty();
    };
    let exponent = exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
    !exponent.is_empty() && digits(exponent) == exponent.len()
}
