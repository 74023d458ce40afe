//! Reading the configuration: its text, the environment, the problems found so far, and the files that it names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::keys::TableKeys;
use super::report::{Problem, Report};
use super::secrets::{self, ExpandError};
use super::sources::{Source, Sources};

/// The option that names the configuration file.
const CONFIGURATION: &str = "-c FILE";

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
    /// The directories of included files, by the offsets at which their texts start.
    directories: RefCell<BTreeMap<usize, PathBuf>>,
    /// Keys of the file itself that are in a table instead.
    misplaced: RefCell<Vec<String>>,
    /// The warnings and the errors of other files that have been read, with their names.
    of_others: RefCell<BTreeMap<String, (Report, Report)>>,
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
            directories: RefCell::default(),
            misplaced: RefCell::default(),
            of_others: RefCell::default(),
        }
    }

    /// The reader of another file, which has the keys `top`. It has the same environment; its spans are places in that file.
    pub fn of_other_file(&self, top: &'static TableKeys) -> Self {
        Self { is_for_library: self.is_for_library, ..Self::new(top, self.env) }
    }

    /// Adds the problems of another file, once for each file. Returns whether it has errors.
    pub fn add_other_file(&self, sources: &Sources, broken: &[BrokenText<'_>], reader: Reader<'_>) -> bool {
        self.variables.borrow_mut().extend(reader.variables());
        let found = reports(sources, broken, reader);
        let has_errors = !found.1.is_empty();
        self.of_others.borrow_mut().insert(sources.main.name.clone(), found);
        has_errors
    }

    /// Takes the warnings and the errors of other files.
    pub fn take_others(&self) -> impl Iterator<Item = (Report, Report)> + use<> {
        self.of_others.take().into_values()
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

    /// Notes the directory of an included file whose text starts at this offset.
    pub fn add_directory(&self, start: usize, directory: PathBuf) {
        self.directories.borrow_mut().insert(start, directory);
    }

    /// The path that the value at byte `at` names. It is relative to the directory of the file with the value, which is
    /// `directory` unless that file is included.
    pub fn path(&self, at: usize, directory: &Path, path: &str) -> PathBuf {
        let directories = self.directories.borrow();
        let included = directories.range(..=at).next_back().map(|(_, directory)| &**directory);
        included.unwrap_or(directory).join(path)
    }

    /// Reads a file that the value at byte `at` names, as [`Self::path`] does.
    pub fn read_file(&self, at: usize, directory: &Path, path: &str) -> (PathBuf, io::Result<Vec<u8>>) {
        let path = self.path(at, directory, path);
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
    read_for(path, CONFIGURATION)
}

/// Reads the text of the file that an option such as `-c FILE` names.
///
/// # Errors
/// The text can't be read, or is not UTF-8.
pub(super) fn read_for(path: &Path, option: &str) -> Result<String, Report> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Report::unreadable(&file, &error, option))?;
    text(bytes, &file)
}

/// Reads the text of a stream.
///
/// # Errors
/// The text can't be read, or is not UTF-8.
pub(super) fn read_from(mut stream: impl Read, name: &str) -> Result<String, Report> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|error| Report::unreadable(name, &error, CONFIGURATION))?;
    text(bytes, name)
}

/// The text of an included file, or the offset of the first byte that is not UTF-8.
pub(super) fn text_of(bytes: Vec<u8>) -> Result<String, usize> {
    String::from_utf8(bytes).map_err(|error| error.utf8_error().valid_up_to())
}

fn text(bytes: Vec<u8>, file: &str) -> Result<String, Report> {
    String::from_utf8(bytes).map_err(|error| Report::not_utf8(file, error.as_bytes(), error.utf8_error()))
}

/// A variable of the environment.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The warnings and the errors of these texts.
pub(super) fn reports(sources: &Sources, broken: &[BrokenText<'_>], reader: Reader<'_>) -> (Report, Report) {
    let found = reader.into_problems();
    let is_broken = broken.iter().any(|text| !text.errors.is_empty());
    let problems = if is_broken { with_syntax_errors(broken, found) } else { found };
    let (warnings, errors): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(Problem::is_warning);
    (Report::of(sources.clone(), warnings), Report::of(sources.clone(), errors))
}

/// A text that is not valid TOML.
pub(super) struct BrokenText<'a> {
    pub source: &'a Source,
    /// Their spans are places in the text of this source.
    pub errors: Vec<toml::de::Error>,
}

/// The errors of texts that are not valid TOML, and those other problems that do not follow from them. One broken line
/// can give several errors, of which the first is the most useful.
fn with_syntax_errors(broken: &[BrokenText<'_>], found: Vec<Problem>) -> Vec<Problem> {
    let main = broken.iter().find(|broken| broken.source.start == 0);
    if let Some(problem) = main.and_then(|broken| other_format(&broken.source.text)) {
        return vec![problem];
    }
    let (mut problems, mut lines) = (Vec::new(), Vec::new());
    for broken in broken {
        broken.add_errors(&mut problems, &mut lines);
    }
    let is_sound = |problem: &Problem| {
        !problem.is_derived() && !lines.iter().any(|line: &Range<usize>| line.contains(&problem.start()))
    };
    problems.extend(found.into_iter().filter(is_sound));
    problems
}

impl BrokenText<'_> {
    /// Adds the first error of each line, and the lines.
    fn add_errors(&self, problems: &mut Vec<Problem>, lines: &mut Vec<Range<usize>>) {
        let Source { text, start, .. } = self.source;
        let mut errors: Vec<(Range<usize>, &str)> =
            self.errors.iter().map(|error| (error.span().unwrap_or_default(), error.message())).collect();
        errors.sort_by_key(|(span, _)| span.start);
        errors.dedup_by_key(|(span, _)| line_of(text, span.start).start);
        for (span, message) in errors {
            let line = line_of(text, span.start);
            lines.push(start + line.start..start + line.end);
            problems.push(syntax_error(text, span, message).moved(*start));
        }
    }
}

/// The line of a byte, with its line break or the end of the text.
fn line_of(text: &str, at: usize) -> Range<usize> {
    let (before, after) = text.as_bytes().split_at(at.min(text.len()));
    let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let length = after.iter().position(|&byte| byte == b'\n').unwrap_or(after.len());
    start..before.len() + length + 1
}

/// The error for a text that is JSON or YAML.
fn other_format(text: &str) -> Option<Problem> {
    let format = foreign_format(text)?;
    // Without the line, which may have secrets.
    let problem = Problem::without_span(format!("the file is {format}, and tidegate reads TOML"));
    let problem =
        problem.help("in TOML a table begins with [name], and each of its keys is a line: key = \"value\"");
    let help = "`tidegate convert` converts configurations of Traefik, Kong, Kubernetes and Envoy's rate-limit service";
    Some(problem.help(help))
}

/// JSON or YAML, if a text seems to be that.
pub(super) fn foreign_format(text: &str) -> Option<&'static str> {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let first = text.lines().find(is_content)?.trim();
    let is_yaml = first == "---" || first.starts_with("- ") || is_yaml_entry(first);
    // With a line of TOML it is a mistake in TOML.
    let has_toml = || text.lines().any(|line| line.starts_with('[') || line.split(' ').nth(1) == Some("="));
    if first.starts_with('{') || first.starts_with("[{") {
        Some("JSON")
    } else {
        (is_yaml && !has_toml()).then_some("YAML")
    }
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
