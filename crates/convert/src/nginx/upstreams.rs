//! `proxy_pass` and `upstream` blocks.

use std::collections::{BTreeMap, HashMap};

use super::template::{TemplatePart, is_constant, only_variable, part};
use super::tree::Directive;
use crate::model::{TomlUpstream, UniqueNames};
use crate::note::Note;

/// The highest weight of a server.
const MOST_WEIGHT: u64 = 1_000;

/// The upstreams that were made so far.
pub(super) struct Upstreams<'d> {
    groups: BTreeMap<&'d str, &'d Directive>,
    names: UniqueNames,
    /// The names of those made, by group or authority, scheme, base path and `connect_timeout`.
    made: HashMap<(String, String, String, Option<String>), String>,
    pub all: Vec<TomlUpstream>,
}

/// Where a location sends its requests.
#[derive(Debug)]
pub(super) struct Passed {
    /// The name of an upstream, or a URL.
    pub upstream: String,
    /// The Host header that nginx sends unless it is set; `upstream` is the host of the server.
    pub host: Option<String>,
    /// A note on a Host header of nginx that is not converted.
    pub lost_host: Option<Note>,
    /// The prefix that is removed from paths.
    pub strip_prefix: Option<String>,
    /// The beginning of paths in place of the prefix of the location, where one of both is not in whole segments.
    pub start: Option<String>,
}

/// The parts of the URL of a `proxy_pass`.
struct Url<'u> {
    scheme: &'u str,
    authority: &'u str,
    /// The path, if there is one.
    path: Option<&'u str>,
}

impl<'d> Upstreams<'d> {
    /// No upstreams yet; the groups are among these directives.
    pub fn new(directives: &'d [Directive]) -> Self {
        let groups = directives.iter().filter(|directive| directive.name == "upstream");
        Self {
            groups: groups.map(|group| (group.arg(0), group)).collect(),
            names: UniqueNames::default(),
            made: HashMap::new(),
            all: Vec::new(),
        }
    }

    /// Notes on the groups with limits of connections to which no location forwards.
    pub fn unused(&self) -> Vec<Note> {
        let is_made = |name: &str| self.made.keys().any(|(authority, ..)| authority == name);
        let is_limited =
            |group: &Directive| group.directives().iter().any(|it| max_connections(it).is_some());
        let unused = self.groups.iter().filter(|(name, group)| !is_made(name) && is_limited(group));
        let reason = "no location that was converted forwards to these servers";
        unused.map(|(_, group)| group.finding(reason).of_block()).collect()
    }

    /// The target of a `proxy_pass` in a location with this prefix and this `connect_timeout`. Without a prefix its path is ignored,
    /// as for a path that a `rewrite` has made.
    pub fn passed(
        &mut self,
        pass: &Directive,
        prefix: Option<&str>,
        connect: Option<&String>,
    ) -> Result<Passed, Note> {
        let fail = |reason: &str| pass.finding(reason);
        if !is_constant(pass.arg(0)) {
            return Err(fail("the server depends on variables"));
        }
        let url = url(pass.arg(0)).ok_or_else(|| {
            fail("tidegate forwards to URLs with `http://` or `https://`, and to Unix sockets without TLS")
        })?;
        let (mut strip_prefix, mut base, mut start) = (None, String::new(), None);
        if let Some((prefix, path)) = prefix.zip(url.path) {
            if let Some((removed, added)) = rewritten(prefix, path) {
                (strip_prefix, base) = (removed, added);
            } else if is_start(path) && prefix.starts_with('/') {
                start = Some(path.to_owned());
            } else {
                return Err(fail("a rewrite of tidegate can't put this before paths"));
            }
        }
        let upstream = self.upstream(&url, base, connect)?;
        let (mut host, mut lost_host) = (Some("upstream".to_owned()), None);
        if self.groups.contains_key(url.authority) {
            host = is_host(url.authority).then(|| url.authority.to_owned());
            let reason = format!(
                "`rewrite.host` can't be `{}`, which nginx sends as the Host header: servers get that of the client",
                url.authority
            );
            lost_host = host.is_none().then(|| pass.finding(reason));
        }
        Ok(Passed { upstream, host, lost_host, strip_prefix, start })
    }

    /// The upstream and the path of a `proxy_pass` to an authorization server, if they are constant.
    pub fn asked(&mut self, pass: &Directive) -> Option<(String, Option<String>)> {
        let url = url(pass.arg(0)).filter(|_| is_constant(pass.arg(0)))?;
        let upstream = self.upstream(&url, String::new(), None).ok()?;
        Some((upstream, url.path.map(str::to_owned)))
    }

    /// The name of the upstream, or the URL, of a server or group with this base path and this `connect_timeout`.
    fn upstream(&mut self, url: &Url<'_>, base: String, connect: Option<&String>) -> Result<String, Note> {
        let group = self.groups.get(url.authority).copied();
        if group.is_none() && connect.is_none() {
            return Ok(server_url(url.scheme, url.authority, &base));
        }
        let key = (url.authority.to_owned(), url.scheme.to_owned(), base, connect.cloned());
        if let Some(upstream) = self.made.get(&key) {
            return Ok(upstream.clone());
        }
        let name = self.names.unique(url.authority);
        let mut made = match group {
            Some(group) => upstream(&name, group, url.scheme, &key.2)?,
            None => TomlUpstream {
                name: name.clone(),
                servers: vec![(server_url(url.scheme, url.authority, &key.2), 1)],
                ..TomlUpstream::default()
            },
        };
        made.timeouts.extend(connect.map(|connect| ("connect_timeout", connect.clone())));
        self.all.push(made);
        self.made.insert(key, name.clone());
        Ok(name)
    }
}

/// Whether `rewrite.host` can be this text.
fn is_host(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.bytes().all(is_known) && !text.starts_with('.') && !text.contains("..")
}

/// The parts of an `http` or `https` URL. Of a Unix socket, `http://unix:/run/app.sock:/path`, the authority is
/// `unix:/run/app.sock`.
fn url(text: &str) -> Option<Url<'_>> {
    let (scheme, rest) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    if let Some(socket) = rest.strip_prefix("unix:") {
        let end = socket.find(':').map(|colon| "unix:".len() + colon);
        let (authority, path) = end.map_or((rest, None), |end| (&rest[..end], Some(&rest[end + 1..])));
        let is_valid = scheme == "http" && socket.starts_with('/');
        return is_valid.then_some(Url { scheme, authority, path: path.filter(|path| !path.is_empty()) });
    }
    let (authority, path) = match rest.find('/') {
        Some(start) => (&rest[..start], Some(&rest[start..])),
        None => (rest, None),
    };
    (!authority.is_empty()).then_some(Url { scheme, authority, path })
}

/// A server as tidegate writes it.
fn server_url(scheme: &str, address: &str, base: &str) -> String {
    match (address.starts_with("unix:"), base) {
        (true, "") => address.to_owned(),
        (true, base) => format!("{address}:{base}"),
        (false, base) => format!("{scheme}://{address}{base}"),
    }
}

/// The prefix to remove, and the path to put before the rest, where nginx replaces the prefix of a location by a path.
fn rewritten(prefix: &str, path: &str) -> Option<(Option<String>, String)> {
    if prefix == path {
        return Some((None, String::new()));
    }
    let (Some(from), Some(to)) = (prefix.strip_suffix('/'), path.strip_suffix('/')) else { return None };
    let strip_prefix = (!from.is_empty()).then(|| from.to_owned());
    Some((strip_prefix, to.to_owned()))
}

/// Whether the paths of a rewrite can begin with this text.
fn is_start(path: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let is_normal = !path.contains("//") && !path.split('/').any(|segment| matches!(segment, "." | ".."));
    path.bytes().all(is_known) && is_normal
}

/// The upstream of a group.
fn upstream(name: &str, group: &Directive, scheme: &str, base: &str) -> Result<TomlUpstream, Note> {
    let mut upstream = TomlUpstream { name: name.to_owned(), ..TomlUpstream::default() };
    upstream.notes.push(group.origin());
    if scheme == "https" {
        let text = "nginx verifies the certificates of servers only with `proxy_ssl_verify on`; tidegate always does";
        upstream.notes.push(Note::text(text));
    }
    let (mut ejections, mut connections) = (Vec::new(), Vec::new());
    for directive in group.directives() {
        match &*directive.name {
            "server" => {
                let is_added = server(directive, scheme, base, &mut upstream, &mut ejections);
                connections.extend(is_added.then(|| (directive, max_connections(directive))));
            }
            "least_conn" => upstream.balance = Some("least_requests".to_owned()),
            "ip_hash" => upstream.balance = Some("hash:client_ip".to_owned()),
            "random" => upstream.balance = Some("power_of_two".to_owned()),
            "hash" => match hash_balance(directive.arg(0)) {
                Some(balance) => upstream.balance = Some(balance),
                None => upstream.notes.push(directive.finding("`balance` has no counterpart of this key")),
            },
            // Connections are kept in any case, and processes need no shared memory.
            "keepalive" | "keepalive_requests" | "keepalive_timeout" | "keepalive_time" | "zone" => {}
            _ => upstream.notes.push(directive.finding("tidegate has no counterpart")),
        }
    }
    if upstream.servers.is_empty() {
        return Err(group.finding("none of its servers can be converted").of_block());
    }
    upstream.limit_connections(&connections, |it| it.origin(), |it, reason| it.finding(reason));
    if upstream.max_connections.is_some() && group.directives().iter().all(|it| it.name != "zone") {
        let text = "Without a `zone` nginx has this limit of connections for each of its worker processes, and tidegate for all.";
        upstream.notes.push(Note::text(text));
    }
    ejections.dedup();
    if let [Some((after @ 1..=1_000, seconds @ 1..=86_400))] = ejections[..] {
        upstream.eject = Some((after, seconds));
    }
    Ok(upstream)
}

/// The `balance` of a key that is one variable.
pub(crate) fn hash_balance(key: &str) -> Option<String> {
    match part(&only_variable(key)?) {
        Ok(TemplatePart::Key(part)) => Some(format!("hash:{part}")),
        _ => None,
    }
}

/// The most connections of a server, of its `max_conns`; none for no limit.
pub(super) fn max_connections(server: &Directive) -> Option<u64> {
    server.option("max_conns")?.parse().ok().filter(|most| *most > 0)
}

/// Adds a server; returns whether it can be converted.
fn server(
    directive: &Directive,
    scheme: &str,
    base: &str,
    upstream: &mut TomlUpstream,
    ejections: &mut Vec<Option<(u64, u64)>>,
) -> bool {
    let address = directive.arg(0);
    if address.starts_with("unix:") && scheme == "https" {
        upstream.notes.push(directive.finding("tidegate forwards to Unix sockets without TLS"));
        return false;
    }
    for (word, reason) in [("backup", "tidegate has no backup servers"), ("down", "the server is down")] {
        if directive.has(word) {
            upstream.notes.push(directive.finding(format!("{reason}: it is left out")));
            return false;
        }
    }
    let weight = directive.option("weight").map_or(Some(1), |text| text.parse().ok()).unwrap_or(1);
    upstream.servers.push((server_url(scheme, address, base), weight.clamp(1, MOST_WEIGHT)));
    let after = directive.option("max_fails").and_then(|text| text.parse().ok());
    let seconds =
        directive.option("fail_timeout").map_or(Some(10), |text| text.trim_end_matches('s').parse().ok());
    ejections.push(after.zip(seconds));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::tree::Tree;

    #[test]
    fn urls_of_unix_sockets_are_split() {
        let parts = |text| url(text).map(|url| (url.authority.to_owned(), url.path.map(str::to_owned)));
        let socket = |path: Option<&str>| Some(("unix:/run/a.sock".to_owned(), path.map(str::to_owned)));
        assert_eq!(parts("http://unix:/run/a.sock"), socket(None));
        assert_eq!(parts("http://unix:/run/a.sock:"), socket(None));
        assert_eq!(parts("http://unix:/run/a.sock:/v1/"), socket(Some("/v1/")));
        assert_eq!(parts("https://unix:/run/a.sock"), None);
        assert_eq!(server_url("http", "unix:/run/a.sock", "/v1"), "unix:/run/a.sock:/v1");
    }

    #[test]
    fn names_of_groups_are_hosts() {
        for (name, expected) in [("my_app", true), ("a.test", true), ("a..b", false), ("a+b", false)] {
            let text = format!("upstream {name} {{ server 10.0.0.1:80; }} proxy_pass http://{name};");
            let tree = Tree::new(std::path::Path::new("")).parse("f", &text).unwrap();
            let passed = Upstreams::new(&tree).passed(&tree[1], None, None).unwrap();
            assert_eq!((passed.host.is_some(), passed.lost_host.is_none()), (expected, expected), "{name}");
        }
    }

    #[test]
    fn prefixes_are_replaced_in_whole_segments() {
        let some = |strip: &str, base: &str| Some((Some(strip.to_owned()), base.to_owned()));
        assert_eq!(rewritten("/api/", "/"), some("/api", ""));
        assert_eq!(rewritten("/api/", "/v2/"), some("/api", "/v2"));
        assert_eq!(rewritten("/", "/v2/"), Some((None, "/v2".to_owned())));
        assert_eq!(rewritten("/", "/"), Some((None, String::new())));
        assert_eq!(rewritten("/api", "/"), None);
        assert_eq!(rewritten("/api/", "/v2"), None);
        assert!(["/", "/v2", "/v1.2/"].iter().all(|path| is_start(path)));
        assert!(["/a?b", "/..", "/a//b", "/a*", "/{a}"].iter().all(|path| !is_start(path)));
    }
}
