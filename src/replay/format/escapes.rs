//! Removes the escapes that servers put into logged text.

use std::borrow::Cow;

use memchr::memchr;

use crate::replay::entry::LogText;

/// Replaces the backslash escapes of nginx (`\x22`, and those of JSON), Apache (`\"`, `\xc3`, `\t`) and Go (`\u00e9`).
/// Unknown ones stay as they are.
pub(super) fn without_backslashes(text: &[u8]) -> LogText<'_> {
    without(text, b'\\', backslash)
}

/// Replaces the escapes of `HAProxy`, such as `#22`.
pub(super) fn without_hashes(text: &[u8]) -> LogText<'_> {
    without(text, b'#', |after, out| {
        out.push(hex_byte(after)?);
        Some(2)
    })
}

/// The text of a field, without its escapes; none if it is a dash or empty, as servers log what a request lacks.
pub(super) fn present(text: &[u8]) -> Option<LogText<'_>> {
    (!text.is_empty() && text != b"-").then(|| without_backslashes(text))
}

/// Decodes all escape sequences that begin with the byte `mark`. `decode` gets the text after the mark, appends the decoded
/// bytes, and returns the length of the escape sequence without the mark; none if the text is no escape sequence.
fn without(text: &[u8], mark: u8, decode: impl Fn(&[u8], &mut Vec<u8>) -> Option<usize>) -> LogText<'_> {
    let Some(first) = memchr(mark, text) else { return Cow::Borrowed(text) };
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let Some((_, after)) = rest.split_first() {
        if let Some(length) = decode(after, &mut out) {
            rest = &after[length..];
        } else {
            out.push(mark);
            rest = after;
        }
        let plain = memchr(mark, rest).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
    }
    Cow::Owned(out)
}

fn backslash(after: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let byte = match after.first()? {
        b'x' => {
            out.push(hex_byte(&after[1..])?);
            return Some(3);
        }
        b'u' => return unicode(&after[1..], 4, out).map(|length| length + 1),
        b'U' => return unicode(&after[1..], 8, out).map(|length| length + 1),
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        b'v' => 0x0b,
        b'f' => 0x0c,
        byte @ (b'"' | b'\\' | b'/') => *byte,
        _ => return None,
    };
    out.push(byte);
    Some(1)
}

/// Decodes a character that is written with this number of hexadecimal digits.
fn unicode(digits: &[u8], count: usize, out: &mut Vec<u8>) -> Option<usize> {
    let digits = str::from_utf8(digits.get(..count)?).ok()?;
    let character = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(count)
}

/// The byte that is written with the first two hexadecimal digits.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |index: usize| digits.get(index).and_then(|digit| char::from(*digit).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_all_servers_are_removed() {
        let cases: [(&[u8], &[u8]); 9] = [
            (br"plain", b"plain"),
            (br"\x22quoted\x22 \x5Cback", br#""quoted" \back"#),
            (br#"\"quoted\" \\back\ttab"#, b"\"quoted\" \\back\ttab"),
            (br"caf\xc3\xa9 caf\xC3\xA9 caf\u00e9", "café café café".as_bytes()),
            (br"\U0001F980\a\b\v\f\n\r\/", "🦀\x07\x08\x0b\x0c\n\r/".as_bytes()),
            (br"\xff", b"\xff"),
            (br"\q\x2\xzz\u12", br"\q\x2\xzz\u12"),
            (br"\ud800", br"\ud800"),
            (b"end\\", b"end\\"),
        ];
        for (text, expected) in cases {
            assert_eq!(&*without_backslashes(text), expected);
        }
        assert_eq!(&*without_hashes("/q#22#7c#é#".as_bytes()), "/q\"|#é#".as_bytes());
    }

    #[test]
    fn missing_text_is_none() {
        assert_eq!([present(b""), present(b"-")], [None, None]);
        assert_eq!(present(br"\x2d").as_deref(), Some(&b"-"[..]));
    }
}
