//! Patterns of values, and conditions of routes on the values of a header, a query parameter or a cookie.

use http::header::{self, HeaderName};
use memchr::memmem;
use smallvec::SmallVec;

/// A pattern of the values of a header, a query parameter or a cookie. Matching takes time in proportion to the lengths
/// of the pattern and the value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ValuePattern {
    /// The text between the asterisks: one piece without an asterisk, else one more than there are asterisks. Those in the
    /// middle are not empty. In lower case if the case does not matter.
    pieces: Box<[Box<[u8]>]>,
    ignores_case: bool,
    is_secret: bool,
}

/// A value in lower case. Most values fit without an allocation.
pub(super) fn lowered(value: &[u8]) -> SmallVec<[u8; 256]> {
    let mut lowered = SmallVec::from_slice(value);
    lowered.make_ascii_lowercase();
    lowered
}

impl ValuePattern {
    /// Parses a pattern. Every text is one: a backslash stands for itself unless an asterisk or another backslash follows.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
        let mut bytes = text.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let literal = match byte {
                b'*' => {
                    pieces.push(Vec::new());
                    continue;
                }
                b'\\' => bytes.next_if(|next| matches!(next, b'*' | b'\\')).unwrap_or(byte),
                _ => byte,
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(literal);
            }
        }
        let last = pieces.len() - 1;
        let pieces = pieces.into_iter().enumerate();
        let kept = pieces.filter(|(index, piece)| *index == 0 || *index == last || !piece.is_empty());
        Self { pieces: kept.map(|(_, piece)| piece.into()).collect(), ignores_case: false, is_secret: false }
    }

    /// This pattern, matched without regard to the case of ASCII letters.
    #[must_use]
    pub fn ignoring_case(mut self) -> Self {
        self.pieces.iter_mut().for_each(|piece| piece.make_ascii_lowercase());
        self.ignores_case = true;
        self
    }

    /// This pattern, whose text is not displayed.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    /// Whether a value matches.
    #[must_use]
    pub fn matches(&self, value: &[u8]) -> bool {
        let [first, middle @ .., last] = &*self.pieces else {
            return self.exact().is_some_and(|exact| self.equals(exact, value));
        };
        if !self.ignores_case {
            return matches(first, middle, last, value);
        }
        matches(first, middle, last, &lowered(value))
    }

    /// The only value that matches, in lower case if the case does not matter; none if several values can match.
    #[must_use]
    pub fn exact(&self) -> Option<&[u8]> {
        match &*self.pieces {
            [exact] => Some(exact),
            _ => None,
        }
    }

    /// Whether the case of ASCII letters does not matter.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    fn equals(&self, exact: &[u8], value: &[u8]) -> bool {
        if self.ignores_case { exact.eq_ignore_ascii_case(value) } else { exact == value }
    }
}

/// Searches each piece from the left. The leftmost place leaves most room for the pieces after it, so there is nothing to
/// try again.
fn matches(first: &[u8], middle: &[Box<[u8]>], last: &[u8], value: &[u8]) -> bool {
    let Some(mut rest) = value.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for piece in middle {
        let Some(at) = memmem::find(rest, piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

impl std::fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_secret {
            return f.write_str("…");
        }
        for (index, piece) in self.pieces.iter().enumerate() {
            let escaped = String::from_utf8_lossy(piece).replace('\\', "\\\\").replace('*', "\\*");
            write!(f, "{}{escaped}", if index == 0 { "" } else { "*" })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for ValuePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValuePattern({self})")
    }
}

/// A condition on all values that a request has under one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueCondition {
    /// There is a value.
    Present,
    /// There is none.
    Absent,
    /// One of the values matches one of these patterns.
    AnyOf(Box<[ValuePattern]>),
    /// No value matches one of these patterns; true also where there is no value.
    NoneOf(Box<[ValuePattern]>),
}

/// Headers whose values do not depend on case by their RFCs, and User-Agent, because crawlers vary it.
const CASE_INSENSITIVE: [HeaderName; 16] = [
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::PRAGMA,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::USER_AGENT,
];

/// Whether conditions on this header ignore the case of its values.
#[must_use]
pub fn header_ignores_case(name: &HeaderName) -> bool {
    CASE_INSENSITIVE.contains(name)
}

impl ValueCondition {
    /// Whether the condition holds for a request with these values.
    #[must_use]
    pub fn holds(&self, mut values: impl Iterator<Item: AsRef<[u8]>>) -> bool {
        match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::AnyOf(patterns) => values.any(|value| any_matches(patterns, value.as_ref())),
            Self::NoneOf(patterns) => !values.any(|value| any_matches(patterns, value.as_ref())),
        }
    }

    /// Whether this condition holds wherever `other` holds. May be false where that is so, but never true where it is
    /// not.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present, Self::AnyOf(_)) | (Self::NoneOf(_), Self::Absent) => true,
            _ => self == other,
        }
    }

    /// The only values that satisfy the condition, in lower case if their case does not matter. None if others can
    /// satisfy it as well.
    pub(super) fn exact_values(&self) -> Option<Vec<&[u8]>> {
        let Self::AnyOf(patterns) = self else { return None };
        patterns.iter().map(ValuePattern::exact).collect()
    }

    /// Whether the case of the values does not matter.
    pub(super) fn ignores_case(&self) -> bool {
        match self {
            Self::Present | Self::Absent => false,
            Self::AnyOf(patterns) | Self::NoneOf(patterns) => patterns.iter().any(ValuePattern::ignores_case),
        }
    }

    /// Why the condition does not hold, to follow the name of the value.
    pub(super) fn failure(&self) -> String {
        match self {
            Self::Present => "is missing".to_owned(),
            Self::Absent => "is present".to_owned(),
            Self::AnyOf(patterns) => format!("does not match {}", listed(patterns)),
            Self::NoneOf(patterns) => format!("matches {}", listed(patterns)),
        }
    }
}

impl std::fmt::Display for ValueCondition {
    /// The condition as it follows the name of the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Present => f.write_str("present"),
            Self::Absent => f.write_str("absent"),
            Self::AnyOf(patterns) => f.write_str(&listed(patterns)),
            Self::NoneOf(patterns) => write!(f, "not {}", listed(patterns)),
        }
    }
}

fn any_matches(patterns: &[ValuePattern], value: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(value))
}

fn listed(patterns: &[ValuePattern]) -> String {
    patterns.iter().map(|pattern| format!("`{pattern}`")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The model: tries every length for every asterisk.
    fn model(pattern: &[u8], value: &[u8]) -> bool {
        match pattern {
            [] => value.is_empty(),
            [b'*', rest @ ..] => (0..=value.len()).any(|skipped| model(rest, &value[skipped..])),
            [b'\\', literal @ (b'*' | b'\\'), rest @ ..] | [literal, rest @ ..] => {
                value.split_first().is_some_and(|(byte, value)| byte == literal && model(rest, value))
            }
        }
    }

    #[test]
    fn asterisks_match_any_text() {
        for (pattern, value, is_match) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("*GPTBot*", "Mozilla/5.0 (compatible; GPTBot/1.2)", true),
            ("*GPTBot*", "Mozilla/5.0", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*ab*ab*", "xabxaby", true),
            ("*ab*ab*", "xabby", false),
            (r"\*/\*", "*/*", true),
            (r"\*/\*", "text/html", false),
            (r"a\b\", r"a\b\", true),
            (r"a\\*", r"a\bc", true),
        ] {
            assert_eq!(ValuePattern::parse(pattern).matches(value.as_bytes()), is_match, "{pattern} {value}");
        }
        assert!(ValuePattern::parse("*gptBOT/*").ignoring_case().matches(b"x GPTBot/1"));
        assert!(!ValuePattern::parse("*gptBOT/*").matches(b"x GPTBot/1"));
        assert!(ValuePattern::parse("Text/HTML").ignoring_case().matches(b"tEXT/html"));
    }

    #[test]
    fn secret_patterns_are_not_displayed() {
        let pattern = ValuePattern::parse("k-4711").secret();
        assert_eq!(format!("{pattern} {pattern:?}"), "… ValuePattern(…)");
    }

    /// With backtracking this test would not end.
    #[test]
    fn patterns_that_nearly_match_are_searched_once() {
        let pattern = ValuePattern::parse(&("*a".repeat(2_000) + "*bb*")).ignoring_case();
        let value = "a".repeat(100_000) + "b";
        assert!(!pattern.matches(value.as_bytes()));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_model(pattern in r"[ab*\\]{0,10}", value in r"[ab*\\]{0,10}") {
            let parsed = ValuePattern::parse(&pattern);
            prop_assert_eq!(parsed.matches(value.as_bytes()), model(pattern.as_bytes(), value.as_bytes()));
            prop_assert_eq!(&ValuePattern::parse(&parsed.to_string()), &parsed);
        }
    }

    fn any_of(pattern: &str) -> ValueCondition {
        ValueCondition::AnyOf([ValuePattern::parse(pattern)].into())
    }

    fn none_of(pattern: &str) -> ValueCondition {
        ValueCondition::NoneOf([ValuePattern::parse(pattern)].into())
    }

    #[test]
    fn conditions_hold_for_all_values_of_a_name_together() {
        use ValueCondition::{Absent, Present};
        for (condition, values, holds) in [
            (Present, &[""][..], true),
            (Present, &[], false),
            (Absent, &[], true),
            (Absent, &["a"], false),
            (any_of("a*"), &["b", "ab"], true),
            (any_of("a*"), &["b"], false),
            (any_of("*"), &[], false),
            (none_of("a*"), &["b"], true),
            (none_of("a*"), &["b", "ab"], false),
            (none_of("a*"), &[], true),
        ] {
            assert_eq!(condition.holds(values.iter()), holds, "{condition} {values:?}");
        }
    }

    #[test]
    fn a_condition_covers_stricter_ones() {
        use ValueCondition::{Absent, Present};
        for (one, other) in [(Present, any_of("a")), (none_of("a"), Absent), (any_of("a"), any_of("a"))] {
            assert!(one.covers(&other), "{one} {other}");
        }
        for (one, other) in
            [(any_of("a"), Present), (Absent, none_of("a")), (Present, none_of("a")), (Present, Absent)]
        {
            assert!(!one.covers(&other), "{one} {other}");
        }
    }
}
