//! Escapes and truncates text from clients for log lines and terminals, so that it can't act on terminals or split lines.

use std::io::Write as _;

use crate::http1::LOWER_HEX;

/// The most bytes of one text in a line.
const MAX_TEXT: usize = 2 * 1024;
/// Bytes that are checked together.
const BLOCK: usize = 16;

/// Appends the text; a long one is truncated, and followed by `…` and the number of its bytes.
#[inline]
pub(super) fn push_cut(out: &mut Vec<u8>, text: &[u8]) {
    push_cut_to(out, text, MAX_TEXT);
}

/// Appends the text, truncated like `push_cut` beyond `most` bytes, which are at least 4.
#[inline]
pub(super) fn push_cut_to(out: &mut Vec<u8>, text: &[u8], most: usize) {
    if text.len() <= most {
        out.extend_from_slice(text);
    } else {
        push_start(out, text, most);
    }
}

#[cold]
fn push_start(out: &mut Vec<u8>, text: &[u8], most: usize) {
    let is_boundary = |at: &usize| text[*at] & 0xc0 != 0x80;
    // No character has more than four bytes.
    let end = (most.saturating_sub(3)..=most).rev().find(is_boundary).unwrap_or(most);
    out.extend_from_slice(&text[..end]);
    // Writing to memory can't fail.
    let _ = write!(out, "…({} bytes)", text.len());
}

/// Whether the text is printable ASCII without characters that JSON escapes, as most text is.
pub(super) fn is_plain(text: &[u8]) -> bool {
    // One flag for each position of a block, so that the compiler vectorizes the loop.
    let mut unsafe_bytes = [0; BLOCK];
    let mut mark = |block: &[u8; BLOCK]| {
        for (is_unsafe, &byte) in unsafe_bytes.iter_mut().zip(block) {
            *is_unsafe |=
                u8::from(!(0x20..0x7f).contains(&byte)) | u8::from(byte == b'"') | u8::from(byte == b'\\');
        }
    };
    if let Some(last) = text.last_chunk() {
        text.as_chunks().0.iter().for_each(&mut mark);
        // The last chunk overlaps the last whole block.
        mark(last);
    } else {
        let mut block = [b' '; BLOCK];
        block[..text.len()].copy_from_slice(text);
        mark(&block);
    }
    unsafe_bytes == [0; BLOCK]
}

/// Appends text, with unsafe characters escaped as in `\u0085`.
pub(super) fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for character in String::from_utf8_lossy(text).chars() {
        push_character(out, character);
    }
}

/// The text for a terminal, with unsafe characters escaped as in the log.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    push_escaped(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends text for a JSON string, escaped as JSON requires, and with unsafe characters escaped.
pub(super) fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' => out.extend_from_slice(br#"\""#),
            '\\' => out.extend_from_slice(br"\\"),
            '\u{8}' => out.extend_from_slice(br"\b"),
            '\t' => out.extend_from_slice(br"\t"),
            '\n' => out.extend_from_slice(br"\n"),
            '\u{c}' => out.extend_from_slice(br"\f"),
            '\r' => out.extend_from_slice(br"\r"),
            _ => push_character(out, character),
        }
    }
}

fn push_character(out: &mut Vec<u8>, character: char) {
    if is_unsafe(character) {
        let digit = |shift: u32| LOWER_HEX[(u32::from(character) >> shift) as usize & 0xf];
        out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
    } else {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Whether a character is escaped: it could control a terminal, end a line for some readers, or reorder the text
/// around it (Unicode's `Bidi_Control`). All of them have four hexadecimal digits.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(push: fn(&mut Vec<u8>, &[u8]), text: &[u8]) -> String {
        let mut out = Vec::new();
        push(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn unsafe_characters_are_escaped() {
        for (text, shown) in [
            ("/a?b=%22", "/a?b=%22"),
            ("é…日", "é…日"),
            ("a\u{85}\u{9b}b", "a\\u0085\\u009bb"),
            ("\u{7f}\u{1b}[31m\0", "\\u007f\\u001b[31m\\u0000"),
            ("\u{2028}x\u{2029}", "\\u2028x\\u2029"),
            (
                "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}",
                "\\u061c\\u200e\\u200f\\u202a\\u202e\\u2066\\u2069",
            ),
            ("\u{2027}\u{202f}\u{2065}\u{206a}", "\u{2027}\u{202f}\u{2065}\u{206a}"),
        ] {
            assert_eq!(pushed(push_escaped, text.as_bytes()), shown);
            assert_eq!(pushed(push_json, text.as_bytes()), shown);
        }
        let odd = "\"\\\u{8}\t\n\u{c}\r";
        assert_eq!(pushed(push_escaped, odd.as_bytes()), "\"\\\\u0008\\u0009\\u000a\\u000c\\u000d");
        assert_eq!(pushed(push_json, odd.as_bytes()), r#"\"\\\b\t\n\f\r"#);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        for push in [push_escaped, push_json] {
            assert_eq!(pushed(push, b"/\xff\xc3("), "/\u{fffd}\u{fffd}(");
        }
    }

    #[test]
    fn plain_text_is_the_same_in_every_format() {
        for byte in 0..=u8::MAX {
            let text = [b'a', byte];
            let is_same = [push_escaped, push_json].map(|push| pushed(push, &text).as_bytes() == text);
            assert_eq!(is_plain(&text), is_same == [true, true], "{byte}");
        }
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
        let whole = "a".repeat(MAX_TEXT);
        assert_eq!(pushed(push_cut, whole.as_bytes()), whole);
        for (character, kept) in [("é", 1), ("日", 1), ("日", 2), ("🦀", 1), ("🦀", 3)] {
            let start = "a".repeat(MAX_TEXT - kept);
            let long = format!("{start}{character}");
            let expected = format!("{start}…({} bytes)", long.len());
            assert_eq!(pushed(push_cut, long.as_bytes()), expected);
        }
        // Invalid UTF-8 is truncated at any byte.
        let mut odd = Vec::new();
        push_cut(&mut odd, &[0x80; MAX_TEXT + 1]);
        assert!(odd.starts_with(&[0x80; MAX_TEXT]));
    }
}
