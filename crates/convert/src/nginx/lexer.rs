//! The words, semicolons and braces of a configuration of nginx.

use std::iter::Peekable;
use std::str::Chars;

/// A token, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lexeme {
    /// A word without its quotes and escapes.
    Word(String),
    Semicolon,
    Open,
    Close,
}

/// Reads tokens one after the other.
pub(super) struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
    /// The line of the next character, from 1.
    line: usize,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { rest: text.chars().peekable(), line: 1 }
    }

    /// The next token and its line; `None` at the end. Fails with a message and its line if a quote is not closed.
    pub fn next_token(&mut self) -> Result<Option<(Lexeme, usize)>, (String, usize)> {
        self.skip_blanks();
        let line = self.line;
        let Some(&first) = self.rest.peek() else { return Ok(None) };
        let token = match first {
            ';' | '{' | '}' => {
                self.advance();
                match first {
                    ';' => Lexeme::Semicolon,
                    '{' => Lexeme::Open,
                    _ => Lexeme::Close,
                }
            }
            '"' | '\'' => Lexeme::Word(self.quoted(first).ok_or(("a quote is not closed".to_owned(), line))?),
            _ => Lexeme::Word(self.word()),
        };
        Ok(Some((token, line)))
    }

    /// Skips the rest of a block of code in another language, up to its closing brace. Whether it is closed.
    pub fn skip_code(&mut self) -> bool {
        let mut depth = 1;
        while let Some(c) = self.advance() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return true;
            }
        }
        false
    }

    fn advance(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn skip_blanks(&mut self) {
        while let Some(&c) = self.rest.peek() {
            if c == '#' {
                while self.rest.peek().is_some_and(|&c| c != '\n') {
                    self.advance();
                }
            } else if c.is_whitespace() {
                self.advance();
            } else {
                break;
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        self.advance();
        let mut word = String::new();
        loop {
            match self.advance()? {
                '\\' => self.escape(&mut word)?,
                c if c == quote => return Some(word),
                c => word.push(c),
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(&c) = self.rest.peek() {
            // The brace of `${name}` belongs to the word.
            let is_variable = c == '{' && word.ends_with('$');
            if c.is_whitespace() || matches!(c, ';' | '{') && !is_variable {
                break;
            }
            self.advance();
            match c {
                '\\' => {
                    let _ = self.escape(&mut word);
                }
                c => word.push(c),
            }
        }
        word
    }

    /// What follows a backslash. nginx keeps the backslash itself before most characters, as regular expressions need it.
    fn escape(&mut self, word: &mut String) -> Option<()> {
        match self.advance()? {
            c @ ('"' | '\'' | '\\') => word.push(c),
            't' => word.push('\t'),
            'r' => word.push('\r'),
            'n' => word.push('\n'),
            c => word.extend(['\\', c]),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_as_nginx_separates_them() {
        let text = "a \"b \\\" ;\" 'c{' # no {\n${d}e{f\\.g;}\n";
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        while let Some(token) = lexer.next_token().unwrap() {
            tokens.push(token);
        }
        let word = |text: &str, line| (Lexeme::Word(text.to_owned()), line);
        let expected = [
            word("a", 1),
            word("b \" ;", 1),
            word("c{", 1),
            word("${d}e", 2),
            (Lexeme::Open, 2),
            word("f\\.g", 2),
            (Lexeme::Semicolon, 2),
            (Lexeme::Close, 2),
        ];
        assert_eq!(tokens, expected);
        assert!(Lexer::new("'a").next_token().is_err());
    }
}
