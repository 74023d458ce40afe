//! A position in a line of text, and the parts that the text formats have in common.

use memchr::{memchr, memchr2};

use crate::replay::line_error::LineError;

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
}
