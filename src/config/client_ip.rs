//! `[client_ip]`.

use std::net::IpAddr;

use http::header::HeaderName;
use ipnet::IpNet;

use super::headers;
use super::item::{Item, TextItem};
use super::keys::keys;
use super::report::Problem;
use super::table::Table;
use crate::gate::ClientIp;
use crate::upstream::HeaderNames;

const NETWORKS: &str = "put the networks in brackets: [\"10.0.0.0/8\"]";
const NAMES: &str = "put the names in brackets: [\"x-real-ip\", \"x-forwarded-*\"]";

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

keys! {
    /// The keys of `[client_ip]`.
    ClientIpKeys {
        /// Networks or addresses of the proxies whose headers are trusted
        trusted_proxies: List<Text> = [] => |item| item.list_of(NETWORKS, network);
        /// The header that holds the address of the client; `"forwarded"` is parsed by its own grammar (RFC 7239)
        header: Text = "x-forwarded-for" => |item| header_name(item, "such as \"x-forwarded-for\"");
        /// Headers that are removed from requests, unless a trusted proxy sends them; `*` at the end of a name
        /// makes it a prefix
        remove_headers: List<Text>, or "see [below](#headers-that-clients-may-not-send)", by hand;
        /// Bits of an IPv4 address that identify a client
        ipv4_prefix: Integer<0, 32, u8> = 32;
        /// Bits of an IPv6 address that identify a client
        ipv6_prefix: Integer<0, 128, u8> = 64;
    }
    reads ClientIp(table) after {
        let given = table.remove_headers().with(|item| item.list_of(NAMES, removed));
    } with {
        remove_headers: match given.ok()? {
            Some(names) => HeaderNames::new(names.iter().map(String::as_str)),
            None => HeaderNames::new(REMOVED),
        },
    }
}

/// Reads `[client_ip]`.
pub(super) fn client_ip(table: Table<'_, ClientIpKeys>) -> Option<ClientIp> {
    let read = ClientIpKeys::read(&table);
    table.close();
    read
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
    let network = network_of(item)?;
    if network.prefix_len() == 0 {
        let title =
            "every address is a trusted proxy: any client can forge its address and evade every limit";
        let problem = Problem::warning(item.span(), title);
        item.reader.report(problem.help("name only the networks of your proxies"));
    }
    Some(network)
}

/// A network, or one address.
pub(super) fn network_of(item: Item<'_>) -> Option<IpNet> {
    let form = "such as \"10.0.0.0/8\", \"fd00::/8\" or \"10.0.0.7\"";
    let text = item.string_like("a network", form)?;
    let network = text.parsed("a network", form, parse_network)?;
    warn_of_host_bits(&text, network);
    Some(network)
}

/// Warns of an address with the length of a network that it is not the first address of.
pub(super) fn warn_of_host_bits(text: &TextItem<'_>, network: IpNet) {
    let (whole, address) = (network.trunc(), network.addr());
    if whole.addr() != address {
        let title = format!("this is the whole network {whole}");
        let help = format!("write \"{whole}\", or \"{address}\" for the address alone");
        text.item.reader.report(Problem::warning(text.item.span(), title).help(help));
    }
}

/// Parses a network, or one address.
pub(super) fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}
