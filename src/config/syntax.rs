//! Errors of a text that is not valid TOML.

use std::ops::Range;

use super::report::Problem;

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
