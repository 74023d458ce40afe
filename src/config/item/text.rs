//! Strings of the file, their variables filled in.

use std::io;
use std::path::{Path, PathBuf};

use super::Item;
use crate::config::report::Problem;
use crate::config::secrets;
use crate::suggest::nearest;
use crate::text::join_and;

/// The most characters of a value that a message repeats; the line itself is shown anyway.
const MAX_SHOWN: usize = 60;

/// A shorter text is no other form of a word.
const MIN_FORM: usize = 3;

/// A string, its variables filled in.
#[derive(Clone)]
pub struct TextItem<'a> {
    pub item: Item<'a>,
    pub value: String,
    /// Whether any of it comes from the environment, so that it may be a secret.
    pub from_env: bool,
}

impl TextItem<'_> {
    /// The value for messages, which do not show values from the environment.
    pub fn quoted(&self) -> String {
        if self.from_env {
            return "this value".to_owned();
        }
        let mut shown: String = self.value.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
        if self.value.chars().count() > MAX_SHOWN {
            shown.push('…');
        }
        format!("`{shown}`")
    }

    /// The value for texts that people read: as the file has it, with `${NAME}` where it comes from the environment.
    pub fn shown(&self) -> &str {
        let written = self.item.value.get_ref().as_str();
        written.filter(|_| self.from_env).unwrap_or(&self.value)
    }

    /// The path that this names, relative to the file that has it: `directory`, unless that file is included.
    pub fn path(&self, directory: &Path) -> PathBuf {
        self.item.reader.path(self.item.span().start, directory, &self.value)
    }

    /// Reads the file that this names, as [`Self::path`] does.
    pub fn read_file(&self, directory: &Path) -> (PathBuf, io::Result<Vec<u8>>) {
        self.item.reader.read_file(self.item.span().start, directory, &self.value)
    }

    pub fn error(&self, title: impl Into<String>) -> Problem {
        let problem = self.item.error(title);
        match self.variable() {
            Some(help) => problem.help(help),
            None => problem,
        }
    }

    /// Help for a text such as `$NAME`, which names a variable of the environment in a form that is not expanded.
    pub(super) fn variable(&self) -> Option<String> {
        let is_variable = |name: &&str| secrets::is_variable(name) && !name.contains(char::is_lowercase);
        let name = self.value.strip_prefix('$').filter(|name| is_variable(name) && !self.from_env)?;
        // A secret may start with a dollar sign.
        let shown = if secrets::is_secret(self.item.name) { "NAME" } else { name };
        Some(format!("write \"${{{shown}}}\", with braces, for the value of a variable"))
    }

    /// The error for the file at `path`, which this names and which can't be read.
    pub fn unreadable(&self, path: &Path, error: &io::Error) -> Problem {
        let problem = self.error(format!("can't read {}: {error}", path.display()));
        let tried = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let tried = tried.display();
        match error.kind() {
            io::ErrorKind::NotFound if Path::new(&self.value).is_relative() => {
                let directory = "relative paths begin at the directory of the file that names them";
                problem.help(format!("there is no {tried}: {directory}"))
            }
            io::ErrorKind::PermissionDenied => problem
                .help(format!("let the user that runs tidegate read {tried}, and enter its directories")),
            io::ErrorKind::IsADirectory => problem.help(format!("{tried} is a directory: name a file in it")),
            _ => problem,
        }
    }

    /// The meaning of one of several words; `others` are the other values, for messages.
    pub(in crate::config) fn choice<T: Copy>(&self, meanings: &[(&str, T)], others: &str) -> Option<T> {
        let value = &*self.value;
        if let Some((_, meaning)) = meanings.iter().find(|(word, _)| *word == value) {
            return Some(*meaning);
        }
        let words: Vec<&str> = meanings.iter().map(|(word, _)| *word).collect();
        // `warning` is meant as `warn`, and `err` as `error`.
        let is_form =
            |word: &&str| value.len() >= MIN_FORM && (value.starts_with(word) || word.starts_with(value));
        let near = nearest(value, words.iter().copied()).or_else(|| words.iter().copied().find(is_form));
        let all = format!("{}{others}", listed(&words));
        let problem = self.error(format!("{} is not a value of `{}`", self.quoted(), self.item.name));
        self.reject(match near {
            Some(near) => problem.help(format!("did you mean \"{near}\"? The values are {all}")),
            None => problem.help(format!("the values are {all}")),
        })
    }

    /// An error for a name that the file does not define; `kind` is the kind of item that should have it.
    pub fn unknown(&self, kind: &str) -> Problem {
        let title = if self.from_env {
            format!("no {kind} has the name that this value gives")
        } else {
            format!("unknown {kind} {}", self.quoted())
        };
        self.error(title).derived()
    }

    /// Reports a problem of this value, and returns `None` in place of the value.
    pub fn reject<T>(&self, problem: Problem) -> Option<T> {
        self.item.reject(problem)
    }

    /// The result of `parse`, or a problem with the expected form and how to write it.
    pub fn parsed<T>(&self, expected: &str, help: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        parse(&self.value).or_else(|| {
            let problem = self.error(format!("{} is not {expected}", self.quoted()));
            self.reject(if help.is_empty() { problem } else { problem.help(help) })
        })
    }
}

/// `"a", "b" and "c"`.
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    join_and(&quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_listed() {
        assert_eq!(listed(&["a"]), "\"a\"");
        assert_eq!(listed(&["a", "b", "c"]), "\"a\", \"b\" and \"c\"");
    }
}
