//! `[upstreams.NAME]`, and the URLs of routes, each of which is an upstream of its own.

mod overload;
mod resilience;
mod spec;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;

use http::Uri;
use rustls::pki_types::ServerName;

pub(super) use self::resilience::{ReadKey, path};

use self::spec::{ALPN_HTTP_1, DefaultTls, ReadKeys, upstream};
pub(super) use self::spec::{UpstreamKeys, with_defaults};
use super::item::{Item, TextItem};
use super::keys::keys;
use super::suggest::nearest;
use super::table::{Table, entries, read_defaults};
use crate::gate::{KeyPart, host_of, normalize};
use crate::id_vec::IdVec;
use crate::upstream::{ForwardPolicy, ServerAddress, ServerSpec, UpstreamId, UpstreamSpec};

/// All upstreams: those with a name first, then one for each URL that a route gives.
#[derive(Default)]
pub(super) struct ReadUpstreams {
    upstreams: IdVec<UpstreamId, ReadUpstream>,
    by_name: HashMap<String, UpstreamId>,
    default_tls: DefaultTls,
}

struct ReadUpstream {
    /// The span of its name, or of the URL in a route.
    span: Range<usize>,
    spec: Option<UpstreamSpec>,
    keys: ReadKeys,
    is_used: bool,
}

impl ReadUpstreams {
    fn add(&mut self, name: &str, upstream: ReadUpstream) -> UpstreamId {
        let id = self.upstreams.push(upstream);
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The key of `hash:PART`, if that chooses the servers of an upstream.
    pub fn key(&self, id: UpstreamId) -> Option<&ReadKey> {
        self.upstreams.get(id)?.keys.hash.as_ref()
    }

    /// The key by which waiting requests of an upstream take turns, if it has `overload`.
    pub fn fair_by(&self, id: UpstreamId) -> Option<&ReadKey> {
        self.upstreams.get(id)?.keys.fair_by.as_ref()
    }

    /// The valid upstreams in whose tables a number bounds requests or connections, with the span of that.
    pub fn bounded(&self) -> impl Iterator<Item = (&UpstreamSpec, &Range<usize>)> {
        self.upstreams.iter().filter_map(|upstream| upstream.spec.as_ref().zip(upstream.keys.limit.as_ref()))
    }

    /// Whether an upstream is valid, and has no `overload`.
    pub fn is_without_overload(&self, id: UpstreamId) -> bool {
        let spec = self.upstreams.get(id).and_then(|upstream| upstream.spec.as_ref());
        spec.is_some_and(|spec| spec.overload.is_none())
    }

    /// Whether all upstreams are so.
    pub fn are_without_overload(&self) -> bool {
        self.upstreams
            .iter()
            .all(|upstream| upstream.spec.as_ref().is_some_and(|spec| spec.overload.is_none()))
    }

    /// The timeouts and retries of an upstream, if it is valid.
    pub fn forward_policy(&self, id: Option<UpstreamId>) -> Option<ForwardPolicy> {
        self.upstreams.get(id?)?.spec.as_ref().map(UpstreamSpec::forward_policy)
    }

    /// The matching parts of the keys of upstreams, each with what it is for, and its span.
    pub fn with_part(
        &self,
        is_match: impl Fn(&KeyPart) -> bool,
    ) -> impl Iterator<Item = (&KeyPart, &'static str, Range<usize>)> {
        let keys = self.upstreams.iter().flat_map(|upstream| {
            let ReadKeys { hash, fair_by, .. } = &upstream.keys;
            let hash = hash.as_ref().map(|key| (key, "chooses servers"));
            hash.into_iter().chain(fair_by.as_ref().map(|key| (key, "shares its capacity")))
        });
        keys.filter_map(move |(key, verb)| {
            Some((key.spec.parts.iter().find(|part| is_match(part))?, verb, key.span.clone()))
        })
    }

    /// The upstream that a route names, or whose URL it gives.
    pub fn resolve(&mut self, item: Item<'_>) -> Option<UpstreamId> {
        let text = item.string_like("a URL or the name of an upstream", FORM)?;
        let known = self.by_name.get(&text.value).copied();
        let id = match known {
            Some(id) => id,
            None if text.value.contains("://") || is_socket_path(&text.value) => {
                let spec = server_url(&text).and_then(|server| {
                    let tls = self
                        .default_tls
                        .for_servers(item, std::slice::from_ref(&server), ALPN_HTTP_1)
                        .ok()?;
                    Some(UpstreamSpec { tls, ..with_defaults(&text.value, vec![server]) })
                });
                self.add(
                    &text.value,
                    ReadUpstream { span: item.span(), spec, keys: ReadKeys::default(), is_used: true },
                )
            }
            None => return self.unknown(&text),
        };
        let upstream = self.upstreams.get_mut(id)?;
        upstream.is_used = true;
        Some(id)
    }

    fn unknown<T>(&self, text: &TextItem<'_>) -> Option<T> {
        let problem = text.unknown("upstream");
        let is_address = text.value.contains(':') || text.value.contains('.') || text.value == "localhost";
        text.reject(match nearest(&text.value, self.by_name.keys().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if text.from_env => problem.help(FORM),
            None if is_address => {
                problem.help(format!("a URL starts with http://: \"http://{}\"", text.value))
            }
            None => problem.help(format!("define it: [upstreams.{}]", text.value)),
        })
    }

    /// The spans of the upstreams that no route uses.
    pub fn unused(&self) -> impl Iterator<Item = Range<usize>> {
        self.upstreams.iter().filter(|upstream| !upstream.is_used).map(|upstream| upstream.span.clone())
    }

    /// The servers of each valid upstream, with its span.
    pub fn servers(&self) -> impl Iterator<Item = (&[ServerSpec], Range<usize>)> {
        self.upstreams.iter().filter_map(|one| Some((&*one.spec.as_ref()?.servers, one.span.clone())))
    }

    /// All upstreams, if all of them are valid.
    pub fn into_all(self) -> Option<IdVec<UpstreamId, UpstreamSpec>> {
        self.upstreams.into_iter().map(|upstream| upstream.spec).collect()
    }
}

/// Reads all upstreams that have a name. Files are relative to `directory`.
pub(super) fn upstreams(item: Option<Item<'_>>, directory: &Path) -> ReadUpstreams {
    let mut read = ReadUpstreams::default();
    for (name, item) in item.and_then(entries).unwrap_or_default() {
        let (spec, keys) = upstream(&name, item, directory, &read.default_tls);
        read.add(name.text, ReadUpstream { span: name.span.clone(), spec, keys, is_used: false });
    }
    read
}

keys! {
    /// The keys of a server that is a table.
    ServerKeys {
        /// The URL, where the server is a table
        url: Text, required "http://10.0.1.5:9000";
        /// The share of the requests in proportion to the weights of the other servers
        weight: Integer<1, 1_000, u32> = 1;
    }
}

const FORM: &str = "write it as \"http://127.0.0.1:9000\"";
const UNIX: (&str, &str) = (
    "the path of this Unix socket is not valid",
    "write it as \"unix:/run/app.sock\", or with a base path \"unix:/run/app.sock:/base\"",
);
const SRV: (&str, &str) = (
    "this is not the name of a service",
    "write it as \"srv://_api._tcp.example.com\": its SRV records have the ports",
);
const TLS_SERVICE: (&str, &str) = (
    "the servers of SRV records are reached over plain HTTP",
    "write srv://, or for TLS the name and the port that the records have: \"https://app.internal:9443\"",
);
const SCHEMES: &str = "the URL of a server starts with http://, https://, srv:// or unix:/";
const HTTP_2: (&str, &str) =
    (SCHEMES, "write [upstreams.NAME] with servers = [\"http://127.0.0.1:9000\"] and protocol = \"h2\"");

/// Whether a server is written as the path of a Unix socket, in the form of this program or another one.
fn is_socket_path(url: &str) -> bool {
    ["unix:", "/", "http://unix:", "https://unix:", "http+unix:"].iter().any(|start| url.starts_with(start))
}

/// The longest path of a Unix socket, which Linux ends with a zero byte (`unix(7)`).
const MAX_SOCKET_PATH: usize = 107;

/// Reads `unix:/path[:/base]`.
fn unix_server(url: &str) -> Result<ServerSpec, (&'static str, &'static str)> {
    let rest = url.strip_prefix("unix:").filter(|path| path.starts_with('/')).ok_or(UNIX)?;
    let (path, base) = rest.split_once(":/").map_or((rest, ""), |(path, _)| (path, &rest[path.len() + 1..]));
    if path.len() > MAX_SOCKET_PATH {
        return Err((
            "the path of a Unix socket has at most 107 bytes",
            "choose a shorter path, such as /run/app.sock",
        ));
    }
    if path.ends_with('/') || path.contains(['\0', '?', '#']) {
        return Err(UNIX);
    }
    Ok(ServerSpec {
        address: ServerAddress::Unix(Path::new(path).into()),
        ..server_at("", 80, if base.is_empty() { "/" } else { base })?
    })
}

/// Reads `srv://name[/base]`.
fn service(uri: &Uri) -> Result<ServerSpec, (&'static str, &'static str)> {
    let authority = uri.authority().ok_or(SRV)?;
    let name = host_of(authority.as_str()).ok_or(SRV)?;
    if authority.port().is_some() || name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok() {
        return Err(SRV);
    }
    Ok(ServerSpec { address: ServerAddress::Service((*name).into()), ..server_at("", 80, uri.path())? })
}

/// A server at this address, without TLS, of the default weight.
fn server_at(host: &str, port: u16, base: &str) -> Result<ServerSpec, (&'static str, &'static str)> {
    let path = normalize(base).map_err(|_| ("the path of this URL is not valid", FORM))?;
    Ok(ServerSpec {
        is_tls: false,
        address: ServerAddress::Tcp { host: host.into(), port },
        base_path: path.sent.trim_end_matches('/').into(),
        weight: read_defaults(|table: Table<'_, ServerKeys>| table.weight().read()),
    })
}

/// Reads the URL of a server.
fn server_url(text: &TextItem<'_>) -> Option<ServerSpec> {
    match parse_url(&text.value) {
        Ok(server) => Some(server),
        Err((why, help)) => {
            let problem = text.error(why);
            text.reject(if help.is_empty() { problem } else { problem.help(help) })
        }
    }
}

/// Reads `http://host[:port][/base]`, the same with `https`, `srv://name[/base]` or `unix:/path[:/base]`: a server of the default
/// weight. Messages do not quote the URL: it may come from the environment.
pub(super) fn parse_url(url: &str) -> Result<ServerSpec, (&'static str, &'static str)> {
    if is_socket_path(url) {
        return unix_server(url);
    }
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_tls = match scheme.as_deref() {
        Some("http" | "srv") => false,
        Some("https") => true,
        Some("dns+srv" | "dnssrv") => return Err(SRV),
        Some("srvs" | "srv+https" | "https+srv") => return Err(TLS_SERVICE),
        Some("h2c" | "h2" | "grpc") => return Err(HTTP_2),
        Some(_) => return Err((SCHEMES, FORM)),
        None => return Err(("this is not a URL: it has no scheme", FORM)),
    };
    if url.contains('#') {
        return Err(("the URL of a server has no fragment", "leave out `#` and the text after it"));
    }
    let uri: Uri = url.parse().map_err(|_| ("this is not a URL", FORM))?;
    let authority = uri.authority().ok_or(("this URL has no host", FORM))?;
    if authority.as_str().contains('@') {
        return Err((
            "the URL of a server has no user information",
            "send credentials in a header: request_headers = { set = { authorization = \"${UPSTREAM_AUTH}\" } }",
        ));
    }
    if uri.query().is_some() {
        return Err(("the URL of a server has no query", "leave out `?` and the text after it"));
    }
    if scheme.as_deref() == Some("srv") {
        return service(&uri);
    }
    let port = match authority.port() {
        Some(port) if port.as_u16() == 0 => return Err(("no server listens on port 0", FORM)),
        Some(port) => port.as_u16(),
        None if authority.as_str().len() > authority.host().len() + 1 => {
            return Err(("this URL has no valid port", FORM));
        }
        None if is_tls => 443,
        None => 80,
    };
    let host = host_of(authority.as_str()).ok_or(("the URL has no valid host", FORM))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if is_tls && ServerName::try_from(host).is_err() {
        return Err(("this host can't be the name in a certificate", FORM));
    }
    Ok(ServerSpec { is_tls, ..server_at(host, port, uri.path())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, u16, String) {
        let server = parse_url(url).unwrap();
        let ServerAddress::Tcp { host, port } = server.address else { panic!("{url}") };
        (host.into(), port, server.base_path.into())
    }

    #[test]
    fn urls_are_read() {
        assert_eq!(parts("http://10.0.1.5:9000"), ("10.0.1.5".into(), 9000, String::new()));
        assert_eq!(parts("http://Api.internal/base/"), ("api.internal".into(), 80, "/base".into()));
        assert_eq!(parts("http://[::1]:9000/a/../b"), ("::1".into(), 9000, "/b".into()));
        assert_eq!(parts("HTTP://a./"), ("a".into(), 80, String::new()));
        assert_eq!(parts("HTTPS://a/b"), ("a".into(), 443, "/b".into()));
        assert_eq!(parts("https://[::1]:80"), ("::1".into(), 80, String::new()));
    }

    #[test]
    fn sockets_and_services_are_read() {
        for url in
            ["unix:/run/a.sock", "unix:/run/a.sock:/base", "srv://_api._tcp.a.test", "srv://a.consul/v1"]
        {
            assert_eq!(parse_url(url).unwrap().url(), url);
        }
    }

    #[test]
    fn wrong_urls_are_refused() {
        for (url, why) in [
            ("ftp://a", SCHEMES),
            ("grpc://a", HTTP_2.0),
            ("srv://10.0.0.1", SRV.0),
            ("srv://a:80", SRV.0),
            ("srvs://a", TLS_SERVICE.0),
            ("unix:run/a.sock", UNIX.0),
            ("unix:/run/", UNIX.0),
            ("/run/a.sock", UNIX.0),
            ("http://unix:/run/a.sock", UNIX.0),
            ("unix:/run/a.sock:/%00", "the path of this URL is not valid"),
            ("https://-a", "this host can't be the name in a certificate"),
            ("127.0.0.1:9000", "this is not a URL: it has no scheme"),
            ("http://", "this is not a URL"),
            ("http://u:p@a", "the URL of a server has no user information"),
            ("http://a/?x=1", "the URL of a server has no query"),
            ("http://a/#x", "the URL of a server has no fragment"),
            ("http://a:0", "no server listens on port 0"),
            ("http://a:99999", "this URL has no valid port"),
            ("http://a b", "this is not a URL"),
            ("http://a/%00", "the path of this URL is not valid"),
        ] {
            assert_eq!(parse_url(url).unwrap_err().0, why, "{url}");
        }
    }
}
