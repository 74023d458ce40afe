//! The text of a configuration file: where it comes from, and its errors if it is not valid TOML.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::report::{Problem, Report};

/// Reads the text of a file.
///
/// # Errors
/// That it can't be read, or is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String, Report> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Report::unreadable(&file, &error))?;
    text(bytes, &file)
}

/// Reads the text of a stream.
///
/// # Errors
/// That it can't be read, or is not UTF-8.
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

/// A syntax error, with help for common mistakes.
fn syntax_error(text: &str, span: Range<usize>, message: &str) -> Problem {
    let problem = Problem::error(span.clone(), format!("this is not valid TOML: {message}"));
    if message == "duplicate key" {
        let key = text.get(span).unwrap_or_default();
        return problem.help(format!("`{key}` is in one table twice, or two tables have this name"));
    }
    if message.starts_with("invalid ") || message.starts_with("string values must be quoted") {
        return problem.help("write text, rates and durations in quotes: \"5/minute\", \"30s\"");
    }
    problem
}
