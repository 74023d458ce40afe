//! The client of a connection to the admin interface, and who that is.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The prefix length of the IPv6 network that counts as one client: a host usually has a /64.
const IPV6_PREFIX: u32 = 64;

/// The client of a connection: what bounds and pauses apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// An IPv4 address, or the network of an IPv6 address.
    Address(IpAddr),
    /// The user of the process on the other end of a Unix socket; none if the system does not report it.
    User(Option<u32>),
}

/// Who sends a request, for the log and for the list of raises.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    /// Where the connection comes from.
    pub client: ClientId,
    /// The subject of the client's certificate, if clients need one.
    certificate: Option<Box<str>>,
}

/// The most characters of a subject that are shown.
const MAX_SUBJECT: usize = 128;

impl Operator {
    /// The operator with a certificate of this subject.
    pub fn new(client: ClientId, subject: Option<&str>) -> Self {
        // One line, whatever an authority has signed.
        let shown = |subject: &str| {
            subject
                .chars()
                .take(MAX_SUBJECT)
                .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                .collect::<String>()
        };
        Self { client, certificate: subject.map(|subject| shown(subject).into()) }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.certificate {
            Some(subject) => write!(f, "{subject} from {}", self.client),
            None => self.client.fmt(f),
        }
    }
}

impl ClientId {
    /// The client at an address.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - IPV6_PREFIX))).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address @ IpAddr::V4(_)) => address.fmt(f),
            Self::Address(network @ IpAddr::V6(_)) => write!(f, "{network}/{IPV6_PREFIX}"),
            Self::User(Some(user)) => write!(f, "user {user}"),
            Self::User(None) => f.write_str("an unknown user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_client() {
        let shown = |address: &str| ClientId::of(address.parse().unwrap()).to_string();
        assert_eq!(shown("192.0.2.7"), "192.0.2.7");
        assert_eq!(shown("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    }

    #[test]
    fn an_operator_is_one_short_line() {
        let client = ClientId::of("192.0.2.7".parse().unwrap());
        let shown = |subject| Operator::new(client, subject).to_string();
        assert_eq!(shown(None), "192.0.2.7");
        assert_eq!(shown(Some("CN=alice,O=Ops")), "CN=alice,O=Ops from 192.0.2.7");
        assert_eq!(shown(Some("CN=a\nb")), "CN=a\u{fffd}b from 192.0.2.7");
        assert_eq!(shown(Some(&"x".repeat(1_000))).len(), 128 + " from 192.0.2.7".len());
    }
}
