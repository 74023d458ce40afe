//! Splits a log into lines of bounded length.

use std::io::{self, ErrorKind, Read};

use memchr::memchr;

/// The longest line that is read, in bytes without its end.
pub(super) const MAX_LINE: usize = 1024 * 1024;
const BUFFER: usize = 256 * 1024;

/// The lines of a log.
pub(super) struct LogLines<R> {
    inner: R,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not returned.
    start: usize,
    end: usize,
    /// Where the search for a line feed continues.
    searched: usize,
    /// Whether the part belongs to a line whose beginning was dropped, because it is too long.
    is_dropping: bool,
    is_at_end: bool,
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogLine<'b> {
    /// Its text, trimmed.
    Text(&'b [u8]),
    /// A line of more than [`MAX_LINE`] bytes.
    TooLong,
}

impl<R: Read> LogLines<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            searched: 0,
            is_dropping: false,
            is_at_end: false,
        }
    }

    /// The next line; none at the end.
    pub(super) fn next_line(&mut self) -> io::Result<Option<LogLine<'_>>> {
        let (start, end) = loop {
            if let Some(length) = memchr(b'\n', &self.buffer[self.searched..self.end]) {
                let line = (self.start, self.searched + length);
                self.start = line.1 + 1;
                self.searched = self.start;
                break line;
            }
            self.searched = self.end;
            if self.end - self.start > MAX_LINE {
                self.is_dropping = true;
                self.start = self.end;
            }
            if self.is_at_end {
                let line = (self.start, self.end);
                self.start = self.end;
                if line.0 == line.1 && !self.is_dropping {
                    return Ok(None);
                }
                break line;
            }
            self.fill()?;
        };
        if std::mem::take(&mut self.is_dropping) || end - start > MAX_LINE {
            return Ok(Some(LogLine::TooLong));
        }
        Ok(Some(LogLine::Text(trimmed(&self.buffer[start..end]))))
    }

    /// Reads more bytes after those in the buffer, which grows if it is full.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.searched -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    // What is in the buffer is returned as the last line, if the caller continues.
                    self.is_at_end = true;
                    return Err(error);
                }
            }
            return Ok(());
        }
    }
}

/// A line without a carriage return before its line feed, and without a byte order mark, with which editors and some
/// collectors begin a file.
pub(super) fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines of a text that arrives in parts of this length; none for those that are too long.
    fn lines(text: &[u8], part: usize) -> Vec<Option<Vec<u8>>> {
        let parts = text.chunks(part).fold(Box::new(io::empty()) as Box<dyn Read>, |before, part| {
            Box::new(before.chain(io::Cursor::new(part.to_vec())))
        });
        let mut lines = LogLines::new(parts);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            found.push(match line {
                LogLine::Text(text) => Some(text.to_vec()),
                LogLine::TooLong => None,
            });
        }
        found
    }

    #[test]
    fn lines_have_no_ending() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(lines(b"", 9), []);
        assert_eq!(lines(b"a\n\r\nb\r\nc", 2), [some("a"), some(""), some("b"), some("c")]);
        assert_eq!(lines(b"a\n", 1), [some("a")]);
        assert_eq!(lines(b"\xef\xbb\xbfa\n\xef\xbb\xbf\r\n", 2), [some("a"), some("")]);
    }

    #[test]
    fn long_lines_are_skipped() {
        let longest = vec![b'x'; MAX_LINE];
        let text =
            [&longest[..], b"\nb\n", &longest, b"y\nc\n", &longest, &longest, b"\nd\n", &longest, b"x"]
                .concat();
        let some = |text: &[u8]| Some(text.to_vec());
        let expected = [some(&longest), some(b"b"), None, some(b"c"), None, some(b"d"), None];
        for part in [text.len(), 300_000, 65_536] {
            assert_eq!(lines(&text, part), expected);
        }
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(text in "[ab\n]{0,80}", part in 1_usize..9) {
            let mut expected: Vec<_> = text.split('\n').map(|line| Some(line.as_bytes().to_vec())).collect();
            if expected.last() == Some(&Some(Vec::new())) {
                expected.pop();
            }
            prop_assert_eq!(lines(text.as_bytes(), part), expected);
        }
    }
}
