//! Corrects values that a configuration of tidegate can't have, such as those of templates that are not filled in yet.

use super::model::{Converted, TomlRoute, TomlTarget};
use super::note::{FileLine, Note};

/// Headers that tidegate writes itself, or that only one connection has.
const OWN_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Replaces or removes invalid values, with a remark on each.
pub(super) fn correct(converted: &mut Converted) {
    for upstream in &mut converted.upstreams {
        let place = place(&upstream.notes);
        for (url, _) in &mut upstream.servers {
            correct_url(url, place.as_ref(), &mut upstream.notes);
        }
    }
    let mut last = None;
    for route in &mut converted.routes {
        // The notes of several routes from one place are at the first one.
        last = place(&route.notes).or(last);
        correct_route(route, last.as_ref());
    }
    if converted.client_ip.trusted_proxies.is_empty() {
        for listener in converted.listeners.iter_mut().filter(|listener| listener.proxy_protocol) {
            listener.proxy_protocol = false;
            let reason = "PROXY headers are accepted from trusted proxies only: name them in `trusted_proxies` of `[client_ip]`, and add \
                          proxy_protocol = true";
            let place = place(&listener.notes);
            listener.notes.extend(remark(place.as_ref(), "PROXY protocol", reason));
        }
    }
}

/// The place of the first line that something is made from.
fn place(notes: &[Note]) -> Option<FileLine> {
    notes.iter().find_map(|note| match note {
        Note::Origin(place, _) => Some(place.clone()),
        _ => None,
    })
}

fn remark(place: Option<&FileLine>, text: &str, reason: impl Into<String>) -> Option<Note> {
    place.map(|place| Note::finding(place, text, reason))
}

/// Whether a URL is the path of a Unix socket, perhaps with a base path.
fn is_socket(url: &str) -> bool {
    /// Of `unix(7)`, without the zero byte at the end.
    const MAX_PATH: usize = 107;
    let Some(path) = url.strip_prefix("unix:").filter(|path| path.starts_with('/')) else { return false };
    let socket = path.split_once(":/").map_or(path, |(socket, _)| socket);
    let is_valid = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}<>\"`^|\\?#%".contains(&byte));
    is_valid && socket.len() <= MAX_PATH && !socket.ends_with('/')
}

fn correct_url(url: &mut String, place: Option<&FileLine>, notes: &mut Vec<Note>) {
    if is_socket(url) {
        return;
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_path = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}<>\"`^|\\?#".contains(&byte));
    if is_authority(authority) && is_path && matches!(scheme, "http" | "https") {
        return;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, format!(":{port}")),
        _ => (authority, String::new()),
    };
    let scheme = if scheme == "https" { "https" } else { "http" };
    let placeholder = format!("{scheme}://{}{port}", placeholder(host));
    notes.extend(remark(
        place,
        url,
        format!("this is no URL of a server: write one instead of {placeholder}"),
    ));
    *url = placeholder;
}

/// Whether this is a host, or an address, with a port or without.
fn is_authority(text: &str) -> bool {
    if text.parse::<std::net::SocketAddr>().is_ok() {
        return true;
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "80"));
    let is_ipv6 = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    is_ipv6.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
        || is_host(host) && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() < 64 && label.bytes().all(is_known)
    };
    text.len() < 254 && text.trim_end_matches('.').split('.').all(is_label)
}

/// A host that no client and no server has, similar to this text.
fn placeholder(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name: String = words.collect::<Vec<_>>().join("-").to_ascii_lowercase().chars().take(60).collect();
    format!("{}.invalid", if name.is_empty() { "host" } else { name.trim_matches('-') })
}

fn correct_route(route: &mut TomlRoute, place: Option<&FileLine>) {
    let mut notes = Vec::new();
    if let Some(host) = route.host.as_mut().filter(|host| !is_host(host.trim_start_matches("*."))) {
        let placeholder = placeholder(host);
        notes.extend(remark(place, host, format!("this is no host: write one instead of {placeholder}")));
        *host = placeholder;
    }
    if let TomlTarget::Upstream(url) = &mut route.target
        && url.contains("://")
    {
        correct_url(url, place, &mut notes);
    }
    correct_set(&mut route.set_headers, place, &mut notes);
    correct_set(&mut route.set_response_headers, place, &mut notes);
    correct_removed(&mut route.remove_headers, place, &mut notes);
    correct_removed(&mut route.remove_response_headers, place, &mut notes);
    if let Some(host) = route.rewrite_host.take_if(|host| *host != "upstream" && !is_authority(host)) {
        notes.extend(remark(place, &host, "this is no host: servers get that of the client"));
    }
    route.notes.extend(notes);
}

/// Removes headers that can't be set, and all but the last value of a header.
fn correct_set(headers: &mut Vec<(String, String)>, place: Option<&FileLine>, notes: &mut Vec<Note>) {
    let mut kept: Vec<(String, String)> = Vec::new();
    for (name, value) in headers.drain(..) {
        let is_value = value.trim() == value && !value.chars().any(char::is_control);
        let text = format!("{name} {value}");
        if !is_header(&name) {
            notes.extend(remark(place, &text, "tidegate sets no header of this name"));
        } else if !is_value {
            notes.extend(remark(place, &text, "this is no value of a header"));
        } else if let Some(known) = kept.iter_mut().find(|(known, _)| *known == name) {
            let reason = format!("a header of a route has one value, which replaces `{}`", known.1);
            notes.extend(remark(place, &text, reason));
            known.1 = value;
        } else {
            kept.push((name, value));
        }
    }
    *headers = kept;
}

fn correct_removed(names: &mut Vec<String>, place: Option<&FileLine>, notes: &mut Vec<Note>) {
    for name in names.extract_if(.., |name| !is_header(name)) {
        // tidegate removes those of a connection itself.
        if !OWN_HEADERS.contains(&&*name) {
            notes.extend(remark(place, &name, "this is no name of a header"));
        }
    }
}

/// Whether a header of this name can be changed.
fn is_header(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token) && name != "host" && !OWN_HEADERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_hosts_or_addresses() {
        for text in ["a", "a.test:80", "127.0.0.1", "127.0.0.1:1", "[::1]:80", "[::1]", "svc_a.ns"] {
            assert!(is_authority(text), "{text}");
        }
        for text in ["", "{{ .Host }}:80", "a:0", "a:x", "a:+1", "a b", "::1", "a..b", "${HOST}"] {
            assert!(!is_authority(text), "{text}");
        }
        assert_eq!(placeholder("{{ env \"Host\" }}"), "env-host.invalid");
        assert_eq!(placeholder("{{}}"), "host.invalid");
    }
}
