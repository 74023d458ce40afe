//! Paths of Ingresses, and what a rewrite does with them.

use crate::model::{TomlRoute, TomlTarget};
use crate::nginx::{paths_of_regex, start_of_regex};

/// How a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathType {
    Exact,
    /// In whole segments.
    Prefix,
    /// The path begins with this text.
    Text,
    /// A regular expression that ignores case, from the start of the path.
    Regex,
}

/// The rest of a path after a prefix, in a regular expression: its text, the number of the group that captures it, and whether
/// the prefix alone is matched, too.
const RESTS: [(&str, u8, bool); 4] =
    [("(/|$)(.*)", 2, true), ("(/|$)(.*)$", 2, true), ("/(.*)", 1, false), ("/(.*)$", 1, false)];

/// The paths of a route.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub paths: Vec<String>,
    /// The prefix before the rest of the path, and the number of the group with the rest.
    pub prefix: Option<(String, u8)>,
    /// Why requests that may match get 501.
    pub lost: Option<&'static str>,
    /// Whether nginx matches more paths: in another case, or with other characters in place of a dot.
    pub is_narrower: bool,
}

impl Located {
    fn at(paths: Vec<String>) -> Self {
        Self { paths, prefix: None, lost: None, is_narrower: false }
    }

    /// The paths of a prefix in whole segments.
    pub fn below(prefix: &str) -> Self {
        match prefix.trim_end_matches('/') {
            "" => Self::at(vec!["/*".to_owned()]),
            prefix => Self::at(vec![prefix.to_owned(), format!("{prefix}/*")]),
        }
    }
}

/// Whether a text is a path in normal form, without characters that mean something in the path of a route.
pub(super) fn is_path(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*{}%?#\\".contains(&byte);
    let mut segments = text.split('/').skip(1);
    text.starts_with('/')
        && text.bytes().all(is_plain)
        && !text.contains("//")
        && !segments.any(|segment| matches!(segment, "." | ".."))
}

/// The path of all requests that may have a path with this beginning.
pub(super) fn below_start(start: &str) -> String {
    if is_path(start) { format!("{start}*") } else { "/*".to_owned() }
}

/// The paths of a route for a path of an Ingress.
pub(super) fn located(text: &str, kind: PathType) -> Located {
    if kind == PathType::Regex {
        return located_by_regex(text);
    }
    if !is_path(text) {
        let start = text.split(['*', '{', '}', '%', ' ']).next().unwrap_or_default();
        let lost = Some("a path of a route can't have these characters, and is in normal form");
        return Located { lost, ..Located::at(vec![below_start(start)]) };
    }
    match kind {
        PathType::Exact => Located::at(vec![text.to_owned()]),
        PathType::Prefix => Located::below(text),
        _ => Located::at(vec![format!("{text}*")]),
    }
}

fn located_by_regex(text: &str) -> Located {
    let is_narrower =
        |text: &str| text.replace(".*", "").contains(|c: char| c.is_ascii_alphabetic() || c == '.');
    let is_literal = |prefix: &str| {
        (prefix.is_empty() || is_path(prefix))
            && !prefix.contains(['(', '[', '{', '*', '+', '?', '\\', '^', '$', '|'])
    };
    for (rest, group, with_prefix) in RESTS {
        let Some(prefix) = text.strip_suffix(rest).filter(|prefix| is_literal(prefix)) else { continue };
        let mut found = Located::below(prefix);
        if !with_prefix && !prefix.is_empty() {
            found.paths.remove(0);
        }
        return Located {
            is_narrower: is_narrower(prefix),
            prefix: Some((prefix.to_owned(), group)),
            ..found
        };
    }
    // A dot is taken for itself.
    let escaped = text.replace('.', "\\.").replace("\\\\.", "\\.").replace("\\.*", ".*");
    if let Some(paths) = paths_of_regex(&format!("^{escaped}")) {
        return Located { is_narrower: is_narrower(text), ..Located::at(paths) };
    }
    let start = below_start(&start_of_regex(&format!("^{text}"), true));
    let lost = Some("no patterns of paths match what this regular expression matches");
    Located { lost, is_narrower: is_narrower(text), ..Located::at(vec![start]) }
}

/// Rewrites the path of a route to a target, such as `/v2/$1`. Fails where a route can't do so: the route then responds with 501.
pub(super) fn rewrite(route: &mut TomlRoute, located: &Located, target: &str) -> Result<(), &'static str> {
    let is_plain = |text: &str| is_path(text) && !text.contains(['$', '(']);
    if is_plain(target) {
        route.rewrite_path = Some(target.to_owned());
        return Ok(());
    }
    if let Some((prefix, group)) = &located.prefix
        && let Some(base) = target.strip_suffix(&format!("/${group}"))
        && (base.is_empty() || is_plain(base))
    {
        route.strip_prefix = Some(prefix.clone()).filter(|prefix| !prefix.is_empty());
        route.add_prefix = Some(base.to_owned()).filter(|base| !base.is_empty());
        return Ok(());
    }
    route.target = TomlTarget::missing();
    Err("a route can't rewrite the path in this way: requests get 501 until you replace it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_ingresses_are_paths_of_routes() {
        use PathType::{Exact, Prefix, Regex, Text};
        for (text, kind, expected) in [
            ("/", Prefix, "/*"),
            ("/foo", Prefix, "/foo /foo/*"),
            ("/foo/", Prefix, "/foo /foo/*"),
            ("/foo", Exact, "/foo"),
            ("/foo", Text, "/foo*"),
            ("/foo/*", Text, "/foo/* lost"),
            ("/foo", Regex, "/foo* narrower"),
            ("/foo(/|$)(.*)", Regex, "/foo /foo/* narrower"),
            ("/foo/(.*)", Regex, "/foo/* narrower"),
            ("/(.*)", Regex, "/*"),
            ("/(a|b)/v1.0/.*", Regex, "/a/v1.0/* /b/v1.0/* narrower"),
            ("/v1\\.0/", Regex, "/v1.0/* narrower"),
            ("/u/[0-9]+", Regex, "/u/* lost narrower"),
        ] {
            let Located { paths, lost, is_narrower, .. } = located(text, kind);
            let marks = [lost.map_or("", |_| " lost"), if is_narrower { " narrower" } else { "" }].concat();
            assert_eq!(paths.join(" ") + &marks, expected, "{text}");
        }
    }

    #[test]
    fn rewrites_are_those_of_nginx() {
        for (text, target, expected) in [
            ("/foo(/|$)(.*)", "/$2", Some("/foo - -")),
            ("/foo(/|$)(.*)", "/v2/$2", Some("/foo /v2 -")),
            ("/foo/(.*)", "/$1", Some("/foo - -")),
            ("/(.*)", "/$1", Some("- - -")),
            ("/foo", "/", Some("- - /")),
            ("/foo(/|$)(.*)", "/$1", None),
            ("/foo/(.*)", "/v2$1", None),
            ("/foo", "/x?a=b", None),
        ] {
            let mut route = TomlRoute::default();
            let made = rewrite(&mut route, &located(text, PathType::Regex), target);
            let parts = [route.strip_prefix, route.add_prefix, route.rewrite_path];
            let text = parts.map(|part| part.unwrap_or_else(|| "-".to_owned())).join(" ");
            assert_eq!(made.ok().map(|()| &*text), expected, "{target}");
        }
    }
}
