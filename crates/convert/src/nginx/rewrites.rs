//! `rewrite` directives that replace a prefix of the path.

use super::patterns::paths_of_regex;
use super::tree::Directive;
use crate::model::{TomlRoute, TomlTarget};
use crate::note::Note;

/// A prefix that is replaced by another one, both in whole segments and without the slash at their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrefixRewrite {
    from: String,
    to: String,
    /// Whether the slash after the prefix is a part of what is kept, as in `rewrite ^/api(.*)$ $1 break`: nginx then responds with 500 to
    /// a path that is the prefix, and sends servers a path without a slash for one that goes on with another character.
    keeps_slash: bool,
}

/// Reads a directive such as `rewrite ^/api/(.*)$ /v2/$1 break`, whose location forwards the path that it makes.
pub(super) fn prefix_rewrite(directive: &Directive) -> Option<PrefixRewrite> {
    if directive.name != "rewrite" || directive.args.len() != 3 || directive.arg(2) != "break" {
        return None;
    }
    let pattern = directive.arg(0).strip_prefix('^')?;
    let from = pattern.strip_suffix('$').unwrap_or(pattern).strip_suffix("(.*)")?;
    let to = directive.arg(1).strip_suffix("$1")?;
    let (from, to, keeps_slash) = match from.strip_suffix('/') {
        Some(from) => (from, to.strip_suffix('/')?, false),
        None => (from, to, true),
    };
    let is_plain = |text: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_~".contains(&byte);
        (text.is_empty() || text.starts_with('/') && !text.contains("//")) && text.bytes().all(is_known)
    };
    // A dot of the pattern matches any character.
    let is_target = to.split('/').all(|segment| !matches!(segment, "." | ".."));
    (is_plain(from) && is_plain(&to.replace('.', "-")) && is_target).then(|| PrefixRewrite {
        from: from.to_owned(),
        to: to.to_owned(),
        keeps_slash,
    })
}

/// Whether a `rewrite` redirects clients.
pub(super) fn redirects(directive: &Directive) -> bool {
    let is_url = ["http://", "https://", "$scheme"].iter().any(|start| directive.arg(1).starts_with(start));
    directive.name == "rewrite" && (is_url || directive.has("redirect") || directive.has("permanent"))
}

/// Routes with 501 for the paths of a route that a `rewrite` among these directives redirects, so that they reach no server. If its
/// paths are not known, the route itself responds with 501.
pub(super) fn redirected(block: &[Directive], route: &mut TomlRoute) -> Vec<TomlRoute> {
    let mut routes = Vec::new();
    for rewrite in block.iter().filter(|directive| redirects(directive)) {
        let note = Note::text(format!(
            "{}: requests that it redirects get 501 until you replace this route by one with `redirect`.",
            rewrite.place
        ));
        let within = |path: &String| {
            route
                .path
                .strip_suffix('*')
                .is_some_and(|start| path.len() > start.len() && path.starts_with(start))
        };
        let paths = paths_of_regex(rewrite.arg(0)).filter(|paths| paths.iter().all(within));
        let Some(paths) = paths.filter(|paths| !paths.contains(&route.path)) else {
            route.notes.push(note);
            route.target = TomlTarget::missing();
            continue;
        };
        let mut notes = vec![note];
        routes.extend(paths.into_iter().map(|path| TomlRoute {
            notes: std::mem::take(&mut notes),
            path,
            target: TomlTarget::missing(),
            ..TomlRoute::default()
        }));
    }
    routes
}

impl PrefixRewrite {
    /// The routes of a location with this prefix: one for the paths that are rewritten, and the route for all others.
    pub fn routes(&self, directive: &Directive, route: TomlRoute, prefix: &str) -> Vec<TomlRoute> {
        let concerns_all = self.concerns_all(prefix);
        let rewritten = TomlRoute {
            path: if concerns_all { route.path.clone() } else { format!("{}/*", self.from) },
            strip_prefix: (!self.from.is_empty()).then(|| self.from.clone()),
            add_prefix: (!self.to.is_empty()).then(|| self.to.clone()),
            ..route.clone()
        };
        let mut others = (!concerns_all).then(|| TomlRoute { notes: Vec::new(), ..route });
        if let Some(others) = others.as_mut().filter(|_| self.keeps_slash) {
            let reason = "nginx responds to its other requests with 500, or sends servers a path without a slash: they get 501";
            others.notes.push(directive.finding(reason).for_information());
            others.target = TomlTarget::missing();
        }
        [rewritten].into_iter().chain(others).collect()
    }

    /// Whether it concerns all paths of a location with this prefix.
    pub fn concerns_all(&self, prefix: &str) -> bool {
        prefix.strip_prefix(&*self.from).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether it concerns paths of a location with this prefix and this path of a route.
    pub fn fits(&self, prefix: &str, path: &str) -> bool {
        let is_within = format!("{}/", self.from).starts_with(prefix);
        let is_known = if self.keeps_slash { prefix == self.from } else { is_within };
        path.strip_suffix('*') == Some(prefix) && (is_known || self.concerns_all(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::tree::Tree;

    fn directive(text: &str) -> Directive {
        Tree::new(std::path::Path::new("")).parse("f", text).unwrap().remove(0)
    }

    fn rewrite(text: &str) -> Option<PrefixRewrite> {
        prefix_rewrite(&directive(text))
    }

    #[test]
    fn prefixes_of_whole_segments_are_replaced() {
        let some = |from: &str, to: &str| {
            Some(PrefixRewrite { from: from.to_owned(), to: to.to_owned(), keeps_slash: false })
        };
        assert_eq!(rewrite("rewrite ^/api/(.*)$ /$1 break;"), some("/api", ""));
        assert_eq!(rewrite("rewrite ^/a/b/(.*) /v1.2/$1 break;"), some("/a/b", "/v1.2"));
        assert_eq!(rewrite("rewrite ^/(.*)$ /app/$1 break;"), some("", "/app"));
        for text in [
            "rewrite ^/api/(.*)$ $1 break;",
            "rewrite ^/api/(.*)$ /$1 last;",
            "rewrite ^/api/(.*)$ /$1;",
            "rewrite ^/v[0-9]/(.*)$ /$1 break;",
            "rewrite ^/a.b/(.*)$ /$1 break;",
            "rewrite ^/api/(.*)$ /../$1 break;",
            "rewrite ^/api/(.*)$ /?q=/$1 break;",
        ] {
            assert_eq!(rewrite(text), None, "{text}");
        }
    }

    #[test]
    fn requests_that_are_redirected_reach_no_server() {
        let close = |rewrite: &str, path: &str| {
            let mut route = TomlRoute { path: path.to_owned(), ..TomlRoute::default() };
            let routes = redirected(&[directive(rewrite)], &mut route);
            let paths: Vec<String> = routes.into_iter().map(|route| route.path).collect();
            (paths.join(" "), route.target == TomlTarget::missing())
        };
        let all = |paths: &str, is_closed: bool| (paths.to_owned(), is_closed);
        assert_eq!(close("rewrite ^/old$ /new permanent;", "/*"), all("/old", false));
        assert_eq!(close("rewrite ^/(a|b)$ https://x.test/;", "/*"), all("/a /b", false));
        assert_eq!(close("rewrite ^/old$ /new redirect;", "/old"), all("", true));
        assert_eq!(close("rewrite ^ /login redirect;", "/adm*"), all("", true));
        assert_eq!(close("rewrite ^/v[0-9]$ /new redirect;", "/*"), all("", true));
        assert_eq!(close("rewrite ^/old$ /new last;", "/*"), all("", false));
    }

    #[test]
    fn paths_without_the_prefix_stay_as_they_are() {
        let directive = directive("rewrite ^/api/(.*)$ /v2/$1 break;");
        let rewrite = prefix_rewrite(&directive).unwrap();
        let routes = |prefix: &str| {
            let route = TomlRoute { path: format!("{prefix}*"), ..TomlRoute::default() };
            let changed = |it: TomlRoute| {
                (it.path, it.strip_prefix.unwrap_or_default(), it.add_prefix.unwrap_or_default())
            };
            rewrite.routes(&directive, route, prefix).into_iter().map(changed).collect::<Vec<_>>()
        };
        let route = |path: &str, strip: &str, add: &str| (path.to_owned(), strip.to_owned(), add.to_owned());
        assert_eq!(routes("/api/x"), [route("/api/x*", "/api", "/v2")]);
        assert_eq!(routes("/api"), [route("/api/*", "/api", "/v2"), route("/api*", "", "")]);
        assert!(
            rewrite.fits("/", "/*") && !rewrite.fits("/app", "/app*") && !rewrite.fits("/api/", "/api/x")
        );
    }
}
