//! Values and simple regular expressions of `map`, as patterns of conditions.

use std::fmt::Write as _;

/// A text as a pattern that matches it alone.
pub(in crate::cli::convert) fn literal(text: &str) -> String {
    text.replace('\\', "\\\\").replace('*', "\\*")
}

/// The patterns of a regular expression that is a list of literal texts, such as `(bot|crawler)`.
pub(super) fn of_regex(regex: &str) -> Option<Vec<String>> {
    let inner = regex.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(regex);
    inner.split('|').map(alternative).collect()
}

fn alternative(regex: &str) -> Option<String> {
    let (body, start) = regex.strip_prefix('^').map_or((regex, "*"), |body| (body, ""));
    let (body, end) = body.strip_suffix('$').map_or((body, "*"), |body| (body, ""));
    let text = unescaped(body).filter(|text| !text.is_empty())?;
    Some(format!("{start}{}{end}", literal(&text)))
}

/// The text that a regular expression without operators matches.
fn unescaped(regex: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = regex.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => text.push(rest.next().filter(|c| !c.is_alphanumeric())?),
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => return None,
            _ => text.push(c),
        }
    }
    Some(text)
}

/// The path pattern of a regular expression for paths: literal text, and `[^/]+` for a segment.
pub(super) fn path_of_regex(regex: &str) -> Option<String> {
    let body = regex.strip_prefix('^')?;
    let (body, is_whole) = body.strip_suffix('$').map_or((body, false), |body| (body, true));
    let (body, is_whole) = body.strip_suffix(".*").map_or((body, is_whole), |body| (body, false));
    let mut path = String::new();
    for (number, segment) in body.split("[^/]+").enumerate() {
        if number > 0 {
            // Writing to a string can't fail.
            let _ = write!(path, "{{part{number}}}");
        }
        path.push_str(&unescaped(segment).filter(|text| !text.contains(['*', '{']))?);
    }
    // A segment is matched as a whole.
    let is_split =
        |segment: &str| segment.contains('{') && !(segment.starts_with('{') && segment.ends_with('}'));
    let is_valid = path.starts_with('/') && !path.split('/').any(is_split);
    let ends_in_part = path.ends_with('}');
    let path = if is_whole { path } else { path + "*" };
    (is_valid && (is_whole || !ends_in_part)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_texts_are_patterns() {
        let patterns = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(of_regex("bot"), patterns(&["*bot*"]));
        assert_eq!(of_regex("(google|^bing\\.com$)"), patterns(&["*google*", "bing.com"]));
        for regex in ["a.b", "a(b|c)", "[ab]", "a+", "", "\\d"] {
            assert_eq!(of_regex(regex), None, "{regex}");
        }
    }

    #[test]
    fn simple_expressions_are_paths() {
        let cases = [
            ("^/api/", Some("/api/*")),
            ("^/api$", Some("/api")),
            ("^/v1\\.0/.*$", Some("/v1.0/*")),
            ("^/users/[^/]+/orders$", Some("/users/{part1}/orders")),
            ("\\.php$", None),
            ("^/a(b|c)", None),
            ("^/x[^/]+$", None),
            ("^/x/[^/]+", None),
        ];
        for (regex, path) in cases {
            assert_eq!(path_of_regex(regex).as_deref(), path, "{regex}");
        }
    }
}
