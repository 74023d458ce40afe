//! `listen` and `[[listeners]]`.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;

use super::forward_auth;
use super::item::Item;
use super::keys::LISTENER;
use super::limits::ReadLimits;
use super::reader::Reader;
use super::report::Problem;
use super::table::{Reported, Table, read_defaults};
use super::tls;
use crate::gate::{ClientIp, KeyPart};
use crate::proxy::ForwardAuth;
use crate::server::{ListenerSpec, Protocols, Service};
use crate::tls::ServerTls;

const FORM: &str =
    "write address and port: \"127.0.0.1:8080\", \"0.0.0.0:8080\" for every address, \"[::1]:8080\"";

/// The context of a listener: the directory that files are relative to, and `[client_ip]`.
type Context<'a> = (&'a Path, Option<&'a ClientIp>);

/// Reads the listeners. Files are relative to `directory`.
pub(super) fn listeners(
    top: &Table<'_>,
    directory: &Path,
    client_ip: Option<&ClientIp>,
) -> Option<Vec<ListenerSpec>> {
    let (short, long) = (top.given("listen"), top.given("listeners"));
    let (short_span, long_span) = (short.map(Item::span), top.key_span("listeners"));
    // If the file has both, both are read, so that all mistakes are reported at once.
    let short = short.map(address);
    let long = long.map(|item| several(item, (directory, client_ip)));
    match (short, long) {
        (Some(_), Some(_)) => {
            let problem = Problem::error(
                short_span.unwrap_or_default(),
                "`listen` and [[listeners]] can't be used together",
            )
            .related(long_span.unwrap_or_default(), "the listeners")
            .help("keep [[listeners]], and move this address there");
            top.reader.report(problem);
            None
        }
        (Some(address), None) => Some(vec![with_defaults(address?)]),
        (None, Some(specs)) => specs,
        (None, None) if top.reader.is_for_library() => Some(Vec::new()),
        (None, None) => {
            let problem = Problem::without_span("the file has neither `listen` nor [[listeners]]");
            top.reader.report(problem.help("add as the first line: listen = \"127.0.0.1:8080\"").derived());
            None
        }
    }
}

fn several(item: Item<'_>, context: Context<'_>) -> Option<Vec<ListenerSpec>> {
    let items = item.list("write [[listeners]] with two brackets")?;
    if items.is_empty() {
        return item.reject(item.error("there must be at least one listener"));
    }
    let mut specs: Vec<Option<ListenerSpec>> = Vec::new();
    for item in items {
        let spec = listener(item, context);
        if let Some(spec) = &spec
            && spec.address.port() != 0
            && specs.iter().flatten().any(|other| other.address == spec.address)
        {
            item.reject::<()>(item.error("another listener has this address already"));
        }
        specs.push(spec);
    }
    specs.into_iter().collect()
}

/// A listener at this address that has the default of every other key.
pub(super) fn with_defaults(address: SocketAddr) -> ListenerSpec {
    read_defaults(&LISTENER, |table| settings(table, Some(address), (Path::new(""), None)))
}

fn listener(item: Item<'_>, context: Context<'_>) -> Option<ListenerSpec> {
    let table = Table::of(item, "this listener", &LISTENER)?;
    let address = table.required("address").and_then(address);
    settings(table, address, context)
}

/// Reads all keys of a listener but its address.
fn settings(
    table: Table<'_>,
    address: Option<SocketAddr>,
    (directory, client_ip): Context<'_>,
) -> Option<ListenerSpec> {
    let service =
        table.choice("serve", &[("proxy", Service::Proxy), ("envoy-ratelimit", Service::EnvoyRatelimit)]);
    let protocols = protocols(&table);
    let offered = protocols.map(Protocols::by_alpn).unwrap_or_default();
    let tls = table.optional("tls", |item| tls::listener(item, directory, &offered));
    let proxy_protocol = proxy_protocol(table.item("proxy_protocol"), client_ip);
    let forward_auth = if service == Some(Service::EnvoyRatelimit) {
        reject_keys_of_routes(&table)
    } else {
        forward_auth::of_listener(&table, client_ip)
    };
    let max_connections = table.count("max_connections");
    let per_client = table.count("max_connections_per_client");
    let times = [
        table.duration("handshake_timeout"),
        table.duration("header_timeout"),
        table.duration("body_timeout"),
        table.duration("idle_timeout"),
        table.duration("tunnel_timeout"),
    ];
    let min_body_rate = table.small("min_body_rate");
    let max_header_bytes = table.size_in("max_header_bytes", table.item("max_header_bytes"));
    let max_headers = table.count("max_headers");
    table.close();
    let [handshake_timeout, header_timeout, body_timeout, idle_timeout, tunnel_timeout] = times;
    Some(ListenerSpec {
        address: address?,
        service: service?,
        protocols: protocols?,
        tls: tls.ok()?,
        proxy_protocol: proxy_protocol?,
        forward_auth: forward_auth.ok()?,
        max_connections: max_connections?,
        max_connections_per_client: NonZeroUsize::new(per_client?),
        handshake_timeout: handshake_timeout?,
        header_timeout: header_timeout?,
        body_timeout: body_timeout?,
        min_body_rate: NonZeroU32::new(min_body_rate?),
        idle_timeout: idle_timeout?,
        tunnel_timeout: tunnel_timeout?,
        max_header_bytes: max_header_bytes?,
        max_headers: max_headers?,
    })
}

/// Rejects keys that are about the routes, which a listener of the rate-limit service does not serve.
fn reject_keys_of_routes(table: &Table<'_>) -> Result<Option<ForwardAuth>, Reported> {
    let given = ["respond", "deny_status", "tunnel_timeout"]
        .into_iter()
        .filter_map(|key| Some((key, table.given(key)?)));
    let mut is_wrong = false;
    for (key, item) in given {
        let title = format!("`{key}` is about the routes, which this listener does not serve");
        item.reject::<()>(item.error(title).help("leave it out, or write serve = \"proxy\""));
        is_wrong = true;
    }
    if is_wrong { Err(Reported) } else { Ok(None) }
}

/// Reads which versions of HTTP a listener accepts.
fn protocols(table: &Table<'_>) -> Option<Protocols> {
    let item = table.item("protocols");
    let meanings = [("h1", false), ("h2", true)];
    let chosen =
        item.list_of("put it in brackets: [\"h1\"]", |item| table.choice_in("protocols", item, &meanings))?;
    if chosen.is_empty() {
        return item.reject(item.error("there must be at least one protocol").help("leave it out for both"));
    }
    Some(Protocols { h1: chosen.contains(&false), h2: chosen.contains(&true) })
}

fn proxy_protocol(item: Item<'_>, client_ip: Option<&ClientIp>) -> Option<bool> {
    let is_on = item.boolean()?;
    if is_on && client_ip.is_some_and(|client_ip| client_ip.trusted_proxies.is_empty()) {
        let problem = item.error(
            "no client could connect here: PROXY headers are accepted only from trusted proxies, and `trusted_proxies` is empty",
        );
        let help = "name the networks of the load balancers that send it: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";
        return item.reject(problem.help(help).derived());
    }
    Some(is_on)
}

/// Rejects limits that count by client certificates where no listener requests one.
pub(super) fn check_parts(listeners: Option<&[ListenerSpec]>, limits: &ReadLimits, reader: &Reader<'_>) {
    let requests =
        |spec: &ListenerSpec| spec.tls.as_ref().is_some_and(ServerTls::requires_client_certificate);
    if listeners.is_none_or(|listeners| listeners.iter().any(requests)) {
        return;
    }
    for (part, span) in limits.with_part(|part| *part == KeyPart::TlsSubject) {
        let title = format!("this limit counts by `{part}`, and no listener requests client certificates");
        let help = "name the authority that signs the certificates of clients: add `client_ca` to the `tls` of a listener";
        reader.report(Problem::error(span, title).help(help).derived());
    }
}

/// Reads an address with its port.
pub(super) fn address(item: Item<'_>) -> Option<SocketAddr> {
    let text = item.string_like("an address with a port", FORM)?;
    text.parsed("an address with a port", FORM, |text| text.parse().ok())
}
