//! A position in a line of text, and what the text formats have in common: parts, escapes, and the head of a line of syslog.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memmem};

use crate::replay::entry::{LineError, LogText};

/// The rest of a line from a position on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'l> {
    line: &'l [u8],
    at: usize,
}

impl<'l> Scanner<'l> {
    pub(super) fn new(line: &'l [u8]) -> Self {
        Self { line, at: 0 }
    }

    /// The error that the text at this position is something else.
    pub(super) fn expected(&self, expected: &'static str) -> LineError {
        LineError::Column { column: self.at + 1, expected }
    }

    pub(super) fn rest(&self) -> &'l [u8] {
        &self.line[self.at..]
    }

    pub(super) fn is_end(&self) -> bool {
        self.at == self.line.len()
    }

    /// Skips `count` bytes, at most to the end of the line.
    pub(super) fn skip(&mut self, count: usize) {
        self.at = self.line.len().min(self.at + count);
    }

    pub(super) fn skip_spaces(&mut self) {
        self.at += self.rest().iter().take_while(|byte| **byte == b' ').count();
    }

    /// Skips `byte`.
    pub(super) fn skip_byte(&mut self, byte: u8, expected: &'static str) -> Result<(), LineError> {
        if self.rest().first() != Some(&byte) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// The text before `byte`; skips it and the byte.
    pub(super) fn until(&mut self, byte: u8, expected: &'static str) -> Result<&'l [u8], LineError> {
        let length = memchr(byte, self.rest()).ok_or_else(|| self.expected(expected))?;
        let text = &self.rest()[..length];
        self.at += length + 1;
        Ok(text)
    }

    /// The next word, which ends before a space or with the line; skips it and the spaces after it.
    pub(super) fn word(&mut self, expected: &'static str) -> Result<&'l [u8], LineError> {
        let length = memchr(b' ', self.rest()).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.expected(expected));
        }
        let word = &self.rest()[..length];
        self.at += length;
        self.skip_spaces();
        Ok(word)
    }

    /// The next word, converted; the error of a word that can't be converted has its column.
    pub(super) fn parsed<T>(
        &mut self,
        expected: &'static str,
        parse: impl FnOnce(&'l [u8]) -> Option<T>,
    ) -> Result<T, LineError> {
        let start = *self;
        parse(self.word(expected)?).ok_or_else(|| start.expected(expected))
    }

    /// A text in quotes, with its escapes; skips it and the spaces after it. A backslash before a quote escapes it.
    pub(super) fn quoted(&mut self, expected: &'static str) -> Result<&'l [u8], LineError> {
        self.skip_byte(b'"', expected)?;
        let text = self.rest();
        let mut end = 0;
        loop {
            match memchr2(b'"', b'\\', &text[end.min(text.len())..]) {
                None => return Err(self.expected("a closing quote")),
                Some(offset) if text[end + offset] == b'"' => {
                    end += offset;
                    break;
                }
                Some(offset) => end += offset + 2,
            }
        }
        self.at += end + 1;
        self.skip_spaces();
        Ok(&text[..end])
    }
}

/// A decimal number without a sign.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 19 {
        return None;
    }
    word.iter()
        .try_fold(0, |number: u64, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}

/// A status code. A dash or 0, which some servers log if there was no response, is no code.
#[expect(clippy::option_option, reason = "an invalid code differs from none")]
pub(super) fn status(word: &[u8]) -> Option<Option<u16>> {
    match word {
        b"-" => Some(None),
        [_] | [_, _, _] => {
            number(word).and_then(|code| u16::try_from(code).ok()).map(|code| (code >= 100).then_some(code))
        }
        _ => None,
    }
}

/// A count of bytes, for which a dash means none.
pub(super) fn size(word: &[u8]) -> Option<u64> {
    if word == b"-" { Some(0) } else { number(word) }
}

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

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The message of a line of syslog, in the forms of RFC 3164 and RFC 5424 and with the times of rsyslog and journald; any
/// other line as it is.
pub(super) fn syslog_message(line: &[u8]) -> &[u8] {
    let rest = without_priority(line);
    if let Some(rest) = rest.strip_prefix(b"1 ").filter(|_| rest.len() < line.len()) {
        return structured(rest).unwrap_or(line);
    }
    let is_old = rest.get(..3).is_some_and(|month| MONTHS.contains(&month)) && rest.get(9) == Some(&b':');
    let is_iso = rest.get(4) == Some(&b'-') && rest.get(10) == Some(&b'T');
    if !is_old && !is_iso {
        return rest;
    }
    // `TIME HOST PROGRAM[PID]: MESSAGE`
    memmem::find(rest, b": ").map_or(line, |colon| &rest[colon + 2..])
}

/// The line without a priority such as `<134>`.
fn without_priority(line: &[u8]) -> &[u8] {
    if line.first() != Some(&b'<') {
        return line;
    }
    let end = line.iter().take(6).position(|byte| *byte == b'>');
    end.filter(|end| crate::http1::is_digits(&line[1..*end])).map_or(line, |end| &line[end + 1..])
}

/// The message after `TIME HOST APP PID MSGID SD`; structured data is a dash or in brackets.
fn structured(rest: &[u8]) -> Option<&[u8]> {
    let mut rest = rest;
    for _ in 0..5 {
        let space = memchr::memchr(b' ', rest)?;
        rest = &rest[space + 1..];
    }
    match rest.strip_prefix(b"- ") {
        Some(message) => Some(message),
        None => memmem::find(rest, b"] ").map(|end| &rest[end + 2..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_may_have_escaped_quotes() {
        let mut scanner = Scanner::new(br#""a\"b\\" "c" "d\"#);
        assert_eq!(scanner.quoted("a text").unwrap(), br#"a\"b\\"#);
        assert_eq!(scanner.quoted("a text").unwrap(), b"c");
        let error = scanner.quoted("a text").unwrap_err();
        assert_eq!(error.to_string(), "column 15: expected a closing quote");
    }

    #[test]
    fn words_end_at_spaces() {
        let mut scanner = Scanner::new(b"one  two");
        assert_eq!(scanner.word("a word").unwrap(), b"one");
        assert_eq!(scanner.word("a word").unwrap(), b"two");
        assert_eq!(scanner.word("a word").unwrap_err().to_string(), "column 9: expected a word");
    }

    #[test]
    fn numbers_have_digits_only() {
        let numbers: [(&[u8], Option<u64>); 6] = [
            (b"0", Some(0)),
            (b"9999999999999999999", Some(9_999_999_999_999_999_999)),
            (b"10000000000000000000", None),
            (b"", None),
            (b"-1", None),
            (b"1x", None),
        ];
        for (text, expected) in numbers {
            assert_eq!(number(text), expected);
        }
        assert_eq!(
            [status(b"200"), status(b"000"), status(b"0"), status(b"-")],
            [Some(Some(200)), Some(None), Some(None), Some(None)]
        );
        assert_eq!([status(b"20"), status(b"2000"), status(b"OK!")], [None; 3]);
    }

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

    #[test]
    fn messages_follow_the_head() {
        for line in [
            "::1 - - [x]",
            "<190>::1 - - [x]",
            "Feb  6 12:14:14 localhost haproxy[14389]: ::1 - - [x]",
            "<134>Feb  6 12:14:14 localhost nginx: ::1 - - [x]",
            "2026-11-22T19:24:07.1+00:00 web1 nginx[7]: ::1 - - [x]",
            "<134>1 2026-11-22T19:24:07Z web1 nginx 7 - - ::1 - - [x]",
            "<134>1 2026-11-22T19:24:07Z web1 nginx 7 - [a b=\"c\"][d] ::1 - - [x]",
        ] {
            assert_eq!(syslog_message(line.as_bytes()), b"::1 - - [x]", "{line}");
        }
        for line in ["", "<", "<x>y", "Feb", "<134>1 "] {
            assert_eq!(syslog_message(line.as_bytes()), line.as_bytes());
        }
    }
}
