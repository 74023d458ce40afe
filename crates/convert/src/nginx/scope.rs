//! Directives that blocks inherit from the blocks around them.

use std::collections::HashMap;

use super::tree::Directive;
use crate::note::Note;

/// Directives of which a block has the last one, or else that of the block around it.
const SINGLE: [&str; 11] = [
    "satisfy",
    "limit_req_status",
    "limit_conn_status",
    "limit_req_dry_run",
    "limit_conn_dry_run",
    "client_max_body_size",
    "proxy_connect_timeout",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "proxy_read_timeout",
    "proxy_send_timeout",
];
/// Directives of which a block has all of its own, or else those of the block around it.
const LISTS: [&str; 5] = ["limit_req", "limit_conn", "proxy_set_header", "add_header", "auth_request_set"];
/// Directives that restrict access.
pub(super) const GUARDS: [&str; 28] = [
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "allow",
    "auth_basic",
    "auth_digest",
    "auth_gss",
    "auth_jwt",
    "auth_jwt_require",
    "auth_ldap",
    "auth_oidc",
    "auth_pam",
    "auth_request",
    "deny",
    "if",
    "internal",
    "js_access",
    "limit_except",
    "modsecurity",
    "modsecurity_rules",
    "modsecurity_rules_file",
    "modsecurity_rules_remote",
    "oidc",
    "rewrite_by_lua",
    "rewrite_by_lua_block",
    "rewrite_by_lua_file",
    "secure_link",
    "ssl_verify_client",
];

/// The directives that apply in a block.
#[derive(Clone, Default)]
pub(super) struct Scope<'d> {
    single: HashMap<&'d str, &'d Directive>,
    lists: HashMap<&'d str, Vec<&'d Directive>>,
    /// Restrictions of access, which tidegate does not have.
    pub guards: Vec<&'d Directive>,
}

impl<'d> Scope<'d> {
    /// The directives that apply in a block within this one.
    #[must_use]
    pub fn within(&self, block: &'d [Directive]) -> Self {
        let mut scope = self.clone();
        for directive in block.iter().filter(|directive| SINGLE.contains(&&*directive.name)) {
            scope.single.insert(&directive.name, directive);
        }
        for name in LISTS {
            let own: Vec<&Directive> = block.iter().filter(|directive| directive.name == name).collect();
            if !own.is_empty() {
                scope.lists.insert(name, own);
            }
        }
        let own: Vec<&Directive> =
            block.iter().filter(|directive| GUARDS.contains(&&*directive.name)).collect();
        // `allow` and `deny` are one list, as are a firewall and its rules, and each `if` applies by itself.
        let list = |guard: &Directive| match &*guard.name {
            "deny" => "allow".to_owned(),
            name if name.starts_with("modsecurity") => "modsecurity".to_owned(),
            name => name.to_owned(),
        };
        scope.guards.retain(|known| known.name == "if" || own.iter().all(|guard| list(guard) != list(known)));
        scope.guards.extend(own.into_iter().filter(|guard| restricts(guard)));
        scope
    }

    /// The limits of requests and connections.
    pub fn limits(&self) -> impl Iterator<Item = &'d Directive> {
        ["limit_req", "limit_conn"].into_iter().flat_map(|name| self.all(name)).copied()
    }

    /// Whether it has this limit.
    pub fn has_limit(&self, limit: &Directive) -> bool {
        self.limits().any(|known| std::ptr::eq(known, limit))
    }

    /// Whether it has a restriction of access that another one lacks.
    pub fn restricts_more_than(&self, other: &Self) -> bool {
        let has = |guard: &Directive| other.guards.iter().any(|known| std::ptr::eq(*known, guard));
        self.guards.iter().any(|guard| !has(guard))
    }

    /// The directive of this name, of which the last one applies.
    pub fn last(&self, name: &str) -> Option<&'d Directive> {
        self.single.get(name).copied()
    }

    /// Whether the directive of this name is `on`.
    pub fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(|directive| directive.arg(0) == "on")
    }

    /// All directives of this name.
    pub fn all(&self, name: &str) -> &[&'d Directive] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Whether a directive that can restrict access does so.
pub(super) fn restricts(guard: &Directive) -> bool {
    match &*guard.name {
        "allow" => guard.arg(0) != "all",
        // Its requests get a response or a path that others do not get.
        "if" => {
            let decides = |inner: &Directive| matches!(&*inner.name, "deny" | "return" | "rewrite");
            guard.directives().iter().any(decides)
        }
        _ => guard.arg(0) != "off",
    }
}

/// Whether a directive is a response with a status that refuses a request.
pub(super) fn refuses(directive: &Directive) -> bool {
    directive.name == "return" && directive.arg(0).len() == 3 && directive.arg(0).starts_with(['4', '5'])
}

/// Whether a block, or one within it, restricts access.
pub(super) fn is_restricted(block: &[Directive]) -> bool {
    let is_guard = |directive: &Directive| GUARDS.contains(&&*directive.name) && restricts(directive);
    block.iter().any(|it| refuses(it) || is_guard(it) || is_restricted(it.directives()))
}

/// The size of the largest body, such as `"10MiB"`; none for no limit.
pub(super) fn max_body(scope: &Scope<'_>) -> Result<Option<String>, Note> {
    let Some(directive) = scope.last("client_max_body_size") else { return Ok(None) };
    size(directive.arg(0)).ok_or_else(|| directive.finding("this is no size"))
}

/// A size of nginx, such as `10m`, for tidegate; `Some(None)` is no limit.
#[expect(clippy::option_option, reason = "no size, or no limit")]
pub(crate) fn size(text: &str) -> Option<Option<String>> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(['k', 'm', 'g']);
    let unit = match &text[digits.len()..] {
        "" => "B",
        "k" => "KiB",
        "m" => "MiB",
        "g" => "GiB",
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    Some((number > 0).then(|| format!("{number}{unit}")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::model::TomlTarget;
    use crate::{SourceFile, SourceFormat, convert};

    /// The targets of the routes of a location with these directives.
    fn targets(directives: &str) -> Vec<TomlTarget> {
        let text = format!("server {{ location / {{ {directives} proxy_pass http://b; }} }}");
        let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
        convert(SourceFormat::Nginx, &[file]).unwrap().routes.into_iter().map(|route| route.target).collect()
    }

    #[test]
    fn restrictions_without_a_counterpart_close_their_location() {
        for directives in [
            "if ($request_uri ~ x) { return 302 /login; }",
            "if ($cookie_s = \"\") { set $a 1; return 403; }",
            "js_access f.check;",
            "oidc on;",
            "modsecurity on;",
            "modsecurity on; modsecurity_rules_file /rules;",
            "rewrite_by_lua_block { ngx.exit(403) }",
        ] {
            assert_eq!(targets(directives), [TomlTarget::missing()], "{directives}");
        }
        let upstream = TomlTarget::Upstream("http://b".to_owned());
        assert_eq!(targets("modsecurity off; if ($a) { set $b 1; }"), std::slice::from_ref(&upstream));
        let login = TomlTarget::Redirect { status: 302, location: "/login".to_owned() };
        assert_eq!(targets("if ($cookie_s = \"\") { return 302 /login; }"), [login, upstream.clone()]);
        let denied = "if ($cookie_s = \"\") { rewrite ^ /denied last; }";
        assert_eq!(targets(denied), [TomlTarget::missing(), upstream.clone()]);
        let unavailable = TomlTarget::Respond { status: 503, body: String::new() };
        assert_eq!(targets("if ($http_x != s) { return 503; }"), [unavailable, upstream]);
    }
}
