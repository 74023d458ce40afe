//! `rewrite.location`: headers of a response that name the server's own address get the client's view of it.
//!
//! A Location that names a server of the upstream becomes a path of this host, so that neither the scheme nor the host of the client
//! has to be guessed. The path loses what the proxy has put before it, and gets the prefix that the proxy has removed.

use std::borrow::Cow;

use http::Uri;
use http::header::{CONTENT_LOCATION, LOCATION};

use super::route_action::Rewrite;
use crate::gate::{host_of, strip_prefix};
use crate::http1::names::SET_COOKIE;
use crate::http1::{Fields, ResponseHead};
use crate::upstream::{HostRule, ResponseBody, ServerAddress, ServerSpec};

/// With `rewrite.location`, gives the headers of a response the client's view of the addresses of these servers, one of which has
/// sent it.
pub(super) fn apply(
    rewrite: &Rewrite,
    servers: &[ServerSpec],
    response: &mut (ResponseHead, Box<ResponseBody>),
) {
    if rewrite.location {
        let (head, body) = response;
        LocationView { rewrite, servers, server: body.server_spec() }.apply(&mut head.fields);
    }
}

/// The addresses of a server, and how its paths differ from those of clients.
struct LocationView<'r> {
    rewrite: &'r Rewrite,
    /// All servers of the upstream.
    servers: &'r [ServerSpec],
    /// The one that has responded.
    server: &'r ServerSpec,
}

impl LocationView<'_> {
    /// Changes Location, Content-Location, and the Domain and Path of cookies.
    fn apply(&self, fields: &mut Fields) {
        for name in [&LOCATION, &CONTENT_LOCATION] {
            if let Some(value) = fields.get_str(name).and_then(|value| self.location(value)) {
                fields.set(name, value.as_bytes());
            }
        }
        if fields.contains(SET_COOKIE) {
            let cookies: Vec<Vec<u8>> = fields.get_all(SET_COOKIE).map(|value| self.cookie(value)).collect();
            fields.remove(SET_COOKIE);
            for cookie in &cookies {
                fields.push(SET_COOKIE, cookie);
            }
        }
    }

    /// The client's view of a URL reference; none if it does not name the server's own address.
    fn location(&self, reference: &str) -> Option<String> {
        // Browsers remove some control characters, so that two slashes could come to stand side by side.
        if reference.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        if reference.starts_with('/') && !reference.starts_with("//") {
            let (path, rest) = reference.split_at(reference.find(['?', '#']).unwrap_or(reference.len()));
            return Some(self.client_path(path, self.server)? + rest);
        }
        let (scheme, rest) = reference.split_once("//")?;
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "https:" => 443,
            "" if self.server.is_tls => 443,
            "http:" | "" => 80,
            _ => return None,
        };
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let named = address(authority, default_port)?;
        let mut named_servers = self.servers.iter().filter(|server| self.is_named(server));
        let server = named_servers.find(|server| {
            let default_port = if server.is_tls { 443 } else { 80 };
            address(&server.authority(), default_port).is_some_and(|own| own == named)
        });
        let is_sent_host = matches!(&self.rewrite.host, HostRule::Named(host)
            if host.to_str().ok().and_then(|host| address(host, named.1)).is_some_and(|own| own.0 == named.0));
        let server = server.or(is_sent_host.then_some(self.server))?;
        let (path, rest) = target.split_at(target.find(['?', '#']).unwrap_or(target.len()));
        // Two slashes, or what a browser reads as such, would begin another host.
        let path = format!("/{}", path.trim_start_matches(['/', '\\']));
        Some(self.client_path(&path, server).unwrap_or(path) + rest)
    }

    /// Whether the server's authority is an address of its own: `localhost` is that of a Unix socket only if the proxy has sent it as
    /// the host.
    fn is_named(&self, server: &ServerSpec) -> bool {
        !matches!(server.address, ServerAddress::Unix(_)) || matches!(self.rewrite.host, HostRule::Upstream)
    }

    /// The path by which a client reaches this path of a server; none if it does not begin with what the proxy puts before paths.
    fn client_path(&self, path: &str, server: &ServerSpec) -> Option<String> {
        let mut own = path;
        for added in [&*server.base_path, self.rewrite.add_prefix.as_deref().unwrap_or_default()] {
            let rest = strip_prefix(own, added)?;
            own = Some(rest).filter(|rest| added.is_empty() || rest.is_empty() || rest.starts_with('/'))?;
        }
        let removed = self.rewrite.strip_prefix.as_deref().unwrap_or_default();
        let own = own.trim_start_matches(['/', '\\']);
        Some(format!("{removed}/{own}"))
    }

    /// A cookie without a Domain that is the server's own host, and with the client's view of its Path.
    fn cookie<'c>(&self, cookie: &'c [u8]) -> Vec<u8> {
        let is_own = |domain: &str| {
            let domain = domain.trim_start_matches('.');
            let named = self.servers.iter().filter(|server| self.is_named(server)).map(ServerSpec::authority);
            let sent = match &self.rewrite.host {
                HostRule::Named(host) => host.to_str().ok().map(str::to_owned),
                HostRule::Client | HostRule::Upstream => None,
            };
            let mut hosts = named.chain(sent).filter_map(|authority| Some(address(&authority, 0)?.0));
            hosts.any(|host| host.eq_ignore_ascii_case(domain))
        };
        // A browser accepts a cookie with this prefix only with the path `/` (RFC 6265bis §4.1.3.2).
        let has_fixed_path = cookie.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"__Host-"));
        let attributes = cookie.split(|byte| *byte == b';').enumerate().filter_map(|(number, part)| {
            let (name, value) = attribute(part).filter(|_| number > 0).unwrap_or_default();
            if name.eq_ignore_ascii_case("domain") && is_own(value) {
                return None;
            }
            let is_path = name.eq_ignore_ascii_case("path") && !value.is_empty() && !has_fixed_path;
            let path = Some(value).filter(|_| is_path);
            let path = path.and_then(|path| self.client_path(path, self.server));
            Some(path.map_or(Cow::Borrowed(part), |path| Cow::Owned(format!(" Path={path}").into_bytes())))
        });
        attributes.collect::<Vec<Cow<'c, [u8]>>>().join(&b';')
    }
}

/// The name and the value of an attribute of a cookie.
fn attribute(part: &[u8]) -> Option<(&str, &str)> {
    let (name, value) = std::str::from_utf8(part).ok()?.split_once('=')?;
    Some((name.trim(), value.trim()))
}

/// The host and the port of an authority.
fn address(authority: &str, default_port: u16) -> Option<(String, u16)> {
    let host = host_of(authority)?.into_owned();
    let uri: Uri = authority.parse().ok()?;
    Some((host, uri.port_u16().unwrap_or(default_port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::defaults::server;

    fn rewrite(strip: &str, add: &str, host: HostRule) -> Rewrite {
        let some = |text: &str| (!text.is_empty()).then(|| Box::from(text));
        Rewrite { strip_prefix: some(strip), add_prefix: some(add), host, ..Rewrite::default() }
    }

    fn view<'r>(rewrite: &'r Rewrite, servers: &'r [ServerSpec]) -> LocationView<'r> {
        LocationView { rewrite, servers, server: &servers[0] }
    }

    #[test]
    fn locations_of_servers_become_paths_of_the_client() {
        let servers = [server("http://10.0.0.1:9000/base"), server("https://b.internal")];
        let rewrite = rewrite("/v1", "", HostRule::Named("app.internal".parse().unwrap()));
        let view = view(&rewrite, &servers);
        for (from, to) in [
            ("http://10.0.0.1:9000/base/login?next=/a#x", Some("/v1/login?next=/a#x")),
            ("http://10.0.0.1:9000/base", Some("/v1/")),
            ("//10.0.0.1:9000/base/a", Some("/v1/a")),
            ("http://10.0.0.1:9000/other", Some("/other")),
            ("http://10.0.0.1:9000", Some("/")),
            ("HTTPS://B.internal:443/a", Some("/v1/a")),
            ("https://app.internal/base/a", Some("/v1/a")),
            ("/base/a", Some("/v1/a")),
            ("/a", None),
            ("/basement", None),
            ("a", None),
            ("http://10.0.0.1/base/a", None),
            ("https://accounts.example.com/a", None),
            ("ftp://10.0.0.1:9000/a", None),
            // No reference to another host comes from a path.
            ("http://10.0.0.1:9000//evil.test/a", Some("/evil.test/a")),
            ("http://10.0.0.1:9000/\\evil.test", Some("/evil.test")),
            ("http://10.0.0.1:9000\\evil.test", Some("/evil.test")),
            ("http://10.0.0.1:9000/base//evil.test", Some("/v1/evil.test")),
            ("/base//evil.test", Some("/v1/evil.test")),
            ("http://10.0.0.1:9000@evil.test/", None),
            ("http://10.0.0.1:9000/\t/evil.test", None),
            ("/base/\t/evil.test", None),
        ] {
            assert_eq!(view.location(from).as_deref(), to, "{from}");
        }
    }

    #[test]
    fn cookies_of_servers_become_those_of_the_client() {
        let servers = [server("http://app.internal:9000/base")];
        let rewrite = rewrite("/v1", "", HostRule::Client);
        let view = view(&rewrite, &servers);
        for (from, to) in [
            ("a=b; Domain=app.internal; Path=/base/x; Secure", "a=b; Path=/v1/x; Secure"),
            ("a=b; domain=.APP.internal; HttpOnly", "a=b; HttpOnly"),
            ("a=b; Domain=internal; Path=/x", "a=b; Domain=internal; Path=/x"),
            ("domain=app.internal; Path=/base", "domain=app.internal; Path=/v1/"),
            ("a=b", "a=b"),
            ("a=b; Path=", "a=b; Path="),
            ("__Host-a=b; Path=/; Secure", "__Host-a=b; Path=/; Secure"),
        ] {
            assert_eq!(String::from_utf8(view.cookie(from.as_bytes())).unwrap(), to);
        }
    }

    #[test]
    fn localhost_is_the_address_of_a_socket_only_if_it_was_sent() {
        let servers = [server("unix:/run/app.sock")];
        for (host, to) in [(HostRule::Client, None), (HostRule::Upstream, Some("/cb?code=1"))] {
            let rewrite = rewrite("", "", host);
            assert_eq!(view(&rewrite, &servers).location("http://localhost/cb?code=1").as_deref(), to);
        }
    }

    #[test]
    fn added_prefixes_are_removed() {
        let servers = [server("http://10.0.0.1:9000")];
        let rewrite = rewrite("", "/api", HostRule::Client);
        let view = view(&rewrite, &servers);
        assert_eq!(view.location("/api/a").as_deref(), Some("/a"));
        assert_eq!(view.location("/apia"), None);
        assert_eq!(view.location("http://10.0.0.1:9000/api//evil.test").as_deref(), Some("/evil.test"));
    }
}
