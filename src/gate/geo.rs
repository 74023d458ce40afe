//! Countries and autonomous systems of addresses, from MMDB files. The only file that uses maxminddb.

use std::cell::OnceCell;
use std::net::IpAddr;

use maxminddb::{MaxMindDbError, PathElement, Reader};

use super::client_ip::{ClientIdentity, ClientIp};
use crate::http1::Fields;

/// A country by its code of ISO 3166-1, such as `DE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Country([u8; 2]);

/// The databases of the configuration.
#[derive(Debug, Default)]
pub struct GeoDatabases {
    /// The database of countries.
    pub country: Option<Database>,
    /// The database of autonomous systems.
    pub asn: Option<Database>,
}

/// A database in the format MMDB, as a whole in memory.
pub struct Database(Reader<Vec<u8>>);

/// The address of a client, and what the databases say about it. Each is asked at most once, when a condition or a key
/// first needs the answer.
#[derive(Debug)]
pub struct ClientLocation<'g> {
    /// The client's whole address.
    pub address: IpAddr,
    /// The peer of the connection, and how a trusted proxy describes the client; none where no route is matched.
    connection: Option<(ClientIdentity<'g>, &'g ClientIp)>,
    databases: Option<&'g GeoDatabases>,
    country: OnceCell<Option<Country>>,
    asn: OnceCell<Option<u32>>,
}

/// A condition on the country or the autonomous system of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeoCondition<T> {
    /// It is known, and one of these, which are sorted.
    AnyOf(Box<[T]>),
    /// It is unknown, or none of these, which are sorted.
    NoneOf(Box<[T]>),
}

impl Country {
    /// Parses a code of two upper-case letters.
    #[must_use]
    pub fn parse(code: &str) -> Option<Self> {
        let code: [u8; 2] = code.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// Its code.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for Country {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl Database {
    /// Reads a database. Rejects bytes that are not in the format.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, MaxMindDbError> {
        Reader::from_source(bytes).map(Self)
    }

    /// What the database calls its type, such as `GeoLite2-Country`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.0.metadata().database_type
    }

    /// The country of an address, if the database has it.
    fn country(&self, address: IpAddr) -> Option<Country> {
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        // An error is one of the database, such as addresses of IPv6 in one for IPv4: the country is unknown.
        let code: Option<&str> = self.0.lookup(address).ok()?.decode_path(&path).ok()?;
        code.and_then(Country::parse)
    }

    /// The number of the autonomous system of an address, if the database has it.
    fn asn(&self, address: IpAddr) -> Option<u32> {
        let path = [PathElement::Key("autonomous_system_number")];
        self.0.lookup(address).ok()?.decode_path(&path).ok()?
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let metadata = self.0.metadata();
        write!(f, "Database({} of {})", metadata.database_type, metadata.build_epoch)
    }
}

impl<'g> ClientLocation<'g> {
    /// The location of an address, not yet looked up.
    #[must_use]
    pub fn new(address: IpAddr, databases: Option<&'g GeoDatabases>) -> Self {
        Self { address, connection: None, databases, country: OnceCell::new(), asn: OnceCell::new() }
    }

    /// The same for a request over the connection of this peer.
    #[must_use]
    pub fn over(self, peer: ClientIdentity<'g>, client_ip: &'g ClientIp) -> Self {
        Self { connection: Some((peer, client_ip)), ..self }
    }

    /// The name of the listener to which the peer is connected, if it has one.
    #[must_use]
    pub fn listener(&self) -> Option<&str> {
        self.connection.and_then(|(peer, _)| peer.listener)
    }

    /// The scheme by which the client has sent a request with these headers, `http` or `https`, if it is known.
    #[must_use]
    pub fn scheme(&self, fields: &Fields) -> Option<&'static str> {
        let (peer, client_ip) = self.connection?;
        client_ip.forwarded_scheme(peer.address, fields).or(peer.scheme)
    }

    /// The country, if it is known.
    #[must_use]
    pub fn country(&self) -> Option<&Country> {
        let find = || self.databases?.country.as_ref()?.country(self.address);
        self.country.get_or_init(find).as_ref()
    }

    /// The number of the autonomous system, if it is known.
    #[must_use]
    pub fn asn(&self) -> Option<u32> {
        *self.asn.get_or_init(|| self.databases?.asn.as_ref()?.asn(self.address))
    }
}

impl<T: Ord + std::fmt::Display> GeoCondition<T> {
    /// Whether the condition holds for this value.
    #[must_use]
    pub fn holds(&self, value: Option<&T>) -> bool {
        match self {
            Self::AnyOf(values) => value.is_some_and(|value| values.binary_search(value).is_ok()),
            Self::NoneOf(values) => value.is_none_or(|value| values.binary_search(value).is_err()),
        }
    }
}

impl<T: std::fmt::Display> std::fmt::Display for GeoCondition<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, values) = match self {
            Self::AnyOf(values) => ("", values),
            Self::NoneOf(values) => ("not ", values),
        };
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        write!(f, "{before}{}", values.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countries_are_two_upper_case_letters() {
        assert_eq!(Country::parse("DE").map(|country| country.to_string()).as_deref(), Some("DE"));
        for wrong in ["", "D", "de", "De", "DEU", "D1", "\u{e9}"] {
            assert_eq!(Country::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn conditions_hold_for_unknown_values_only_if_they_are_negative() {
        let (any, none) = (GeoCondition::AnyOf([1, 3].into()), GeoCondition::NoneOf([1, 3].into()));
        for (value, any_holds) in [(Some(&1), true), (Some(&2), false), (Some(&3), true), (None, false)] {
            assert_eq!((any.holds(value), none.holds(value)), (any_holds, !any_holds), "{value:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_database_are_rejected() {
        for bytes in [&b""[..], b"\xab\xcd\xefMaxMind.com", b"<html></html>"] {
            assert!(Database::parse(bytes.to_vec()).is_err(), "{bytes:?}");
        }
    }
}
