//! The directives of a configuration of nginx, with those of the files that it includes.

use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;
use std::sync::Arc;

use crate::note::{FileLine, Note, SyntaxError};

/// How deep files include each other at most.
const DEPTH: usize = 16;
/// The most files, each counted as often as it is included.
const MAX_FILES: usize = 1_000;
/// How deep blocks are in each other at most, with those of including files.
const MAX_NESTING: usize = 64;

/// A directive.
#[derive(Debug)]
pub(super) struct Directive {
    pub name: String,
    pub args: Vec<String>,
    /// Its block, if it has one.
    pub block: Option<Vec<Directive>>,
    pub place: FileLine,
}

impl Directive {
    /// An argument, or an empty text.
    pub fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// The value of a `name=value` argument.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether one of its arguments is this word.
    pub fn has(&self, word: &str) -> bool {
        self.args.iter().any(|arg| arg == word)
    }

    /// Its block, or none.
    pub fn directives(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Its name and arguments, as one line.
    pub fn text(&self) -> String {
        std::iter::once(&self.name).chain(&self.args).cloned().collect::<Vec<_>>().join(" ")
    }

    /// A note that it is converted here.
    pub fn origin(&self) -> Note {
        Note::origin(&self.place, self.text())
    }

    /// A note that it is not converted.
    pub fn finding(&self, reason: impl Into<String>) -> Note {
        Note::finding(&self.place, &self.text(), reason)
    }
}

/// Reads directives, and the files that they include.
pub(super) struct Tree {
    /// The directory of the main file, to which names of included files are relative.
    directory: PathBuf,
    files: usize,
    /// Blocks that are not closed yet.
    nesting: usize,
    /// Included files that can't be read.
    pub notes: Vec<Note>,
}

impl Tree {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), files: 0, nesting: 0, notes: Vec::new() }
    }

    /// The directives of a file with this name and text.
    pub fn parse(&mut self, file: &str, text: &str) -> Result<Vec<Directive>, SyntaxError> {
        self.parse_file(file, text, 0)
    }

    fn parse_file(&mut self, file: &str, text: &str, depth: usize) -> Result<Vec<Directive>, SyntaxError> {
        let place = FileLine { order: self.files, file: Arc::from(file), line: 1, column: 1 };
        self.files += 1;
        let mut lexer = Lexer::new(text);
        self.block(&mut lexer, &place, depth, false)
    }

    /// The directives up to the end of the file, or of a block if they are in one.
    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        file: &FileLine,
        depth: usize,
        is_inner: bool,
    ) -> Result<Vec<Directive>, SyntaxError> {
        let error = |line, message: String| SyntaxError { place: FileLine { line, ..file.clone() }, message };
        let mut directives = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let (mut start, mut column) = (1, 1);
        loop {
            let next = lexer.next_token().map_err(|(message, line)| error(line, message))?;
            let Some((token, line)) = next else {
                let is_complete = words.is_empty() && !is_inner;
                let message = if words.is_empty() { "a block is not closed" } else { "a `;` is missing" };
                return if is_complete { Ok(directives) } else { Err(error(start, message.to_owned())) };
            };
            match token {
                Lexeme::Word(word) => {
                    if words.is_empty() {
                        (start, column) = (line, lexer.column);
                    }
                    words.push(word);
                }
                Lexeme::Close if words.is_empty() && is_inner => return Ok(directives),
                _ if words.is_empty() => return Err(error(line, "a directive is missing".to_owned())),
                Lexeme::Close => return Err(error(start, "a `;` is missing".to_owned())),
                Lexeme::Semicolon => {
                    let place = FileLine { line: start, column, ..file.clone() };
                    let directive = directive(&mut words, None, place);
                    self.add(directive, depth, &mut directives)?;
                }
                Lexeme::Open => {
                    let is_code = words[0].ends_with("_by_lua_block");
                    if self.nesting == MAX_NESTING {
                        return Err(error(start, format!("blocks are nested more than {MAX_NESTING} times")));
                    }
                    let inner = if is_code {
                        lexer.skip_code();
                        Vec::new()
                    } else {
                        self.nesting += 1;
                        self.block(lexer, file, depth, true)?
                    };
                    self.nesting -= usize::from(!is_code);
                    let place = FileLine { line: start, column, ..file.clone() };
                    directives.push(directive(&mut words, Some(inner), place));
                }
            }
        }
    }

    /// Adds a directive, or those of the files that it includes.
    fn add(
        &mut self,
        directive: Directive,
        depth: usize,
        to: &mut Vec<Directive>,
    ) -> Result<(), SyntaxError> {
        // Types of files are of no use to a proxy.
        if directive.name != "include" || directive.arg(0).ends_with("mime.types") {
            to.push(directive);
            return Ok(());
        }
        let error = |message| SyntaxError { place: directive.place.clone(), message };
        if depth == DEPTH {
            return Err(error(format!("files include each other more than {DEPTH} times")));
        }
        let pattern = self.directory.join(directive.arg(0));
        let is_pattern = directive.arg(0).contains(['*', '?', '[']);
        let found = glob::glob(&pattern.to_string_lossy()).map(|paths| paths.flatten().collect::<Vec<_>>());
        let paths = match found {
            Ok(paths) if is_pattern || !paths.is_empty() => paths,
            _ => vec![pattern],
        };
        for path in paths {
            if self.files == MAX_FILES {
                return Err(error(format!("the files that are included are more than {MAX_FILES}")));
            }
            match std::fs::read_to_string(&path) {
                Ok(text) => to.extend(self.parse_file(&path.display().to_string(), &text, depth + 1)?),
                Err(error) => {
                    let reason = format!("the file can't be read: {error}; its directives are missing here");
                    self.notes.push(directive.finding(reason));
                }
            }
        }
        Ok(())
    }
}

fn directive(words: &mut Vec<String>, block: Option<Vec<Directive>>, place: FileLine) -> Directive {
    let mut words = std::mem::take(words).into_iter();
    let name = words.next().unwrap_or_default();
    Directive { name, args: words.collect(), block, place }
}

/// A token, with its line.
#[derive(Debug, PartialEq, Eq)]
enum Lexeme {
    /// A word without its quotes and escapes.
    Word(String),
    Semicolon,
    Open,
    Close,
}

/// Reads tokens one after the other.
struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
    /// The line of the next character, from 1.
    line: usize,
    /// The column of the next character, from 1.
    column: usize,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { rest: text.chars().peekable(), line: 1, column: 1 }
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
        match next {
            Some('\n') => (self.line, self.column) = (self.line + 1, 1),
            _ => self.column += 1,
        }
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
