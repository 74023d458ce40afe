//! Text from clients in log lines: characters that act on terminals or on readers of lines are escaped, and long
//! text is cut.

use std::borrow::Cow;
use std::fmt;
use std::io;

use serde_json::ser::Formatter;

/// The most bytes of one text from a client that a line has.
const MAX_TEXT: usize = 2 * 1024;

/// Text that is displayed with its unsafe characters escaped as `\u0085`.
pub(super) struct Escaped<'a>(pub &'a str);

/// Writes JSON in which unsafe characters are escaped. `serde_json` itself escapes those below U+0020 only.
pub(super) struct SafeJson;

/// The text itself, or its beginning followed by `…` and the number of its bytes.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(MAX_TEXT)];
    Cow::Owned(format!("{kept}…({} bytes)", text.len()))
}

/// Whether a character is escaped: it could control a terminal, end a line for some readers, or reorder the text
/// around it (Unicode's `Bidi_Control`). All of them have four hexadecimal digits.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Passes on the text piece by piece, unsafe characters escaped.
fn escape<E>(text: &str, mut write: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    // Nearly all text is printable ASCII. The fold looks at every byte, which the compiler turns into vector code.
    if text.bytes().fold(true, |is_plain, byte| is_plain & (0x20..0x7f).contains(&byte)) {
        return write(text);
    }
    for piece in text.split_inclusive(is_unsafe) {
        match piece.char_indices().next_back().filter(|(_, last)| is_unsafe(*last)) {
            Some((at, last)) => {
                write(&piece[..at])?;
                let digit = |shift: u32| b"0123456789abcdef"[(u32::from(last) >> shift) as usize & 0xf];
                let sequence = [b'\\', b'u', digit(12), digit(8), digit(4), digit(0)];
                write(str::from_utf8(&sequence).unwrap_or_default())?;
            }
            None => write(piece)?,
        }
    }
    Ok(())
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, |piece| f.write_str(piece))
    }
}

impl Formatter for SafeJson {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        escape(fragment, |piece| writer.write_all(piece.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_escaped() {
        for (text, shown) in [
            ("/a?b=%22", "/a?b=%22"),
            ("é…日", "é…日"),
            ("a\u{85}\u{9b}b", "a\\u0085\\u009bb"),
            ("\u{7f}\u{1b}[31m\n", "\\u007f\\u001b[31m\\u000a"),
            ("\u{2028}x\u{2029}", "\\u2028x\\u2029"),
            (
                "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}",
                "\\u061c\\u200e\\u200f\\u202a\\u202e\\u2066\\u2069",
            ),
            ("\u{2027}\u{202f}\u{2065}\u{206a}", "\u{2027}\u{202f}\u{2065}\u{206a}"),
        ] {
            assert_eq!(Escaped(text).to_string(), shown);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let whole = "a".repeat(MAX_TEXT);
        assert_eq!(cut(&whole), whole);
        let long = format!("{}é", "a".repeat(MAX_TEXT - 1));
        assert_eq!(cut(&long), format!("{}…(2049 bytes)", "a".repeat(MAX_TEXT - 1)));
    }
}
