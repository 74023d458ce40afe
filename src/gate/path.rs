//! The normal form of paths.
//!
//! Dot segments are removed, double slashes merged, and unreserved characters decoded (RFC 3986 §6.2.2); the server gets
//! the normal form. For matching alone the sub-delimiters, `:` and `@` are decoded too: most servers read `%3A` as `:`,
//! so encoding it must not bypass a limit.
//!
//! Overlong UTF-8 (RFC 3629 §3), such as `%C0%AF`, is rejected: a lenient decoder reads a slash or a dot in it. Other
//! bytes that are not UTF-8 are kept, because some sites have paths in Latin-1 or another encoding.

use std::borrow::Cow;

use crate::http1::UPPER_HEX;

/// A path in its normal form.
#[derive(Debug, PartialEq, Eq)]
pub struct NormalPath<'a> {
    /// The path for the server.
    pub sent: Cow<'a, str>,
    /// The path for routes and keys, where it differs from `sent`.
    decoded: Option<String>,
    /// Whether the path has a slash that is encoded as `%2F`.
    pub encoded_slash: bool,
}

/// Why a path has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No slash at the start.
    #[error("the path does not start with a slash")]
    NotAbsolute,
    /// `%` without two hexadecimal digits after it.
    #[error("the path has a percent sign that is not followed by two hexadecimal digits")]
    BadEscape,
    /// A backslash, plain or encoded: servers disagree on what it is.
    #[error("the path has a backslash")]
    Backslash,
    /// A NUL or another control character, plain or encoded.
    #[error("the path has a control character")]
    Control,
    /// A character encoded in more bytes than it needs, which some decoders accept.
    #[error("the path has an overlong UTF-8 sequence")]
    Overlong,
}

impl NormalPath<'_> {
    /// The path for the server, if it differs from the request's.
    #[must_use]
    pub fn changed(&self) -> Option<&str> {
        match &self.sent {
            Cow::Borrowed(_) => None,
            Cow::Owned(sent) => Some(sent),
        }
    }

    /// The path for routes and keys.
    #[must_use]
    pub fn matched(&self) -> &str {
        self.decoded.as_deref().unwrap_or(&self.sent)
    }
}

/// Normalizes a raw path without its query. Rejects a path that different servers could read in different ways; see
/// [`PathError`].
pub fn normalize(raw: &str) -> Result<NormalPath<'_>, PathError> {
    if raw == "*" {
        return Ok(NormalPath { sent: Cow::Borrowed(raw), decoded: None, encoded_slash: false });
    }
    if !raw.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_normal(raw.as_bytes()) {
        return Ok(NormalPath { sent: Cow::Borrowed(raw), decoded: None, encoded_slash: false });
    }
    let reencoded = reencode(raw.as_bytes())?;
    let sent = remove_dots(&reencoded.text);
    let decoded = reencoded.has_encoded_delimiter.then(|| decode_delimiters(&sent));
    Ok(NormalPath { sent: Cow::Owned(sent), decoded, encoded_slash: reencoded.has_encoded_slash })
}

/// Normalizes a literal piece of a route's path, as the path of a request is for matching. Rejects a piece that no request's path
/// can contain.
pub(super) fn literal(text: &str) -> Result<String, PathError> {
    let reencoded = reencode(text.as_bytes())?;
    Ok(decode_delimiters(&reencoded.text))
}

/// Whether a path is normal already, as nearly every one is; decided in one pass. False for any segment that starts with
/// a dot, even if it is no dot segment.
fn is_normal(path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in path {
        let plain = match byte {
            b'/' | b'.' => !after_slash,
            _ => is_pchar(byte),
        };
        if !plain {
            return false;
        }
        after_slash = byte == b'/';
    }
    true
}

struct Reencoded {
    text: String,
    has_encoded_slash: bool,
    has_encoded_delimiter: bool,
}

/// Decodes bytes that need no encoding, and encodes those that do, each once.
fn reencode(raw: &[u8]) -> Result<Reencoded, PathError> {
    let mut reencoded = Reencoded {
        text: String::with_capacity(raw.len() + 8),
        has_encoded_slash: false,
        has_encoded_delimiter: false,
    };
    let (mut rest, mut previous) = (raw, 0);
    while let [first, tail @ ..] = rest {
        let (byte, escaped) = if *first == b'%' {
            let [high, low, after @ ..] = tail else { return Err(PathError::BadEscape) };
            rest = after;
            (hex(*high)? << 4 | hex(*low)?, true)
        } else {
            rest = tail;
            (*first, false)
        };
        if is_overlong(previous, byte) {
            return Err(PathError::Overlong);
        }
        previous = byte;
        match byte {
            b'\\' => return Err(PathError::Backslash),
            0..=0x1f | 0x7f => return Err(PathError::Control),
            _ if is_unreserved(byte) || (!escaped && (byte == b'/' || is_pchar(byte))) => {
                reencoded.text.push(char::from(byte));
            }
            _ => {
                reencoded.has_encoded_slash |= byte == b'/';
                reencoded.has_encoded_delimiter |= is_pchar(byte);
                push_escape(&mut reencoded.text, byte);
            }
        }
    }
    Ok(reencoded)
}

/// Whether these two bytes can only be the start of an overlong UTF-8 sequence.
fn is_overlong(first: u8, second: u8) -> bool {
    matches!(
        (first, second),
        (0xc0 | 0xc1, 0x80..=0xbf)
            | (0xe0, 0x80..=0x9f)
            | (0xf0, 0x80..=0x8f)
            | (0xf8, 0x80..=0x87)
            | (0xfc, 0x80..=0x83)
    )
}

/// Removes `prefix` from a path for the server. `prefix` is in the form for matching, so encoded delimiters of the path
/// are decoded to compare them.
#[must_use]
pub fn strip_prefix<'p>(sent: &'p str, prefix: &str) -> Option<&'p str> {
    let mut rest = sent.as_bytes();
    for &wanted in prefix.as_bytes() {
        rest = match rest {
            [found, after @ ..] if *found == wanted => after,
            [b'%', high, low, after @ ..]
                if is_pchar(wanted) && hex(*high).ok()? << 4 | hex(*low).ok()? == wanted =>
            {
                after
            }
            _ => return None,
        };
    }
    sent.get(sent.len() - rest.len()..)
}

/// Removes `.`, `..` and empty segments. A `..` at the top stays at the top.
fn remove_dots(path: &str) -> String {
    let mut kept = String::with_capacity(path.len());
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "" | "." => {}
            ".." => kept.truncate(kept.rfind('/').unwrap_or(0)),
            _ => {
                kept.push('/');
                kept.push_str(segment);
                continue;
            }
        }
        if last {
            kept.push('/');
        }
    }
    if kept.is_empty() {
        kept.push('/');
    }
    kept
}

fn decode_delimiters(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        decoded.push_str(&rest[..at]);
        // `reencode` writes every escape with two upper-case digits.
        let escape = &rest[at..at + 3];
        match u8::from_str_radix(&escape[1..], 16) {
            Ok(byte) if is_pchar(byte) => decoded.push(char::from(byte)),
            _ => decoded.push_str(escape),
        }
        rest = &rest[at + 3..];
    }
    decoded.push_str(rest);
    decoded
}

fn push_escape(text: &mut String, byte: u8) {
    text.push('%');
    text.push(char::from(UPPER_HEX[usize::from(byte >> 4)]));
    text.push(char::from(UPPER_HEX[usize::from(byte & 15)]));
}

fn hex(digit: u8) -> Result<u8, PathError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(PathError::BadEscape),
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A character that a path segment may hold as it is (RFC 3986 §3.3).
fn is_pchar(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(raw: &str) -> String {
        normalize(raw).unwrap().sent.into_owned()
    }

    #[test]
    fn a_plain_path_is_borrowed() {
        assert!(matches!(normalize("/v1/search;x=1:@/a.b").unwrap().sent, Cow::Borrowed(_)));
    }

    #[test]
    fn dot_segments_and_double_slashes_are_removed() {
        for (raw, normal) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("/a//b///c/", "/a/b/c/"),
            ("/a//../b", "/b"),
            ("/%2e%2E/a/%2e/b", "/a/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
        ] {
            assert_eq!(sent(raw), normal, "{raw}");
        }
    }

    #[test]
    fn escapes_have_one_form_and_are_decoded_once() {
        assert_eq!(sent("/%61%7e%2D"), "/a~-");
        assert_eq!(sent("/%c3%a9"), "/%C3%A9");
        assert_eq!(sent("/a\"b"), "/a%22b");
        assert_eq!(sent("/%252e%252e/a"), "/%252e%252e/a");
        assert_eq!(sent("/é"), "/%C3%A9");
    }

    #[test]
    fn delimiters_are_decoded_for_matching_only() {
        let path = normalize("/items%3Abatch/%40me%2Fx").unwrap();
        assert_eq!(path.sent, "/items%3Abatch/%40me%2Fx");
        assert_eq!(path.matched(), "/items:batch/@me%2Fx");
        assert!(path.encoded_slash);
    }

    #[test]
    fn ambiguous_paths_are_rejected() {
        assert_eq!(normalize("/a\\b"), Err(PathError::Backslash));
        assert_eq!(normalize("/a%5cb"), Err(PathError::Backslash));
        assert_eq!(normalize("/a%00b"), Err(PathError::Control));
        assert_eq!(normalize("/a%0d%0ab"), Err(PathError::Control));
        assert_eq!(normalize("/a%zz"), Err(PathError::BadEscape));
        assert_eq!(normalize("/a%2"), Err(PathError::BadEscape));
        assert_eq!(normalize("a"), Err(PathError::NotAbsolute));
        assert_eq!(normalize(""), Err(PathError::NotAbsolute));
    }

    #[test]
    fn overlong_utf8_is_rejected_and_other_encodings_pass() {
        for overlong in [
            "/%c0%af",
            "/%c0%ae%c0%ae/",
            "/%c1%9c",
            "/a%e0%80%af",
            "/%e0%9f%bf",
            "/%f0%80%80%af",
            "/%f8%80%80%80%af",
        ] {
            assert_eq!(normalize(overlong), Err(PathError::Overlong), "{overlong}");
        }
        // UTF-8 of two, three and four bytes, and Latin-1.
        for other in ["/%C3%A9", "/%E0%A0%80", "/%E2%82%AC", "/%F0%9F%98%80", "/caf%E9", "/%C0", "/%E0b"] {
            assert_eq!(sent(other), other);
        }
    }

    #[test]
    fn a_prefix_matches_encoded_delimiters() {
        for (sent, prefix, rest) in [
            ("/v1/a", "/v1", Some("/a")),
            ("/v1:b/a%3A", "/v1:b", Some("/a%3A")),
            ("/v1%3Ab/a%3A", "/v1:b", Some("/a%3A")),
            ("/v1%2Fa", "/v1/a", None),
            ("/a%25b", "/a%25b", Some("")),
            ("/a%3", "/a:", None),
            ("/a", "/ab", None),
        ] {
            assert_eq!(strip_prefix(sent, prefix), rest, "{sent} {prefix}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_normal_path_is_its_own_normal_form(raw in "/[a-c./%2eEfF5A:\\\\é ]{0,24}") {
            if let Ok(once) = normalize(&raw) {
                let again = normalize(&once.sent).unwrap();
                proptest::prop_assert_eq!(&again.sent, &once.sent);
                proptest::prop_assert_eq!(again.matched(), once.matched());
                proptest::prop_assert!(!once.matched().split('/').any(|s| s == "." || s == ".."));
                proptest::prop_assert!(!once.sent.contains("//"));
            }
        }
    }
}
