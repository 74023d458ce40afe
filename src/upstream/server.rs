//! A server of an upstream: where its connections go, and how messages name it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Whether connections use TLS.
    pub is_tls: bool,
    /// Where the server is.
    pub address: ServerAddress,
    /// The prefix of the path of every request: empty, or `/base` without a slash at its end.
    pub base_path: Box<str>,
    /// Its share of the requests, relative to the others.
    pub weight: u32,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host name or an address, and a port.
    Tcp {
        /// The name or the address; an IPv6 address without brackets.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(Arc<Path>),
    /// The name of a service, whose SRV records have host names, ports, weights and priorities (RFC 2782).
    Service(Box<str>),
}

impl ServerSpec {
    /// The scheme of the URLs of requests.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Its IP address, if the configuration has one.
    #[must_use]
    pub fn literal(&self) -> Option<IpAddr> {
        match &self.address {
            ServerAddress::Tcp { host, .. } => host.parse().ok(),
            ServerAddress::Unix(_) | ServerAddress::Service(_) => None,
        }
    }

    /// The name to look up in the DNS, if it has one.
    #[must_use]
    pub fn dns_name(&self) -> Option<&str> {
        match &self.address {
            ServerAddress::Tcp { host, .. } => self.literal().is_none().then_some(host),
            ServerAddress::Unix(_) => None,
            ServerAddress::Service(name) => Some(name),
        }
    }

    /// Its URL, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        match (&self.address, &*self.base_path) {
            (ServerAddress::Unix(_), base) if !base.is_empty() => format!("{}:{base}", self.label()),
            (_, base) => format!("{}{base}", self.label()),
        }
    }

    /// The server's name in logs and metrics: its URL without the path, which may be a secret.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.address {
            ServerAddress::Tcp { .. } => format!("{}://{}", self.scheme(), self.authority()),
            ServerAddress::Unix(path) => format!("unix:{}", path.display()),
            ServerAddress::Service(name) => format!("srv://{name}"),
        }
    }

    /// Its name in messages that say which server failed: host and port, or else the label.
    #[must_use]
    pub fn peer(&self) -> String {
        match &self.address {
            ServerAddress::Tcp { .. } => self.authority(),
            ServerAddress::Unix(_) | ServerAddress::Service(_) => self.label(),
        }
    }

    /// The value of a Host header for it: `host:port` without the default port of the scheme; `localhost` for a Unix socket;
    /// for a service its domain, which is its name without the labels that begin with `_`.
    #[must_use]
    pub fn authority(&self) -> String {
        match &self.address {
            ServerAddress::Tcp { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
                let default_port = if self.is_tls { 443 } else { 80 };
                if *port == default_port { host } else { format!("{host}:{port}") }
            }
            ServerAddress::Unix(_) => "localhost".to_owned(),
            ServerAddress::Service(name) => {
                name.split('.').skip_while(|label| label.starts_with('_')).collect::<Vec<_>>().join(".")
            }
        }
    }

    /// Whether its addresses are those of `other`, but for a port in the configuration.
    pub(super) fn has_addresses_of(&self, other: &Self) -> bool {
        match (&self.address, &other.address) {
            (ServerAddress::Tcp { host, .. }, ServerAddress::Tcp { host: other, .. }) => host == other,
            (address, other) => address == other,
        }
    }
}

/// Where a connection goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerAddress {
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address of a server, as the configuration or the DNS has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerPeer {
    pub address: PeerAddress,
    /// The address to connect to if `address` fails: this machine may reach only one of IPv4 and IPv6.
    pub fallback: Option<SocketAddr>,
    /// Its share of the requests to the server, relative to the other addresses of the same priority.
    pub weight: u32,
    /// It gets requests while no address of the server with a lower number is available.
    pub priority: u16,
}

impl ServerPeer {
    /// The addresses of a name, each with one of the other family as its fallback: those of IPv4, or those of IPv6 if there are
    /// no others.
    pub fn of_name(addresses: &[IpAddr], port: u16) -> Vec<Self> {
        let at = |address: &IpAddr| SocketAddr::new(address.to_canonical(), port);
        let mut all: Vec<SocketAddr> = addresses.iter().map(at).collect();
        all.sort_unstable();
        all.dedup();
        let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) = all.into_iter().partition(SocketAddr::is_ipv4);
        let (first, second) = if v4.is_empty() { (v6, v4) } else { (v4, v6) };
        let fallbacks: Vec<Option<SocketAddr>> = second.into_iter().map(Some).collect();
        let fallbacks = if fallbacks.is_empty() { vec![None] } else { fallbacks };
        let pairs = first.into_iter().zip(fallbacks.into_iter().cycle());
        pairs
            .map(|(address, fallback)| Self {
                address: PeerAddress::Tcp(address),
                fallback,
                weight: 1,
                priority: 0,
            })
            .collect()
    }

    /// The addresses of the target of an SRV record, which share its weight.
    pub fn of_target(addresses: &[IpAddr], port: u16, weight: u16, priority: u16) -> Vec<Self> {
        /// Fine enough to divide the weight 1 between the addresses of a name.
        const UNIT: u32 = 1_000;
        let peers = Self::of_name(addresses, port);
        let count = u32::try_from(peers.len()).unwrap_or(u32::MAX).max(1);
        let weight = (u32::from(weight) * UNIT / count).max(1);
        peers.into_iter().map(|peer| Self { weight, priority, ..peer }).collect()
    }

    /// This address with the port of the server's URL, if that has one.
    pub fn with_port_of(mut self, server: &ServerSpec) -> Self {
        if let ServerAddress::Tcp { port, .. } = server.address {
            if let PeerAddress::Tcp(address) = &mut self.address {
                address.set_port(port);
            }
            if let Some(fallback) = &mut self.fallback {
                fallback.set_port(port);
            }
        }
        self
    }

    /// The only address of a server, if the DNS is not needed to find it.
    pub fn fixed(server: &ServerSpec) -> Vec<Self> {
        match &server.address {
            ServerAddress::Tcp { port, .. } => {
                server.literal().map(|address| Self::of_name(&[address], *port)).unwrap_or_default()
            }
            ServerAddress::Unix(path) => {
                let address = PeerAddress::Unix(Arc::clone(path));
                vec![Self { address, fallback: None, weight: 1, priority: 0 }]
            }
            ServerAddress::Service(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::defaults::server;

    #[test]
    fn servers_are_named_without_their_paths() {
        let names = |url: &str| {
            let server = server(url);
            [server.url(), server.label(), server.peer(), server.authority()]
        };
        assert_eq!(
            names("https://[::1]/hush"),
            ["https://[::1]/hush", "https://[::1]", "[::1]", "[::1]"].map(str::to_owned)
        );
        let socket = ["unix:/run/a.sock:/hush", "unix:/run/a.sock", "unix:/run/a.sock", "localhost"];
        assert_eq!(names("unix:/run/a.sock:/hush"), socket.map(str::to_owned));
        let service =
            ["srv://_api._tcp.a.test/v1", "srv://_api._tcp.a.test", "srv://_api._tcp.a.test", "a.test"];
        assert_eq!(names("srv://_api._tcp.a.test/v1"), service.map(str::to_owned));
    }

    #[test]
    fn ipv4_is_preferred_and_ipv6_is_the_fallback() {
        let found = |list: &[&str]| {
            let addresses: Vec<IpAddr> = list.iter().map(|text| text.parse().unwrap()).collect();
            let peers = ServerPeer::of_name(&addresses, 80).into_iter();
            peers.map(|peer| format!("{} {:?}", peer.address, peer.fallback)).collect::<Vec<_>>()
        };
        assert_eq!(found(&["::1", "127.0.0.1"]), ["127.0.0.1:80 Some([::1]:80)"]);
        assert_eq!(found(&["::2", "::1"]), ["[::1]:80 None", "[::2]:80 None"]);
        assert_eq!(found(&["::ffff:10.0.0.1"]), ["10.0.0.1:80 None"]);
        assert_eq!(
            found(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "::2"]),
            ["10.0.0.1:80 Some([::1]:80)", "10.0.0.2:80 Some([::2]:80)", "10.0.0.3:80 Some([::1]:80)"]
        );
    }
}
