//! Values and simple regular expressions of `map`, as patterns of conditions.

use std::fmt::Write as _;

/// A text as a pattern that matches it alone.
pub(crate) fn literal(text: &str) -> String {
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

/// The text with which all paths begin that a regular expression matches.
pub(crate) fn start_of_regex(regex: &str, is_case_sensitive: bool) -> String {
    let Some(body) = regex.strip_prefix('^').filter(|body| !has_alternatives(body)) else {
        return String::new();
    };
    let mut start = String::new();
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        let next = match c {
            '\\' => rest.next().filter(|c| !c.is_alphanumeric()),
            '?' | '{' | '*' => {
                // The character before it may be missing.
                start.pop();
                None
            }
            '.' | '+' | '(' | ')' | '[' | ']' | '}' | '|' | '^' | '$' => None,
            _ => Some(c),
        };
        // A path of a route has no such characters.
        match next.filter(|c| !matches!(c, '*' | '{' | '}') && (is_case_sensitive || !c.is_alphabetic())) {
            Some(c) => start.push(c),
            None => break,
        }
    }
    start
}

/// Whether a regular expression has alternatives that are not in parentheses.
fn has_alternatives(regex: &str) -> bool {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for c in regex.chars() {
        match c {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    false
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

    #[test]
    fn expressions_begin_with_a_text() {
        let cases = [
            ("^/admin/.*\\.php$", "/admin/"),
            ("^/v1\\.0/(a|b)", "/v1.0/"),
            ("^/colou?r", "/colo"),
            ("^/a+b", "/a"),
            ("^/a|^/b", ""),
            ("\\.php$", ""),
            ("^/\\d", "/"),
        ];
        for (regex, expected) in cases {
            assert_eq!(start_of_regex(regex, true), expected, "{regex}");
        }
        assert_eq!(start_of_regex("^/-/admin", false), "/-/");
    }
}
