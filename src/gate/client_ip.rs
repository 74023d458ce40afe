//! The client's address.
//!
//! For a peer that is no trusted proxy, it is the peer's address. Behind trusted proxies the forwarding header is read
//! from the right: the client is the first address that is no trusted proxy. A malformed entry ends the search at the
//! hop that reported it, so that nothing to its left is trusted.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

use super::host::is_port;
use crate::http1::names::X_FORWARDED_PROTO;
use crate::http1::{Fields, ascii};
use crate::upstream::HeaderNames;

/// How the address of a client is determined, and cut to a prefix.
#[derive(Clone, Debug)]
pub struct ClientIp {
    /// The peers whose forwarding header is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The forwarding header.
    pub header: HeaderName,
    /// Headers that are removed from requests unless a trusted proxy sends them.
    pub remove_headers: HeaderNames,
    /// The prefix length by which IPv4 clients are counted.
    pub ipv4_prefix: u8,
    /// The prefix length by which IPv6 clients are counted.
    pub ipv6_prefix: u8,
}

/// The identity of the peer of a connection: its address, its certificate, and where it is connected.
#[derive(Clone, Copy, Debug)]
pub struct ClientIdentity<'a> {
    /// The peer's address: the client's, or that of a proxy before us.
    pub address: IpAddr,
    /// The subject of the peer's certificate, in the form of RFC 4514; none without TLS or a certificate.
    pub tls_subject: Option<&'a str>,
    /// The subject alternative name of that certificate that identifies the peer, if there is one.
    pub tls_san: Option<&'a str>,
    /// The scheme of the connection, `http` or `https`; none if it is not known.
    pub scheme: Option<&'static str>,
    /// The name of the listener, if it has one.
    pub listener: Option<&'a str>,
}

impl From<IpAddr> for ClientIdentity<'_> {
    /// The identity of a peer of whom only the address is known.
    fn from(address: IpAddr) -> Self {
        Self { address, tls_subject: None, tls_san: None, scheme: None, listener: None }
    }
}

impl ClientIp {
    /// Whether this peer is a trusted proxy.
    #[must_use]
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&peer))
    }

    /// The client's whole address, for logs and forwarding headers.
    #[must_use]
    pub fn client(&self, peer: IpAddr, fields: &Fields) -> IpAddr {
        self.find(peer, fields).0
    }

    /// The entry of the forwarding header that names the client; empty if the peer itself is the client.
    #[must_use]
    pub fn client_entry<'f>(&self, peer: IpAddr, fields: &'f Fields) -> &'f str {
        self.find(peer, fields).1
    }

    /// The scheme that a trusted proxy names for the client's connection, `http` or `https`; none if it names none, and for
    /// other peers. Traefik calls the scheme of a WebSocket handshake `ws` or `wss`.
    #[must_use]
    pub fn forwarded_scheme(&self, peer: IpAddr, fields: &Fields) -> Option<&'static str> {
        if !self.is_trusted(peer) {
            return None;
        }
        let named = if self.header == FORWARDED {
            forwarded_value(self.client_entry(peer, fields), "proto")
        } else {
            // With several lines it is not known which one the proxy has written.
            let mut lines = fields.get_all(X_FORWARDED_PROTO);
            lines.next().filter(|_| lines.next().is_none()).and_then(ascii)
        };
        named.and_then(|scheme| known_scheme(scheme.as_bytes()))
    }

    fn find<'f>(&self, peer: IpAddr, fields: &'f Fields) -> (IpAddr, &'f str) {
        let mut found = (peer.to_canonical(), "");
        if !self.is_trusted(found.0) {
            return found;
        }
        for value in fields.get_all(&self.header).rev() {
            let Some(text) = ascii(value) else { return found };
            let has_quotes = self.header == FORWARDED;
            for entry in (FromRight { rest: Some(text), separator: b',', has_quotes }) {
                let Some(address) = self.address(entry) else { return found };
                found = (address, entry);
                if !self.is_trusted(address) {
                    return found;
                }
            }
        }
        found
    }

    /// The prefix of an address that is counted, with the other bits zero. IPv4-mapped addresses are IPv4.
    #[must_use]
    pub fn counted(&self, client: IpAddr) -> IpAddr {
        match client.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.ipv4_prefix)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.ipv6_prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        }
    }

    fn address(&self, entry: &str) -> Option<IpAddr> {
        let entry = entry.trim();
        let node = if self.header == FORWARDED { forwarded_value(entry, "for")? } else { entry };
        parse_node(node).map(|address| address.to_canonical())
    }
}

/// A scheme of HTTP or of a WebSocket as `http` or `https`.
pub(super) fn known_scheme(scheme: &[u8]) -> Option<&'static str> {
    let is = |names: [&str; 2]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name.as_bytes()));
    if is(["https", "wss"]) { Some("https") } else { is(["http", "ws"]).then_some("http") }
}

/// Splits a text at separators, from the last part to the first. Separators in quoted strings (RFC 9110 §5.6.4) are
/// ignored: a proxy may quote text of the client, such as its Host. Quotes are matched from the right as well, so that
/// nothing to the left of what the proxy has written changes how that is read.
struct FromRight<'t> {
    rest: Option<&'t str>,
    separator: u8,
    has_quotes: bool,
}

impl<'t> Iterator for FromRight<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let text = self.rest?;
        let mut is_quoted = false;
        for (index, byte) in text.bytes().enumerate().rev() {
            if byte == b'"' && self.has_quotes {
                let escapes = text[..index].bytes().rev().take_while(|before| *before == b'\\').count();
                is_quoted ^= escapes % 2 == 0;
            } else if byte == self.separator && !is_quoted {
                self.rest = Some(&text[..index]);
                return Some(&text[index + 1..]);
            }
        }
        self.rest.take()
    }
}

/// The only value of a parameter of an element of a Forwarded header (RFC 7239 §4), without quotes.
#[must_use]
pub fn forwarded_value<'e>(element: &'e str, parameter: &str) -> Option<&'e str> {
    let pairs = FromRight { rest: Some(element), separator: b';', has_quotes: true };
    let mut named = pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case(parameter).then_some(value.trim())
    });
    let (value, other) = (named.next()?, named.next());
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    other.is_none().then_some(value)
}

/// An address with or without a port: `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]`, `[::1]:80`.
fn parse_node(node: &str) -> Option<IpAddr> {
    if let Ok(address) = node.parse() {
        return Some(address);
    }
    if let Some(rest) = node.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let has_valid_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return address.parse::<Ipv6Addr>().ok().filter(|_| has_valid_port).map(IpAddr::V6);
    }
    let (address, port) = node.split_once(':')?;
    address.parse().ok().filter(|_| is_port(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn find(header: &str, peer: &str, values: &[&str]) -> String {
        let spec = ClientIp {
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            header: header.parse().unwrap(),
            ..config::defaults::client_ip()
        };
        let fields: Fields = values.iter().map(|value| (header, *value)).collect();
        spec.client(peer.parse().unwrap(), &fields).to_string()
    }

    #[test]
    fn a_peer_that_is_not_trusted_is_the_client() {
        assert_eq!(find("x-forwarded-for", "192.0.2.7", &["203.0.113.9"]), "192.0.2.7");
    }

    #[test]
    fn the_client_is_the_last_address_before_the_trusted_proxies() {
        let xff = |values: &[&str]| find("x-forwarded-for", "10.0.0.1", values);
        assert_eq!(xff(&["203.0.113.9"]), "203.0.113.9");
        assert_eq!(xff(&["6.6.6.6, 203.0.113.9, 10.0.0.2"]), "203.0.113.9");
        assert_eq!(xff(&["6.6.6.6", "203.0.113.9", "10.0.0.2"]), "203.0.113.9");
        assert_eq!(xff(&["10.0.0.9, 10.0.0.2"]), "10.0.0.9");
        assert_eq!(xff(&[]), "10.0.0.1");
        assert_eq!(xff(&["203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(xff(&["[2001:db8::1]:80"]), "2001:db8::1");
        assert_eq!(xff(&["::ffff:203.0.113.9"]), "203.0.113.9");
    }

    #[test]
    fn a_malformed_entry_ends_the_search() {
        let xff = |values: &[&str]| find("x-forwarded-for", "10.0.0.1", values);
        assert_eq!(xff(&["203.0.113.9, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(xff(&["203.0.113.9,, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(xff(&["203.0.113.9, 1.2.3.4:x"]), "10.0.0.1");
        assert_eq!(xff(&["203.0.113.9, 1.2.3.4:+80"]), "10.0.0.1");
    }

    #[test]
    fn forwarded_is_read_like_x_forwarded_for() {
        let find = |values: &[&str]| find("forwarded", "10.0.0.1", values);
        assert_eq!(find(&["for=203.0.113.9;proto=https, for=10.0.0.2"]), "203.0.113.9");
        assert_eq!(find(&[r#"For="[2001:db8::17]:4711", for=10.0.0.2"#]), "2001:db8::17");
        assert_eq!(find(&["for=203.0.113.9, for=_hidden"]), "10.0.0.1");
        assert_eq!(find(&["proto=https"]), "10.0.0.1");
        assert_eq!(find(&["for=203.0.113.9;FOR=6.6.6.6, for=10.0.0.2"]), "10.0.0.2");
    }

    /// RFC 9110 §5.6.4.
    #[test]
    fn quoted_text_is_not_read_as_parameters() {
        let find = |values: &[&str]| find("forwarded", "10.0.0.1", values);
        for host in [
            "a,for=6.6.6.6;x=",
            ",for=6.6.6.6,",
            ";for=6.6.6.6;",
            r#"\",for=6.6.6.6;x=\\"#,
            r#"\\\";for=6.6.6.6"#,
            r"\\",
        ] {
            assert_eq!(
                find(&[&format!("proto=http;host=\"{host}\";for=203.0.113.9")]),
                "203.0.113.9",
                "{host}"
            );
            let more = format!("for=203.0.113.9;host=\"{host}\", for=\"10.0.0.2\";host=\"{host}\"");
            assert_eq!(find(&[&more]), "203.0.113.9", "{host}");
        }
        // Entries of the client before it hide nothing.
        for sent in ["\"", "for=\"", "for=\"6.6.6.6", "a=\"\\", "\";for=6.6.6.6"] {
            assert_eq!(find(&[&format!("{sent}, for=203.0.113.9")]), "203.0.113.9", "{sent}");
        }
    }

    #[test]
    fn addresses_are_cut_to_their_prefix() {
        let spec = ClientIp { ipv4_prefix: 24, ..config::defaults::client_ip() };
        let counted = |text: &str| spec.counted(text.parse().unwrap()).to_string();
        assert_eq!(counted("203.0.113.9"), "203.0.113.0");
        assert_eq!(counted("::ffff:203.0.113.9"), "203.0.113.0");
        assert_eq!(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        let all = ClientIp { ipv4_prefix: 0, ipv6_prefix: 128, ..config::defaults::client_ip() };
        assert_eq!(all.counted("203.0.113.9".parse().unwrap()).to_string(), "0.0.0.0");
        assert_eq!(all.counted("2001:db8::6".parse().unwrap()).to_string(), "2001:db8::6");
    }
}
