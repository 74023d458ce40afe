//! The client of a connection to the admin interface.

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
}
