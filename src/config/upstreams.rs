//! `[upstreams.NAME]`, and the URLs that stand in for one.

mod resilience;
mod usual_tls;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;

use self::usual_tls::{ALPN_HTTP_1, ALPN_HTTP_2, UsualTls};
use super::reader::{Item, Text};
use super::report::Problem;
use super::suggest::nearest;
use super::table::{Name, Table};
use super::tls::{self, given};
use crate::gate::{KeyPart, KeySpec, host_of, normalize};
use crate::id_vec::IdVec;
use crate::upstream::{ServerSpec, UpstreamId, UpstreamSpec};

const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);
const WEIGHT: RangeInclusive<u64> = 1..=1_000;

const RETRIES: RangeInclusive<u64> = 0..=5;
const CONNECTIONS: RangeInclusive<u64> = 1..=1_000_000;
const PENDING: RangeInclusive<u64> = 0..=1_000_000;
const SHARE: RangeInclusive<f64> = 0.0..=1.0;
const SLOW_START: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

const FORM: &str = "write it as \"http://127.0.0.1:9000\"";

/// All upstreams: those with a name first, then one for each URL that a route gives.
#[derive(Default)]
pub(super) struct ReadUpstreams {
    upstreams: IdVec<UpstreamId, ReadUpstream>,
    by_name: HashMap<String, UpstreamId>,
    usual_tls: UsualTls,
}

struct ReadUpstream {
    /// Where its name stands, or the URL that is one.
    place: Range<usize>,
    spec: Option<UpstreamSpec>,
    /// The key by which its servers are chosen, if they are.
    key: Option<ReadKey>,
    is_used: bool,
}

/// A key that chooses servers.
pub(super) struct ReadKey {
    pub spec: KeySpec,
    /// Where it stands.
    pub span: Range<usize>,
}

impl ReadUpstreams {
    fn add(&mut self, name: &str, upstream: ReadUpstream) -> UpstreamId {
        let id = self.upstreams.push(upstream);
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The key by which an upstream's servers are chosen, if they are.
    pub fn key(&self, id: UpstreamId) -> Option<&ReadKey> {
        self.upstreams.get(id)?.key.as_ref()
    }

    /// The parts of such keys for which `is_meant` holds, with their places.
    pub fn going_by(
        &self,
        is_meant: impl Fn(&KeyPart) -> bool,
    ) -> impl Iterator<Item = (&KeyPart, Range<usize>)> {
        let keys = self.upstreams.iter().filter_map(|upstream| upstream.key.as_ref());
        keys.filter_map(move |key| {
            Some((key.spec.parts.iter().find(|part| is_meant(part))?, key.span.clone()))
        })
    }

    /// The upstream that a route names, or whose URL it gives.
    pub fn resolve(&mut self, item: Item<'_>) -> Option<UpstreamId> {
        let text = item.string_like("a URL or the name of an upstream", FORM)?;
        let known = self.by_name.get(&text.value).copied();
        let id = match known {
            Some(id) => id,
            None if text.value.contains("://") => {
                let spec = server_url(&text).and_then(|server| {
                    let tls =
                        self.usual_tls.for_servers(item, std::slice::from_ref(&server), ALPN_HTTP_1).ok()?;
                    Some(UpstreamSpec { tls, ..UpstreamSpec::new(&text.value, vec![server]) })
                });
                self.add(&text.value, ReadUpstream { place: item.span(), spec, key: None, is_used: true })
            }
            None => return self.unknown(&text),
        };
        let upstream = self.upstreams.get_mut(id)?;
        upstream.is_used = true;
        Some(id)
    }

    fn unknown<T>(&self, text: &Text<'_>) -> Option<T> {
        let problem = text.unknown("upstream");
        let is_address = text.value.contains(':') || text.value.contains('.') || text.value == "localhost";
        text.refuse(match nearest(&text.value, self.by_name.keys().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if text.from_env => problem.help(FORM),
            None if is_address => {
                problem.help(format!("a URL starts with http://: \"http://{}\"", text.value))
            }
            None => problem.help(format!("define it: [upstreams.{}]", text.value)),
        })
    }

    /// Where the names of upstreams stand that no route uses.
    pub fn unused(&self) -> impl Iterator<Item = Range<usize>> {
        self.upstreams.iter().filter(|upstream| !upstream.is_used).map(|upstream| upstream.place.clone())
    }

    /// The servers of each upstream that has no mistake, with its place.
    pub fn servers(&self) -> impl Iterator<Item = (&[ServerSpec], Range<usize>)> {
        self.upstreams.iter().filter_map(|one| Some((&*one.spec.as_ref()?.servers, one.place.clone())))
    }

    /// All upstreams, if none of them has a mistake.
    pub fn into_all(self) -> Option<IdVec<UpstreamId, UpstreamSpec>> {
        self.upstreams.into_iter().map(|upstream| upstream.spec).collect()
    }
}

/// Reads all upstreams that have a name. Files are looked for from `directory`.
pub(super) fn upstreams(item: Option<Item<'_>>, directory: &Path) -> ReadUpstreams {
    let mut read = ReadUpstreams::default();
    let Some(table) = item.and_then(|item| item.table("[upstreams]")) else { return read };
    for (name, item) in table.entries() {
        let upstream = upstream(&name, item, directory, &read.usual_tls);
        read.add(name.text, upstream);
    }
    read
}

fn upstream(name: &Name<'_>, item: Item<'_>, directory: &Path, usual_tls: &UsualTls) -> ReadUpstream {
    let mut key = None;
    let spec = spec(name, item, directory, usual_tls, &mut key);
    ReadUpstream { place: name.span.clone(), spec, key, is_used: false }
}

/// Reads one upstream, and the key by which its servers are chosen.
fn spec(
    name: &Name<'_>,
    item: Item<'_>,
    directory: &Path,
    usual_tls: &UsualTls,
    key: &mut Option<ReadKey>,
) -> Option<UpstreamSpec> {
    let name_is_right = check_name(name, item);
    let mut table = item.table(format!("upstream `{}`", name.text))?;
    let servers = table.required("servers", "servers = [\"http://10.0.1.5:9000\"]").and_then(servers);
    let default = UpstreamSpec::new(name.text, Vec::new());
    let mut timeout = |key, default| table.item(key).map_or(Some(default), |item| item.duration(&TIMEOUT));
    let connect_timeout = timeout("connect_timeout", default.connect_timeout);
    let pending_timeout = timeout("pending_timeout", default.pending_timeout);
    let response_timeout = timeout("response_timeout", default.response_timeout);
    let stall_timeout = timeout("stall_timeout", default.stall_timeout);
    let total_timeout = table.item("total_timeout").map_or(Some(None), |item| item.duration_or_off(&TIMEOUT));
    let balance_item = table.item("balance");
    let balance = balance_item.map_or(Some((default.balance, None)), resilience::balance);
    let retries = table.item("retries").map_or(Some(1), |item| item.integer(&RETRIES));
    let mut share = |key, default| table.item(key).map_or(Some(default), |item| item.decimal(&SHARE));
    let retry_budget = share("retry_budget", default.retry_budget);
    let panic_threshold = share("panic_threshold", default.panic_threshold);
    let mut count = |key, range, default| table.item(key).map_or(Some(default), |item| item.count(range));
    let max_connections = count("max_connections", &CONNECTIONS, default.max_connections);
    let per_client = count("max_requests_per_client", &PENDING, 0);
    let max_pending = count("max_pending", &PENDING, default.max_pending);
    let health = table.item("health").map_or(Some(None), |item| resilience::health(item).map(Some));
    let eject = table.item("eject").map_or(Some(default.eject), resilience::eject);
    let slow_start =
        table.item("slow_start").map_or(Some(default.slow_start), |item| item.duration(&SLOW_START));
    let is_http2 =
        table.item("protocol").map_or(Some(false), |item| item.choice(&[("h1", false), ("h2", true)], &[]));
    let alpn = if is_http2 == Some(true) { ALPN_HTTP_2 } else { ALPN_HTTP_1 };
    let place = table.item("tls");
    let tls = given(place, |item| tls::client(item, directory, &[alpn]));
    warn_of_one(&table, servers.as_deref());
    table.close();
    let (balance, hashed) = balance?;
    *key = hashed.zip(balance_item).map(|(spec, item)| ReadKey { spec, span: item.span() });
    let (servers, tls) = (servers?, tls.ok()?);
    if let Some(item) = place.filter(|_| !servers.iter().any(|server| server.is_tls)) {
        let problem = item.error("`tls` is given, and no server is reached over TLS");
        return item.refuse(problem.help("begin the URL of a server with https://"));
    }
    let tls = if tls.is_some() { tls } else { usual_tls.for_servers(item, &servers, alpn).ok()? };
    name_is_right.then_some(UpstreamSpec {
        name: default.name,
        servers,
        tls,
        is_http2: is_http2?,
        connect_timeout: connect_timeout?,
        pending_timeout: pending_timeout?,
        response_timeout: response_timeout?,
        stall_timeout: stall_timeout?,
        total_timeout: total_timeout?,
        balance,
        retries: u32::try_from(retries?).ok()?,
        retry_budget: retry_budget?,
        max_connections: max_connections?,
        max_pending: max_pending?,
        max_requests_per_client: NonZeroUsize::new(per_client?),
        health: health?,
        eject: eject?,
        panic_threshold: panic_threshold?,
        slow_start: slow_start?,
    })
}

/// Where there is one server with one address, nothing is left to choose.
fn warn_of_one(table: &Table<'_>, servers: Option<&[ServerSpec]>) {
    let Some([server]) = servers else { return };
    if server.literal().is_none() {
        return;
    }
    for key in ["balance", "health", "eject", "panic_threshold", "slow_start"] {
        if let Some(span) = table.key_span(key) {
            let title =
                format!("`{key}` changes nothing here: all requests go to the one server that there is");
            table.reader.note(Problem::warning(span, title).help("add another one to `servers`"));
        }
    }
}

fn check_name(name: &Name<'_>, item: Item<'_>) -> bool {
    let right = !name.text.is_empty() && !name.text.contains("://") && !name.text.contains(char::is_control);
    if !right {
        let title = format!("`{}` can't be the name of an upstream", name.text);
        let problem = Problem::error(name.span.clone(), title);
        item.refuse::<()>(
            problem.help("a URL goes into its `servers`, or straight into a route's `upstream`"),
        );
    }
    right
}

fn servers(item: Item<'_>) -> Option<Vec<ServerSpec>> {
    let items = item.list("put the URLs in brackets: [\"http://10.0.1.5:9000\"]")?;
    if items.is_empty() {
        let problem = item.error("an upstream needs at least one server");
        return item.refuse(problem.help("add one: [\"http://10.0.1.5:9000\"]"));
    }
    let servers: Vec<Option<ServerSpec>> = items.into_iter().map(server).collect();
    servers.into_iter().collect()
}

fn server(item: Item<'_>) -> Option<ServerSpec> {
    if !item.is_table() {
        let text = item.string_like("a URL, or a table with `url` and `weight`", FORM)?;
        return server_url(&text);
    }
    let mut table = item.table("this server")?;
    let server = table
        .required("url", "url = \"http://10.0.1.5:9000\"")
        .and_then(|item| item.string_like("a URL", FORM))
        .and_then(|text| server_url(&text));
    let weight = table.item("weight").map_or(Some(1), |item| item.integer(&WEIGHT));
    table.close();
    Some(ServerSpec { weight: u32::try_from(weight?).ok()?, ..server? })
}

/// Reads `http://host[:port][/base]`, or the same with `https`.
fn server_url(text: &Text<'_>) -> Option<ServerSpec> {
    match parse_url(&text.value) {
        Ok(server) => Some(server),
        Err((why, help)) => {
            let problem = text.error(why);
            text.refuse(if help.is_empty() { problem } else { problem.help(help) })
        }
    }
}

/// Messages say nothing of the URL itself: it may come from the environment.
fn parse_url(url: &str) -> Result<ServerSpec, (&'static str, &'static str)> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_tls = match scheme.as_deref() {
        Some("http") => false,
        Some("https") => true,
        Some(_) => return Err(("the URL of a server starts with http:// or https://", FORM)),
        None => return Err(("this is no URL: it has no scheme", FORM)),
    };
    if url.contains('#') {
        return Err(("the URL of a server has no fragment", "leave out what starts with `#`"));
    }
    let uri: Uri = url.parse().map_err(|_| ("this is no URL", FORM))?;
    let authority = uri.authority().ok_or(("this URL has no host", FORM))?;
    if authority.as_str().contains('@') {
        return Err((
            "the URL of a server has no user information",
            "send credentials in a header: request_headers = { set = { authorization = \"${UPSTREAM_AUTH}\" } }",
        ));
    }
    if uri.query().is_some() {
        return Err(("the URL of a server has no query", "leave out what starts with `?`"));
    }
    let port = match authority.port() {
        Some(port) if port.as_u16() == 0 => return Err(("nobody listens on port 0", FORM)),
        Some(port) => port.as_u16(),
        None if authority.as_str().len() > authority.host().len() + 1 => {
            return Err(("this URL has no valid port", FORM));
        }
        None if is_tls => 443,
        None => 80,
    };
    let host = host_of(authority.as_str()).ok_or(("the URL has no valid host", FORM))?;
    let path = normalize(uri.path()).map_err(|_| ("the path of this URL is not valid", FORM))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if is_tls && ServerName::try_from(host).is_err() {
        return Err(("no certificate can be made out to this host", FORM));
    }
    Ok(ServerSpec {
        is_tls,
        host: host.into(),
        port,
        base_path: path.sent.trim_end_matches('/').into(),
        weight: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, u16, String) {
        let server = parse_url(url).unwrap();
        (server.host.into(), server.port, server.base_path.into())
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
    fn what_is_no_server_is_refused() {
        for (url, why) in [
            ("ftp://a", "the URL of a server starts with http:// or https://"),
            ("https://-a", "no certificate can be made out to this host"),
            ("127.0.0.1:9000", "this is no URL: it has no scheme"),
            ("http://", "this is no URL"),
            ("http://u:p@a", "the URL of a server has no user information"),
            ("http://a/?x=1", "the URL of a server has no query"),
            ("http://a/#x", "the URL of a server has no fragment"),
            ("http://a:0", "nobody listens on port 0"),
            ("http://a:99999", "this URL has no valid port"),
            ("http://a b", "this is no URL"),
            ("http://a/%00", "the path of this URL is not valid"),
        ] {
            assert_eq!(parse_url(url).unwrap_err().0, why, "{url}");
        }
    }
}
