//! The sections and lines of a configuration of `HAProxy`.

use std::sync::Arc;

use crate::note::{FileLine, Note, SyntaxError};
use crate::source::SourceFile;

/// A line of a section.
#[derive(Clone, Debug)]
pub(super) struct SectionLine {
    /// One or more.
    pub words: Vec<String>,
    pub place: FileLine,
}

impl SectionLine {
    /// A word, or an empty text.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// Whether it begins with these words.
    pub fn begins(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(index, word)| self.word(index) == *word)
    }

    /// The word after this one.
    pub fn after(&self, word: &str) -> Option<&str> {
        let index = self.words.iter().position(|other| other == word)?;
        self.words.get(index + 1).map(String::as_str)
    }

    /// A note that it is converted here.
    pub fn origin(&self) -> Note {
        Note::origin(&self.place, self.words.join(" "))
    }

    /// A note that it is not converted.
    pub fn finding(&self, reason: impl Into<String>) -> Note {
        Note::finding(&self.place, &self.words.join(" "), reason)
    }
}

/// A section, such as `frontend www`.
#[derive(Debug)]
pub(super) struct Section {
    pub header: SectionLine,
    pub lines: Vec<SectionLine>,
}

impl Section {
    /// Its kind, such as `frontend`.
    pub fn kind(&self) -> &str {
        self.header.word(0)
    }

    /// Its name, or an empty text.
    pub fn name(&self) -> &str {
        self.header.word(1)
    }

    /// The lines that begin with these words.
    pub fn find<'s>(&'s self, words: &'s [&str]) -> impl Iterator<Item = &'s SectionLine> {
        self.lines.iter().filter(move |line| line.begins(words))
    }
}

const KINDS: [&str; 13] = [
    "backend",
    "cache",
    "defaults",
    "fcgi-app",
    "frontend",
    "global",
    "http-errors",
    "listen",
    "mailers",
    "peers",
    "program",
    "resolvers",
    "ring",
];

/// The sections of the file with this number. Fails if a quote is not closed, or a line is before the first section.
pub(super) fn sections(order: usize, file: &SourceFile<'_>) -> Result<Vec<Section>, SyntaxError> {
    let name: Arc<str> = Arc::from(file.name);
    let mut sections: Vec<Section> = Vec::new();
    for (index, text) in file.text.lines().enumerate() {
        let place = FileLine { order, file: Arc::clone(&name), line: index + 1, column: 1 };
        let words = words(text).ok_or_else(|| SyntaxError {
            place: place.clone(),
            message: "a quote is not closed".to_owned(),
        })?;
        let Some(first) = words.first() else { continue };
        let is_header = KINDS.contains(&&**first) || first == "userlist";
        let line = SectionLine { words, place };
        if is_header {
            sections.push(Section { header: line, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        } else {
            let message = format!("`{}` is not in a section", line.word(0));
            return Err(SyntaxError { place: line.place, message });
        }
    }
    Ok(sections)
}

/// The words of a line, without comments; `None` if a quote is not closed.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().push(rest.next().unwrap_or('\\')),
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Lines of `defaults` that apply to the rules of each section.
const RULES: [&str; 5] = ["acl", "http-request", "http-response", "redirect", "tcp-request"];

/// Timeouts of backends.
pub(super) const SERVER_TIMEOUTS: [&str; 4] = ["server", "connect", "queue", "check"];
/// Timeouts of sections with listeners.
pub(super) const CLIENT_TIMEOUTS: [&str; 4] = ["client", "http-request", "http-keep-alive", "tunnel"];

/// Whether a line of `defaults` is converted in the sections that inherit it.
pub(super) fn is_inherited(line: &SectionLine) -> bool {
    RULES.contains(&line.word(0))
        || line.word(0) == "default_backend"
        || is_of_server(line)
        || is_of_client(line)
}

/// Whether a line is one about servers that backends inherit.
fn is_of_server(line: &SectionLine) -> bool {
    matches!(line.word(0), "mode" | "balance" | "retries" | "http-check" | "default-server")
        || line.begins(&["option", "httpchk"])
        || (line.word(0) == "timeout" && SERVER_TIMEOUTS.contains(&line.word(1)))
}

/// Whether a line is one about clients that sections with listeners inherit.
fn is_of_client(line: &SectionLine) -> bool {
    line.word(0) == "maxconn" || (line.word(0) == "timeout" && CLIENT_TIMEOUTS.contains(&line.word(1)))
}

/// Adds the lines of `defaults` to the sections that inherit them, before their own.
pub(super) fn inherit(sections: &mut [Section]) {
    let has_listeners = |section: &Section| matches!(section.kind(), "frontend" | "listen");
    let mut defaults: Vec<Option<usize>> = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let known = || (0..index).rev().filter(|it| sections[*it].kind() == "defaults");
        defaults.push(match section.header.after("from") {
            Some(name) => known().find(|it| sections[*it].name() == name),
            None if section.kind() == "defaults" => None,
            None => known().next(),
        });
    }
    for index in 0..sections.len() {
        let Some(from) = defaults[index] else { continue };
        let (kind, has_own) = (sections[index].kind(), has_listeners(&sections[index]));
        let is_wanted = |line: &&SectionLine| match kind {
            "defaults" => true,
            "frontend" | "listen" | "backend" => {
                let is_backend = line.word(0) == "default_backend" && has_own;
                let is_of_server = is_of_server(line) && (kind != "frontend" || line.word(0) == "mode");
                let is_of_client = is_of_client(line) && has_own;
                RULES.contains(&line.word(0)) || is_backend || is_of_server || is_of_client
            }
            _ => false,
        };
        let lines: Vec<SectionLine> = sections[from].lines.iter().filter(is_wanted).cloned().collect();
        sections[index].lines.splice(0..0, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_quotes_and_escapes() {
        let found = words(r##"  acl a path_beg "/a b" /c\ d 'e"#' # "comment"##).unwrap();
        assert_eq!(found, ["acl", "a", "path_beg", "/a b", "/c d", "e\"#"]);
        assert_eq!(words("a \"b"), None);
        assert_eq!(words(" # "), Some(Vec::new()));
    }
}
