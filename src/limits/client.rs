//! Who sends a request.

use std::net::{IpAddr, SocketAddr};

use crate::gate::ClientIdentity;

/// The peer that sends a request: its address, and names in its certificate. Behind a proxy that `[client_ip]` trusts, the
/// client is found in the headers of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    address: IpAddr,
    tls_subject: Option<Box<str>>,
    tls_san: Option<Box<str>>,
}

impl Client {
    /// A peer with this address.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self { address, tls_subject: None, tls_san: None }
    }

    /// This client with a certificate for this subject, in the form of RFC 4514, for limits with the key `tls:subject`.
    #[must_use]
    pub fn with_tls_subject(self, subject: impl Into<Box<str>>) -> Self {
        Self { tls_subject: Some(subject.into()), ..self }
    }

    /// This client with a certificate with this subject alternative name, for limits with the key `tls:san`.
    #[must_use]
    pub fn with_tls_san(self, name: impl Into<Box<str>>) -> Self {
        Self { tls_san: Some(name.into()), ..self }
    }

    /// The address of the peer.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The subject of its certificate, if it has one.
    #[must_use]
    pub fn tls_subject(&self) -> Option<&str> {
        self.tls_subject.as_deref()
    }

    /// The subject alternative name of its certificate, if it has one.
    #[must_use]
    pub fn tls_san(&self) -> Option<&str> {
        self.tls_san.as_deref()
    }

    pub(super) fn identity(&self) -> ClientIdentity<'_> {
        ClientIdentity {
            tls_subject: self.tls_subject(),
            tls_san: self.tls_san(),
            ..ClientIdentity::from(self.address)
        }
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        Self::new(address)
    }
}

impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip())
    }
}
