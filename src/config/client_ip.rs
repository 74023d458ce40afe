//! `[client_ip]`.

use std::net::IpAddr;

use http::header::HeaderName;
use ipnet::IpNet;

use super::headers;
use super::reader::Item;
use super::report::Problem;
use crate::gate::ClientIp;
use crate::upstream::HeaderNames;

/// Reads how clients are told apart.
pub(super) fn client_ip(item: Option<Item<'_>>) -> Option<ClientIp> {
    let default = ClientIp::default();
    let Some(item) = item else { return Some(default) };
    let mut table = item.table("[client_ip]")?;
    let trusted = table.item("trusted_proxies").map_or(Some(Vec::new()), |item| {
        let items = item.list("put the networks in brackets: [\"10.0.0.0/8\"]")?;
        let networks: Vec<Option<IpNet>> = items.into_iter().map(network).collect();
        networks.into_iter().collect()
    });
    let header = table.item("header").map_or(Some(default.header), |item| {
        let text = item.string()?;
        text.parsed("a header name", "such as \"x-forwarded-for\"", |text| text.parse::<HeaderName>().ok())
    });
    let remove_headers = table.item("remove_headers").map_or(Some(default.remove_headers), |item| {
        let items = item.list("put the names in brackets: [\"x-real-ip\", \"x-forwarded-*\"]")?;
        let entries: Vec<Option<String>> = items.into_iter().map(removed).collect();
        let entries: Option<Vec<String>> = entries.into_iter().collect();
        Some(HeaderNames::new(entries?.iter().map(String::as_str)))
    });
    let mut prefix = |key, bits: u8, default| {
        let read =
            |item: Item<'_>| item.integer(&(0..=u64::from(bits))).and_then(|bits| u8::try_from(bits).ok());
        table.item(key).map_or(Some(default), read)
    };
    let ipv4_prefix = prefix("ipv4_prefix", 32, default.ipv4_prefix);
    let ipv6_prefix = prefix("ipv6_prefix", 128, default.ipv6_prefix);
    table.close();
    Some(ClientIp {
        trusted_proxies: trusted?,
        header: header?,
        remove_headers: remove_headers?,
        ipv4_prefix: ipv4_prefix?,
        ipv6_prefix: ipv6_prefix?,
    })
}

/// A header name, or the beginning of one and a `*`.
fn removed(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "such as \"x-real-ip\", or \"x-forwarded-*\" for all that begin with it";
    let entry = text.parsed("a header name", help, |text| {
        let name = text.strip_suffix('*').unwrap_or(text);
        // The library takes a `*` for a part of a name.
        name.parse::<HeaderName>().ok().filter(|_| !name.contains('*')).map(|_| text.to_owned())
    })?;
    let needed =
        headers::OWN.into_iter().chain(["host"]).find(|name| HeaderNames::new([&*entry]).contains(name));
    let Some(needed) = needed else { return Some(entry) };
    let problem = text.error(format!("{} covers `{needed}`, which tidegate handles itself", text.quoted()));
    text.refuse(problem.help("write more of the name before the `*`, or name each header"))
}

/// A network, or one address.
fn network(item: Item<'_>) -> Option<IpNet> {
    let form = "such as \"10.0.0.0/8\", \"fd00::/8\" or \"10.0.0.7\"";
    let text = item.string_like("a network", form)?;
    let network: IpNet = text.parsed("a network", form, |text| {
        text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    })?;
    if network.prefix_len() == 0 {
        let title =
            "every address is a trusted proxy: each client can say who it is, and so walk round every limit";
        let problem = Problem::warning(item.span(), title);
        item.reader.note(problem.help("name only the networks that your proxies are in"));
    }
    Some(network)
}
