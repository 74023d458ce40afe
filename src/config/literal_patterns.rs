//! Conditions of routes that mean something else than they seem to: a path in the pattern language of another program,
//! which is literal text here, and a header's value that is a pattern here.

use http::header::{ACCEPT, HeaderName, IF_MATCH, IF_NONE_MATCH};

use super::item::Text;
use super::report::Problem;
use crate::gate::PathPattern;

const ONE_SEGMENT: &str = "`{name}` matches one segment, and a `*` at the end any rest";

/// Warns if the path of a route looks like a pattern of another program.
pub(super) fn warn_of_path(text: &Text<'_>) {
    let Some((why, help)) = path(&text.value) else { return };
    // Messages do not quote values from the environment.
    let why = if text.from_env { "this path is matched literally".to_owned() } else { why };
    text.item.reader.report(Problem::warning(text.item.span(), why).help(help));
}

/// How to write a path that has a `*` elsewhere than at its end: `/api/**` is `/api/*`, and `/api/*/x` is `/api/{name}/x`.
pub(super) fn star_cure(text: &Text<'_>) -> String {
    let mut number = 0;
    let segments = text.value.split('/').map(|segment| match segment {
        "*" => {
            number += 1;
            if number == 1 { "{name}".to_owned() } else { format!("{{name{number}}}") }
        }
        segment => segment.to_owned(),
    });
    let pattern = match text.value.strip_suffix("**") {
        Some(start) => format!("{start}*"),
        None => segments.collect::<Vec<_>>().join("/"),
    };
    // Messages do not quote values from the environment.
    let is_cure = !text.from_env && PathPattern::parse(&pattern).is_ok();
    if is_cure { format!("write \"{pattern}\": {ONE_SEGMENT}") } else { ONE_SEGMENT.to_owned() }
}

/// The reason why hardly any request has such a path, and help.
fn path(path: &str) -> Option<(String, String)> {
    if let Some((_, query)) = path.split_once('?') {
        let help = match query.split_once('=') {
            Some((name, value)) => format!("write query = {{ \"{name}\" = \"{value}\" }}"),
            None => "write conditions on the query as query = { name = \"value\" }".to_owned(),
        };
        return Some(("no request matches: the query is not part of the path".to_owned(), help));
    }
    if path.contains('#') {
        let why = "no request matches: clients do not send the fragment of a URL".to_owned();
        return Some((why, "leave out `#` and the text after it".to_owned()));
    }
    path.split('/').find_map(segment)
}

fn segment(segment: &str) -> Option<(String, String)> {
    if let Some(name) = segment.strip_prefix(':').filter(|name| is_name(name)) {
        let why = format!("`:{name}` is matched literally: it is not a parameter");
        return Some((why, format!("write `{{{name}}}` for any segment")));
    }
    if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let (name, _) = (!is_name(name)).then(|| name.split_once([':', '<']).unwrap_or((name, "")))?;
        let help = format!("write `{{{}}}`: a parameter matches any segment", name.trim());
        return Some((format!("`{segment}` is only a name: a pattern in it has no effect"), help));
    }
    let is_quantified = |closing: char| {
        segment.match_indices(closing).any(|(at, _)| segment[at + 1..].starts_with(['+', '*', '?', '{']))
    };
    let is_regular_expression = (segment.contains('[') && segment.contains(']'))
        || is_quantified(')')
        || (segment.contains('(') && segment.contains('|') && segment.contains(')'))
        || segment.starts_with('^')
        || (segment.len() > 1 && segment.ends_with('$'))
        || segment == ".+";
    is_regular_expression.then(|| {
        let why = format!("`{segment}` is matched literally: paths have no regular expressions");
        (why, ONE_SEGMENT.to_owned())
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// Warns if a pattern is a value that clients send, since it then matches many other values too.
pub(super) fn warn_of_header(name: &HeaderName, text: &Text<'_>) {
    let (matched, value) = match (name, &*text.value) {
        (&ACCEPT, "*/*") => ("every value with a slash", r"'\*/\*'"),
        (&IF_MATCH | &IF_NONE_MATCH, "*") => ("every value", r"'\*'"),
        _ => return,
    };
    let title = format!("`*` matches any text: this pattern matches {matched}");
    let help = format!("for the value `{}` itself write {value}", text.value);
    text.item.reader.report(Problem::warning(text.item.span(), title).help(help));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_other_programs_are_found() {
        for (text, why) in [
            ("/users/:id", "`:id` is matched literally: it is not a parameter"),
            ("/users/[0-9]+", "`[0-9]+` is matched literally: paths have no regular expressions"),
            ("/a/(b|c)/d", "`(b|c)` is matched literally: paths have no regular expressions"),
            ("/(ab)+", "`(ab)+` is matched literally: paths have no regular expressions"),
            ("/a$", "`a$` is matched literally: paths have no regular expressions"),
            ("/a/.+", "`.+` is matched literally: paths have no regular expressions"),
            ("/{id:[0-9]+}", "`{id:[0-9]+}` is only a name: a pattern in it has no effect"),
            ("/a?x=1", "no request matches: the query is not part of the path"),
            ("/a?", "no request matches: the query is not part of the path"),
            ("/a#b", "no request matches: clients do not send the fragment of a URL"),
        ] {
            assert_eq!(path(text).map(|(why, _)| why).as_deref(), Some(why), "{text}");
        }
    }

    #[test]
    fn literal_text_is_not_a_pattern() {
        for text in [
            "/",
            "/*",
            "/a/{id}/{user-id}/*",
            "/.well-known/*",
            "/v1/items:batch",
            "/12:30",
            "/a+b",
            "/odata/$metadata",
            "/odata/Users('x')",
            "/$",
            "/a*",
            "/{größe}",
        ] {
            assert_eq!(path(text), None, "{text}");
        }
    }
}
