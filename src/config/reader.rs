//! Reading one file: its text, the environment, the problems found so far, and the files that it names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::keys::TableKeys;
use super::report::{Problem, Report};
use super::secrets::{self, ExpandError};

/// The state of reading one file: the environment, and the problems found so far.
pub(super) struct Reader<'a> {
    /// The keys of the file itself, to find where a key belongs that is in the wrong table.
    pub top: &'static TableKeys,
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the file is read for the library, where nothing listens or forwards.
    is_for_library: bool,
    problems: RefCell<Vec<Problem>>,
    /// Every variable that was filled in.
    variables: RefCell<Vec<(String, String)>>,
    files: RefCell<FilesRead>,
    /// Keys of the file itself that are in a table instead.
    misplaced: RefCell<Vec<String>>,
}

/// The other files that were read, with hashes of their content, by the byte offset of the value that names them.
pub(super) type FilesRead = BTreeMap<usize, (PathBuf, blake3::Hash)>;

/// A string whose variables are filled in.
pub(super) struct FilledText {
    pub text: String,
    /// Whether any of it comes from the environment, so that it may be a secret.
    pub from_env: bool,
}

impl<'a> Reader<'a> {
    pub fn new(top: &'static TableKeys, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            top,
            env,
            is_for_library: false,
            problems: RefCell::default(),
            variables: RefCell::default(),
            files: RefCell::default(),
            misplaced: RefCell::default(),
        }
    }

    /// The reader of a file of which the library needs the limits alone.
    pub fn for_library(top: &'static TableKeys, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { is_for_library: true, ..Self::new(top, env) }
    }

    pub fn is_for_library(&self) -> bool {
        self.is_for_library
    }

    pub fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Notes that a key of the file itself is in a table instead, which has been reported.
    pub fn note_misplaced(&self, key: &str) {
        self.misplaced.borrow_mut().push(key.to_owned());
    }

    pub fn is_misplaced(&self, key: &str) -> bool {
        self.misplaced.borrow().iter().any(|other| other == key)
    }

    /// The other files that were read so far.
    pub fn files(&self) -> FilesRead {
        self.files.borrow().clone()
    }

    /// Every variable that was filled in so far, with its value.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables.borrow().clone()
    }

    /// All problems. Where a name or a path came from the environment, the message has its variable.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut variables = self.variables.into_inner();
        variables.sort_unstable();
        variables.dedup();
        let clean = |message: &str| secrets::without_values(message, &variables);
        let problems = self.problems.into_inner().into_iter();
        if variables.is_empty() {
            problems.collect()
        } else {
            problems.map(|one| one.reworded(clean)).collect()
        }
    }

    /// Fills in the variables of a string.
    pub fn fill_in(&self, raw: &str) -> Result<FilledText, ExpandError> {
        let expanded = secrets::expand(raw, self.env)?;
        let from_env = !expanded.variables.is_empty();
        self.variables.borrow_mut().extend(expanded.variables);
        Ok(FilledText { text: expanded.text, from_env })
    }

    /// Reads a file that the value at byte `at` names; `path` is relative to `directory`.
    pub fn read_file(&self, at: usize, directory: &Path, path: &str) -> (PathBuf, io::Result<Vec<u8>>) {
        let path = directory.join(path);
        let bytes = std::fs::read(&path);
        // Also a file that can't be read is recorded: a watcher must see when it appears.
        let hash = blake3::hash(bytes.as_deref().unwrap_or_default());
        self.files.borrow_mut().insert(at, (path.clone(), hash));
        (path, bytes)
    }
}

/// Reads the text of a file.
///
/// # Errors
/// The text can't be read, or is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String, Report> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Report::unreadable(&file, &error))?;
    text(bytes, &file)
}

/// Reads the text of a stream.
///
/// # Errors
/// The text can't be read, or is not UTF-8.
pub(super) fn read_from(mut stream: impl Read, name: &str) -> Result<String, Report> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|error| Report::unreadable(name, &error))?;
    text(bytes, name)
}

fn text(bytes: Vec<u8>, file: &str) -> Result<String, Report> {
    String::from_utf8(bytes).map_err(|error| Report::not_utf8(file, error.as_bytes(), error.utf8_error()))
}

/// A variable of the environment.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The errors of a text that is not valid TOML, and those other problems that do not follow from them. One broken line
/// can give several errors, of which the first is the most useful.
pub(super) fn with_syntax_errors(
    text: &str,
    broken: &[toml::de::Error],
    found: Vec<Problem>,
) -> Vec<Problem> {
    if let Some(problem) = other_format(text) {
        return vec![problem];
    }
    let row = |at: usize| text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
    let mut broken: Vec<(Range<usize>, &str)> =
        broken.iter().map(|error| (error.span().unwrap_or_default(), error.message())).collect();
    broken.sort_by_key(|(span, _)| span.start);
    broken.dedup_by_key(|(span, _)| row(span.start));
    let rows: Vec<usize> = broken.iter().map(|(span, _)| row(span.start)).collect();
    let mut problems: Vec<Problem> =
        broken.into_iter().map(|(span, message)| syntax_error(text, span, message)).collect();
    let is_sound = |problem: &Problem| !problem.is_derived() && !rows.contains(&row(problem.start()));
    problems.extend(found.into_iter().filter(is_sound));
    problems
}

/// The error for a text that is JSON or YAML.
fn other_format(text: &str) -> Option<Problem> {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let first = text.lines().find(is_content)?.trim();
    let is_yaml = first == "---" || first.starts_with("- ") || is_yaml_entry(first);
    // With a line of TOML it is a mistake in TOML.
    let has_toml = || text.lines().any(|line| line.starts_with('[') || line.split(' ').nth(1) == Some("="));
    let format = if first.starts_with('{') || first.starts_with("[{") {
        "JSON"
    } else if is_yaml && !has_toml() {
        "YAML"
    } else {
        return None;
    };
    // Without the line, which may have secrets.
    let problem = Problem::without_span(format!("the file is {format}, and tidegate reads TOML"));
    let problem =
        problem.help("in TOML a table begins with [name], and each of its keys is a line: key = \"value\"");
    let help = "`tidegate convert` converts configurations of Traefik, Kong and Envoy's rate-limit service";
    Some(problem.help(help))
}

/// Whether a line is `key: value` or `key:`.
fn is_yaml_entry(line: &str) -> bool {
    let is_value = |value: &str| value.is_empty() || value.starts_with(' ');
    line.split_once(':').is_some_and(|(key, value)| !key.contains(['=', ' ']) && is_value(value))
}

/// A syntax error, with help for common mistakes.
fn syntax_error(text: &str, span: Range<usize>, message: &str) -> Problem {
    let problem = Problem::error(span.clone(), format!("this is not valid TOML: {message}"));
    if message == "duplicate key" {
        let key = text.get(span).unwrap_or_default();
        return problem.help(format!("`{key}` is in one table twice, or two tables have this name"));
    }
    let line = text.get(..span.end).unwrap_or_default().rfind('\n').map_or(0, |end| end + 1);
    if text[line..].lines().next().is_some_and(is_yaml_entry) {
        return problem.help("between a key and its value write `=`, not `:`");
    }
    if message.starts_with("invalid ") || message.starts_with("string values must be quoted") {
        return problem.help("write text, rates and durations in quotes: \"5/minute\", \"30s\"");
    }
    problem
}
