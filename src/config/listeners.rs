//! `listen` and `[[listeners]]`.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::limits::ReadLimits;
use super::reader::{Item, Reader};
use super::report::Problem;
use super::table::Table;
use super::tls::{self, given};
use crate::gate::{ClientIp, KeyPart};
use crate::server::{ListenerSpec, Protocols};
use crate::tls::ServerTls;

const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);
const CONNECTIONS: RangeInclusive<u64> = 1..=10_000_000;
/// 0 is no cap.
const CONNECTIONS_PER_CLIENT: RangeInclusive<u64> = 0..=10_000_000;
/// In bytes per second; 0 is no minimum.
const BODY_RATE: RangeInclusive<u64> = 0..=1_000_000_000;
const HEADER_BYTES: RangeInclusive<u64> = 1_024..=1_048_576;
const HEADERS: RangeInclusive<u64> = 1..=10_000;

const FORM: &str =
    "write address and port: \"127.0.0.1:8080\", \"0.0.0.0:8080\" for every address, \"[::1]:8080\"";

/// What `listener` needs beside its table: where files are looked for, and who may speak for clients.
type Around<'a> = (&'a Path, Option<&'a ClientIp>);

/// Reads where clients connect. Files are looked for from `directory`.
pub(super) fn listeners(
    top: &mut Table<'_>,
    directory: &Path,
    client_ip: Option<&ClientIp>,
) -> Option<Vec<ListenerSpec>> {
    let (short, long) = (top.item("listen"), top.item("listeners"));
    let (short_place, long_place) = (short.map(Item::span), top.key_span("listeners"));
    // Both are read where both are there, so that all mistakes show at once.
    let short = short.map(address);
    let long = long.map(|item| several(item, (directory, client_ip)));
    match (short, long) {
        (Some(_), Some(_)) => {
            let problem = Problem::error(
                short_place.unwrap_or_default(),
                "`listen` and [[listeners]] can't stand together",
            )
            .related(long_place.unwrap_or_default(), "the other")
            .help("keep [[listeners]], and move this address there");
            top.reader.note(problem);
            None
        }
        (Some(address), None) => Some(vec![ListenerSpec::new(address?)]),
        (None, Some(specs)) => specs,
        (None, None) => {
            let problem = Problem::somewhere("the file does not say where clients connect");
            top.reader.note(problem.help("add as the first line: listen = \"127.0.0.1:8080\"").derived());
            None
        }
    }
}

fn several(item: Item<'_>, around: Around<'_>) -> Option<Vec<ListenerSpec>> {
    let items = item.list("write [[listeners]] with two brackets")?;
    if items.is_empty() {
        return item.refuse(item.error("there must be at least one listener"));
    }
    let mut specs: Vec<Option<ListenerSpec>> = Vec::new();
    for item in items {
        let spec = listener(item, around);
        if let Some(spec) = &spec
            && spec.address.port() != 0
            && specs.iter().flatten().any(|other| other.address == spec.address)
        {
            item.refuse::<()>(item.error("another listener has this address already"));
        }
        specs.push(spec);
    }
    specs.into_iter().collect()
}

fn listener(item: Item<'_>, (directory, client_ip): Around<'_>) -> Option<ListenerSpec> {
    let mut table = item.table("this listener")?;
    let address = table.required("address", "address = \"0.0.0.0:8080\"").and_then(address);
    // The bounds are read whether the address is right or not, so that all mistakes show at once.
    let bounds = ListenerSpec::new(address.unwrap_or_else(|| SocketAddr::from(([0; 4], 0))));
    let mut timeout = |key, default| table.item(key).map_or(Some(default), |item| item.duration(&TIMEOUT));
    let handshake_timeout = timeout("handshake_timeout", bounds.handshake_timeout);
    let header_timeout = timeout("header_timeout", bounds.header_timeout);
    let body_timeout = timeout("body_timeout", bounds.body_timeout);
    let idle_timeout = timeout("idle_timeout", bounds.idle_timeout);
    let tunnel_timeout = timeout("tunnel_timeout", bounds.tunnel_timeout);
    let mut count = |key, range, default| table.item(key).map_or(Some(default), |item| item.count(range));
    let max_connections = count("max_connections", &CONNECTIONS, bounds.max_connections);
    let per_client = count("max_connections_per_client", &CONNECTIONS_PER_CLIENT, 0);
    let default_rate = bounds.min_body_rate.map_or(0, NonZeroU32::get);
    let max_headers = count("max_headers", &HEADERS, bounds.max_headers);
    let min_body_rate = table
        .item("min_body_rate")
        .map_or(Some(default_rate), |item| u32::try_from(item.integer(&BODY_RATE)?).ok());
    let max_header_bytes =
        table.item("max_header_bytes").map_or(Some(bounds.max_header_bytes), |item| item.size(&HEADER_BYTES));
    let protocols = table.item("protocols").map_or(Some(bounds.protocols), protocols);
    let offered = protocols.unwrap_or(bounds.protocols).by_alpn();
    let tls = given(table.item("tls"), |item| tls::server(item, directory, &offered));
    let proxy_protocol =
        table.item("proxy_protocol").map_or(Some(false), |item| proxy_protocol(item, client_ip));
    table.close();
    Some(ListenerSpec {
        address: address?,
        protocols: protocols?,
        tls: tls.ok()?,
        proxy_protocol: proxy_protocol?,
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

/// Reads which versions of HTTP are spoken.
fn protocols(item: Item<'_>) -> Option<Protocols> {
    let items = item.list("put it in brackets: [\"h1\"]")?;
    if items.is_empty() {
        return item.refuse(item.error("there must be at least one protocol").help("leave it out for both"));
    }
    let chosen: Vec<Option<bool>> =
        items.into_iter().map(|item| item.choice(&[("h1", false), ("h2", true)], &[])).collect();
    let chosen: Vec<bool> = chosen.into_iter().collect::<Option<_>>()?;
    Some(Protocols { h1: chosen.contains(&false), h2: chosen.contains(&true) })
}

fn proxy_protocol(item: Item<'_>, client_ip: Option<&ClientIp>) -> Option<bool> {
    let is_on = item.boolean()?;
    if is_on && client_ip.is_some_and(|client_ip| client_ip.trusted_proxies.is_empty()) {
        let problem = item.error(
            "nobody could connect here: the PROXY protocol is for trusted proxies, and there are none",
        );
        let help = "name the networks of the balancers that speak it: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";
        return item.refuse(problem.help(help).derived());
    }
    Some(is_on)
}

/// Refuses limits that count by certificates where no listener asks for one.
pub(super) fn check_parts(listeners: Option<&[ListenerSpec]>, limits: &ReadLimits, reader: &Reader<'_>) {
    let asks = |spec: &ListenerSpec| spec.tls.as_ref().is_some_and(ServerTls::requires_client_certificate);
    if listeners.is_none_or(|listeners| listeners.iter().any(asks)) {
        return;
    }
    for (part, span) in limits.going_by(|part| *part == KeyPart::TlsSubject) {
        let title = format!("this limit goes by `{part}`, and no listener asks for a certificate");
        let help = "say who signs the certificates of clients: add `client_ca` to the `tls` of a listener";
        reader.note(Problem::error(span, title).help(help).derived());
    }
}

/// Reads an address with its port.
pub(super) fn address(item: Item<'_>) -> Option<SocketAddr> {
    let text = item.string_like("an address with a port", FORM)?;
    text.parsed("an address with a port", FORM, |text| text.parse().ok())
}
