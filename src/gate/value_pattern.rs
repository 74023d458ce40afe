//! Patterns of values: text in which `*` matches any characters, also none, and `\*` is an asterisk.

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
}
