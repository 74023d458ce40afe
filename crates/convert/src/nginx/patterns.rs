//! Values and simple regular expressions of `map`, as patterns of conditions.

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

/// The most path patterns of a regular expression.
const MAX_PATHS: usize = 16;

/// The path patterns that together match the paths that a regular expression matches: literal text with alternatives, `.*`,
/// `[^/]*` within a segment, and `[^/]+` for a whole one. `None` for all other expressions.
pub(crate) fn paths_of_regex(regex: &str) -> Option<Vec<String>> {
    let paths: Option<Vec<Vec<String>>> =
        alternatives(regex)?.into_iter().map(paths_of_alternative).collect();
    let paths = paths?.concat();
    (paths.len() <= MAX_PATHS && paths.iter().all(|path| is_pattern(path))).then_some(paths)
}

/// Whether a route can have this path: no normalized path has dot segments or double slashes, and a pattern is not too long.
fn is_pattern(path: &str) -> bool {
    let segments = path.split('/').skip(1);
    path.len() <= 120
        && !path.contains(['%', ' '])
        && !path.contains("//")
        && !segments.clone().any(|it| matches!(it, "." | ".."))
}

fn paths_of_alternative(regex: &str) -> Option<Vec<String>> {
    let (body, is_start) = regex.strip_prefix('^').map_or((regex, false), |body| (body, true));
    let is_escaped = body.ends_with("\\$") && !body.ends_with("\\\\$");
    let (body, is_end) =
        body.strip_suffix('$').filter(|_| !is_escaped).map_or((body, false), |body| (body, true));
    // Every path has a character before the others.
    let (body, is_start) = match body.strip_prefix(".+") {
        // If the rest can't begin with the slash that is that character.
        Some(rest) if rest.starts_with(|c: char| c == '\\' || c.is_alphanumeric()) => (rest, false),
        _ => (body, is_start),
    };
    sequence(body)?.iter().map(|path| whole_path(path, is_start, is_end)).collect()
}

/// The pattern of a path in which an expression without anchors matches. Asterisks at its ends have another meaning in a pattern.
fn whole_path(inner: &str, is_start: bool, is_end: bool) -> Option<String> {
    let (start, rest) = match (is_start, inner.strip_prefix("**")) {
        (true, None) => ("", inner),
        (_, rest) => ("*", rest.unwrap_or(inner)),
    };
    let (rest, end) = match (is_end, rest.strip_suffix("**")) {
        (true, None) => (rest, ""),
        (_, shorter) => (shorter.unwrap_or(rest), "*"),
    };
    let mut number = 0;
    let segments = rest.split('/').map(|segment| match segment {
        PARAMETER => {
            number += 1;
            Some(format!("{{part{number}}}"))
        }
        _ => (!segment.contains('{')).then(|| segment.to_owned()),
    });
    let named = segments.collect::<Option<Vec<_>>>()?.join("/");
    let is_path = start == "*" || named.starts_with('/');
    let is_exact = !(named.ends_with('*') || named.starts_with('*') || (end == "*" && named.ends_with('}')));
    // It is not certain which segment a parameter after any text is.
    let is_certain = number == 0 || !(start == "*" || named.contains("**"));
    let is_valid = is_path && is_exact && is_certain && !named.contains("***");
    // A single asterisk is the target of `OPTIONS *`.
    let path = if named.is_empty() { "/*".to_owned() } else { format!("{start}{named}{end}") };
    is_valid.then_some(path)
}

/// A whole segment, before its parameters are numbered.
const PARAMETER: &str = "{}";

/// The texts of a sequence of characters, groups and `.*`.
fn sequence(regex: &str) -> Option<Vec<String>> {
    let mut texts = vec![String::new()];
    let mut rest = regex;
    while let Some(c) = rest.chars().next() {
        let (choices, after) = if let Some(after) = rest.strip_prefix(".*") {
            (vec!["**".to_owned()], after)
        } else if let Some(after) = rest.strip_prefix("[^/]*") {
            (vec!["*".to_owned()], after)
        } else if let Some(after) = rest.strip_prefix("[^/]+") {
            (vec![PARAMETER.to_owned()], after)
        } else if c == '(' {
            let length = group_length(rest)?;
            let inner = rest[1..length].trim_start_matches("?:");
            let choices: Option<Vec<_>> = alternatives(inner)?.into_iter().map(sequence).collect();
            (choices?.concat(), &rest[length + 1..])
        } else {
            let length = if c == '\\' { 1 + rest[1..].chars().next()?.len_utf8() } else { c.len_utf8() };
            let text = unescaped(&rest[..length]).filter(|text| !text.contains(['*', '{']))?;
            (vec![text], &rest[length..])
        };
        let (choices, after) = match after.strip_prefix('?') {
            // A shortest match is the same match here.
            Some(after) if choices == ["**"] || choices == ["*"] || choices == [PARAMETER] => {
                (choices, after)
            }
            Some(after) => (choices.into_iter().chain([String::new()]).collect(), after),
            None => (choices, after),
        };
        // Two asterisks would mean something else.
        let joins_stars =
            choices.iter().any(|it| it.starts_with('*')) && texts.iter().any(|it| it.ends_with('*'));
        if joins_stars || after.starts_with(['*', '+', '{', '?']) || texts.len() * choices.len() > MAX_PATHS {
            return None;
        }
        texts = texts
            .iter()
            .flat_map(|text| choices.iter().map(move |choice| format!("{text}{choice}")))
            .collect();
        rest = after;
    }
    Some(texts)
}

/// The length of the group that a text begins with, without its closing parenthesis.
fn group_length(text: &str) -> Option<usize> {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    None
}

/// The alternatives outside of groups.
fn alternatives(regex: &str) -> Option<Vec<&str>> {
    let (mut found, mut start, mut depth, mut is_escaped) = (Vec::new(), 0, 0_usize, false);
    for (at, c) in regex.char_indices() {
        match c {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => {
                found.push(&regex[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    found.push(&regex[start..]);
    (depth == 0).then_some(found)
}

/// The text with which all paths begin that a regular expression matches.
pub(crate) fn start_of_regex(regex: &str, is_case_sensitive: bool) -> String {
    let Some(body) =
        regex.strip_prefix('^').filter(|body| alternatives(body).is_some_and(|all| all.len() == 1))
    else {
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
    fn expressions_are_paths() {
        for (regex, paths) in [
            ("^/api/", &["/api/*"][..]),
            ("^/api$", &["/api"]),
            ("^/v1\\.0/.*$", &["/v1.0/*"]),
            ("^/users/[^/]+/orders$", &["/users/{part1}/orders"]),
            ("^/[^/]+/x/[^/]+$", &["/{part1}/x/{part2}"]),
            ("\\.php$", &["*.php"]),
            ("/\\.", &["*/.*"]),
            ("^/a(b|c)", &["/ab*", "/ac*"]),
            ("^/(?:js|css)/.*\\.(js|css)$", &["/js/**.js", "/js/**.css", "/css/**.js", "/css/**.css"]),
            ("^.+\\.png$", &["*.png"]),
            (".*\\.html?$", &["*.html", "*.htm"]),
            ("^/a/[^/]*\\.js$", &["/a/*.js"]),
            ("^/a|/b$", &["/a*", "*/b"]),
            ("^/x/.*?/y$", &["/x/**/y"]),
            ("^(.*)$", &["/*"]),
            (".*", &["/*"]),
        ] {
            let expected = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(paths_of_regex(regex), Some(expected), "{regex}");
        }
    }

    #[test]
    fn other_expressions_are_no_paths() {
        for regex in [
            "^/x[^/]+$",
            "^/x/[^/]+",
            "^/v[0-9]/",
            "^/\\d+$",
            "^/a+$",
            "^/a{2}",
            "^/(a|b)+",
            "^/a(?!b)",
            "^/a(b",
            "^/a.b",
            "[^/]+/x$",
            "^/.*/[^/]+/x$",
            "^/a/[^/]*$",
            "^/x*",
            "^api/",
            "^/(a|b|c|d|e)(f|g|h|i)",
            "^.+/health$",
            "//",
            "/\\.$",
            "[^/]*[^/]*x$",
            "^/a%20b$",
        ] {
            assert_eq!(paths_of_regex(regex), None, "{regex}");
        }
    }

    /// Every pattern matches what its expression matches.
    #[test]
    fn paths_match_what_their_expressions_match() {
        let texts = [
            "/",
            "/a",
            "/ab",
            "/acx",
            "/x.php",
            "/d/x.php",
            "/.git",
            "/d/.git/x",
            "/js/a/b.css",
            "/js/.js",
            "/x//y",
            "/x/a/b/y",
        ];
        for regex in
            ["\\.php$", "/\\.", "^/a(b|c)", "^/(?:js|css)/.*\\.(js|css)$", "^/x/.*?/y$", "^.+\\.php$"]
        {
            let paths = paths_of_regex(regex).unwrap();
            for text in texts {
                let expected = regex::Regex::new(regex).unwrap().is_match(text);
                assert_eq!(
                    paths.iter().any(|path| is_match(path, text)),
                    expected,
                    "{regex} {paths:?} {text}"
                );
            }
        }
    }

    /// Whether a path matches a pattern without parameters.
    fn is_match(pattern: &str, path: &str) -> bool {
        let escaped = regex::escape(pattern);
        let start = escaped.strip_prefix("\\*").map_or(escaped.clone(), |rest| format!(".*{rest}"));
        let end = start.strip_suffix("\\*").map_or(start.clone(), |rest| format!("{rest}.*"));
        let inner = end.replace("\\*\\*", ".*").replace("\\*", "[^/]*");
        regex::Regex::new(&format!("^{inner}$")).unwrap().is_match(path)
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
