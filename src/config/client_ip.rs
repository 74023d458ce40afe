//! `[client_ip]`.

use std::net::IpAddr;

use http::header::HeaderName;
use ipnet::IpNet;

use super::headers;
use super::item::Item;
use super::report::Problem;
use super::table::Table;
use crate::gate::ClientIp;
use crate::upstream::HeaderNames;

/// The default of `remove_headers`: headers by which a client could impersonate another client or a proxy to a server
/// that trusts them, or have it serve another request than the one that the limits have counted.
const REMOVED: [&str; 20] = [
    "x-forwarded-*",
    "x-forwarded",
    "forwarded-for",
    "x-original-*",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-proxyuser-ip",
    "x-envoy-external-address",
    "x-rewrite-url",
    "x-host",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "front-end-https",
    "x-scheme",
    "proxy",
];

/// Reads `[client_ip]`.
pub(super) fn client_ip(table: Table<'_>) -> Option<ClientIp> {
    let trusted = table.list("trusted_proxies", "put the networks in brackets: [\"10.0.0.0/8\"]", network);
    let header = header_name(table.item("header"), "such as \"x-forwarded-for\"");
    let help = "put the names in brackets: [\"x-real-ip\", \"x-forwarded-*\"]";
    let removed = table.optional("remove_headers", |item| item.list_of(help, removed));
    let removed = removed.map(|names| match names {
        Some(names) => HeaderNames::new(names.iter().map(String::as_str)),
        None => HeaderNames::new(REMOVED),
    });
    let prefix = |key| table.integer(key).and_then(|bits| u8::try_from(bits).ok());
    let (ipv4_prefix, ipv6_prefix) = (prefix("ipv4_prefix"), prefix("ipv6_prefix"));
    table.close();
    Some(ClientIp {
        trusted_proxies: trusted?,
        header: header?,
        remove_headers: removed.ok()?,
        ipv4_prefix: ipv4_prefix?,
        ipv6_prefix: ipv6_prefix?,
    })
}

/// The name of a header.
pub(super) fn header_name(item: Item<'_>, help: &str) -> Option<HeaderName> {
    item.string()?.parsed("a header name", help, |text| text.parse().ok())
}

/// A header name, or the start of one and a `*`.
fn removed(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "such as \"x-real-ip\", or \"x-forwarded-*\" for every name with this prefix";
    let entry = text.parsed("a header name", help, |text| {
        let name = text.strip_suffix('*').unwrap_or(text);
        // `HeaderName` accepts a `*` in a name.
        name.parse::<HeaderName>().ok().filter(|_| !name.contains('*')).map(|_| text.to_owned())
    })?;
    let needed =
        headers::OWN.into_iter().chain(["host"]).find(|name| HeaderNames::new([&*entry]).contains(name));
    let Some(needed) = needed else { return Some(entry) };
    let problem = text.error(format!("{} covers `{needed}`, which tidegate handles itself", text.quoted()));
    text.reject(problem.help("write more of the name before the `*`, or name each header"))
}

/// A network of trusted proxies, or one address.
fn network(item: Item<'_>) -> Option<IpNet> {
    let form = "such as \"10.0.0.0/8\", \"fd00::/8\" or \"10.0.0.7\"";
    let text = item.string_like("a network", form)?;
    let network = text.parsed("a network", form, parse_network)?;
    if network.prefix_len() == 0 {
        let title =
            "every address is a trusted proxy: any client can forge its address and evade every limit";
        let problem = Problem::warning(item.span(), title);
        item.reader.report(problem.help("name only the networks of your proxies"));
    }
    Some(network)
}

/// Parses a network, or one address.
pub(super) fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}
