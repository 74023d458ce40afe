//! Sets of networks, and conditions on the address of a client.

use std::net::IpAddr;

use ipnet::IpNet;

/// A set of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(
    /// Sorted, and none of them within another, so that one search finds the only one that can contain an address.
    Vec<IpNet>,
);

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let networks: Vec<IpNet> = networks.into_iter().collect();
        let mut disjoint = IpNet::aggregate(&networks);
        disjoint.sort_unstable_by_key(IpNet::network);
        Self(disjoint)
    }
}

impl Networks {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The network that contains this address. Adjacent networks have been merged.
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<IpNet> {
        let after = self.0.partition_point(|network| network.network() <= address);
        let last = self.0[..after].last()?;
        last.contains(&address).then_some(*last)
    }
}

impl std::fmt::Display for Networks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let networks: Vec<String> = self.0.iter().map(|network| shown(*network)).collect();
        f.write_str(&networks.join(" or "))
    }
}

/// The text of a network. A single address has no prefix length.
fn shown(network: IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
    }
}

/// A condition on the address of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressCondition {
    /// It is in one of these networks.
    AnyOf(Networks),
    /// It is in none of these networks.
    NoneOf(Networks),
}

impl AddressCondition {
    /// Whether the condition holds for this address.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        match self {
            Self::AnyOf(networks) => networks.find(address).is_some(),
            Self::NoneOf(networks) => networks.find(address).is_none(),
        }
    }
}

impl std::fmt::Display for AddressCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AnyOf(networks) => networks.fmt(f),
            Self::NoneOf(networks) => write!(f, "not {networks}"),
        }
    }
}
