//! The other end of a client's connection.

use std::cell::{Cell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use http::Version;
use smallvec::SmallVec;

use super::via;
use crate::gate::{ClientIdentity, RouteId};
use crate::http1::Fields;
use crate::http1::names::{FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::upstream::{BufferBudget, ClientStream};

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Between two reads of a request body.
    pub body: Duration,
    /// Of both sides, after they have switched protocols; and of a client in a call of gRPC.
    pub tunnel: Duration,
    /// The minimum rate of request bodies and responses, in bytes per second, if there is one.
    pub min_body_rate: Option<NonZeroU32>,
}

/// The other end of a client's connection: who it is, and what we say of it to servers.
#[derive(Debug)]
pub struct ClientConnection {
    address: SocketAddr,
    times: ClientTimeouts,
    scheme: &'static str,
    /// The subject of the certificate that it has shown.
    tls_subject: Option<String>,
    /// How many headers a request over HTTP/2 may have; none over HTTP/1.1, where the parser sees to it.
    max_http2_headers: Option<usize>,
    /// Whether its request is delayed, so that it has to stay connected.
    is_delayed: Cell<bool>,
    /// The address as X-Forwarded-For has it.
    text: AddressText,
    /// What the last request that was forwarded has been introduced with.
    forwarded: RefCell<Option<ForwardedFields>>,
    /// What Via says of the last request that was forwarded.
    via: RefCell<Option<Via>>,
    /// Memory for request bodies that are read before they go to a server.
    buffers: BufferBudget,
}

/// The text of an address.
pub(super) type AddressText = SmallVec<[u8; 40]>;

/// What forwarding headers say of requests for one host.
#[derive(Debug)]
pub(super) struct ForwardedFields {
    /// The value of Host.
    pub host: Box<[u8]>,
    /// What Forwarded says (RFC 7239).
    pub forwarded: SmallVec<[u8; 128]>,
    /// All of these headers, for a client that is not a trusted proxy.
    pub fields: Fields,
}

/// What Via says of requests in one version that one route forwards.
#[derive(Debug)]
struct Via {
    version: Version,
    route: RouteId,
    element: Vec<u8>,
}

impl ClientConnection {
    /// The peer of a connection over HTTP/1.1.
    #[must_use]
    pub fn new(address: SocketAddr, times: ClientTimeouts) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            address,
            times,
            max_http2_headers: None,
            is_delayed: Cell::new(false),
            scheme: "http",
            tls_subject: None,
            text: format_address(address.ip()),
            forwarded: RefCell::new(None),
            via: RefCell::new(None),
            buffers: BufferBudget::default(),
        }
    }

    /// The same over TLS, with the subject of its certificate if it has shown one.
    #[must_use]
    pub fn over_tls(self, subject: Option<String>) -> Self {
        Self { scheme: "https", tls_subject: subject, ..self }
    }

    /// Whom the gate sees.
    #[must_use]
    pub fn identity(&self) -> ClientIdentity<'_> {
        ClientIdentity { address: self.address.ip(), tls_subject: self.tls_subject.as_deref() }
    }

    /// Its address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// The same over HTTP/2, where a request may have so many headers.
    #[must_use]
    pub fn over_http2(self, max_headers: usize) -> Self {
        Self { max_http2_headers: Some(max_headers), ..self }
    }

    /// Whether its request is delayed: then it has to stay connected, or nothing is forwarded.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.is_delayed.get()
    }

    /// Notes whether its request is delayed.
    pub(super) fn set_delayed(&self, is_queued: bool) {
        self.is_delayed.set(is_queued);
    }

    /// How long a tunnel may be silent.
    pub(super) fn tunnel_timeout(&self) -> Duration {
        self.times.tunnel
    }

    /// Whether it asks over several streams at once.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.max_http2_headers.is_some()
    }

    /// How many headers a request may have, where nobody else has counted them.
    pub(super) fn max_headers(&self) -> usize {
        self.max_http2_headers.unwrap_or(usize::MAX)
    }

    /// Memory for request bodies that are read before they go to a server.
    pub(super) fn buffer_budget(&self) -> &BufferBudget {
        &self.buffers
    }

    /// Whether its request bodies and responses have a minimum rate.
    pub(super) fn has_min_body_rate(&self) -> bool {
        self.times.min_body_rate.is_some()
    }

    /// A stream of it over HTTP/2. A gRPC call is a conversation, in which it may be silent for as long as in a tunnel.
    pub(super) fn request_stream(&self, is_call: bool) -> ClientStream {
        if is_call {
            ClientStream::new(self.times.tunnel, None)
        } else {
            ClientStream::new(self.times.body, self.times.min_body_rate)
        }
    }

    /// How it speaks to us: what X-Forwarded-Proto says of it.
    pub(super) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// What X-Forwarded-For says of it.
    pub(super) fn address_text(&self) -> &[u8] {
        &self.text
    }

    /// What is said of it when it asks for `host`.
    pub(super) fn forwarded_fields(&self, host: &[u8]) -> RefMut<'_, ForwardedFields> {
        RefMut::map(self.forwarded.borrow_mut(), |last| {
            if last.as_ref().is_some_and(|last| *last.host != *host) {
                *last = None;
            }
            last.get_or_insert_with(|| {
                let named = if host.is_ascii() { host } else { b"" };
                let forwarded = element(self.ip(), &self.text, named, Some(self.scheme));
                let mut fields = Fields::new();
                fields.push(X_FORWARDED_FOR, &self.text);
                fields.push(FORWARDED, &forwarded);
                fields.push(X_FORWARDED_PROTO, self.scheme.as_bytes());
                fields.push(X_FORWARDED_HOST, host);
                ForwardedFields { host: host.into(), forwarded, fields }
            })
        })
    }

    /// What Via says of a request that came in this version and is forwarded by this route.
    pub(super) fn via(&self, version: Version, route: RouteId) -> RefMut<'_, [u8]> {
        RefMut::map(self.via.borrow_mut(), |last| {
            if last.as_ref().is_some_and(|last| (last.version, last.route) != (version, route)) {
                *last = None;
            }
            let made = || Via { version, route, element: via::element(version, route) };
            &mut *last.get_or_insert_with(made).element
        })
    }
}

/// An element of Forwarded (RFC 7239 §4) about a client with this address, whose text is given as well; the host may be
/// empty.
pub(super) fn element(
    address: IpAddr,
    text: &[u8],
    host: &[u8],
    scheme: Option<&str>,
) -> SmallVec<[u8; 128]> {
    // Put together by hand, as the text of an address is: a new connection may bring one request only, and
    // formatting would take longer than all the rest that is done to its headers.
    let (open, close) = if address.is_ipv4() { ("", "") } else { ("\"[", "]\"") };
    let mut element = SmallVec::new();
    let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| element.extend_from_slice(part));
    push(&[b"for=", open.as_bytes(), text, close.as_bytes()]);
    // A valid host has no quotes and no backslashes.
    if !host.is_empty() {
        push(&[b";host=\"", host, b"\""]);
    }
    if let Some(scheme) = scheme {
        push(&[b";proto=", scheme.as_bytes()]);
    }
    element
}

/// An address as text.
pub(super) fn format_address(address: IpAddr) -> AddressText {
    let IpAddr::V4(v4) = address else { return AddressText::from_slice(address.to_string().as_bytes()) };
    let mut text = AddressText::new();
    for (place, octet) in v4.octets().into_iter().enumerate() {
        if place > 0 {
            text.push(b'.');
        }
        for power in [100, 10, 1].into_iter().filter(|power| octet >= *power || *power == 1) {
            text.push(b'0' + octet / power % 10);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_as_everybody_spells_them() {
        for text in ["0.0.0.0", "127.0.0.1", "10.20.100.255", "192.0.2.7", "1.2.34.109", "2001:db8::7", "::1"]
        {
            assert_eq!(*format_address(text.parse().unwrap()), *text.as_bytes());
        }
    }
}
