//! A client's connection: the client's identity, and what is sent upstream about it.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use smallvec::SmallVec;
use tokio::sync::watch;

use super::forward_auth::ForwardAuth;
use super::redirect::Redirect;
use super::via;
use crate::body::ClientBodies;
use crate::boxed::rare;
use crate::gate::{ClientIdentity, RouteId};
use crate::http1::names::{FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::http1::{Fields, RequestHead};
use crate::telemetry::Counts;
use crate::time::{Micros, monotonic};
use crate::tls::PeerNames;
use crate::upstream::{BufferBudget, ClientStream, InterimResponses};

/// Timeouts and the minimum rate of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// The longest time between two reads of a request body.
    pub body: Duration,
    /// How long a tunnel may be idle in both directions, and a client in a gRPC call.
    pub tunnel: Duration,
    /// The minimum rate of request bodies and responses, in bytes per second, if there is one.
    pub min_body_rate: Option<NonZeroU32>,
}

/// A client's connection: the client's identity, and the headers that describe it to upstream servers.
#[derive(Debug)]
pub struct ClientConnection {
    address: SocketAddr,
    timeouts: ClientTimeouts,
    scheme: &'static str,
    /// The name of the listener.
    listener: Option<Arc<str>>,
    /// The redirect of all requests, if the listener has one.
    redirect: Option<Arc<Redirect>>,
    /// The names in the client certificate.
    certificate: Option<Box<PeerNames>>,
    /// The most headers of a request over HTTP/2; none over HTTP/1.1, where the parser limits them.
    max_http2_headers: Option<usize>,
    /// How decisions are returned, if all requests ask for one.
    forward_auth: Option<ForwardAuth>,
    /// Whether the connection drains, for responses that do not end by themselves.
    drain: Option<watch::Receiver<bool>>,
    /// Whether a request of this connection is delayed: a client that closes its sending side then counts as gone.
    is_delayed: Cell<bool>,
    /// The address as it is written in X-Forwarded-For.
    text: AddressText,
    /// The forwarding headers of the last forwarded request, reused for the next one to the same host.
    forwarded: RefCell<Option<ForwardedFields>>,
    /// The Via element of the last forwarded request, reused for the next one of the same version and route.
    via: RefCell<Option<Via>>,
    /// Memory for request bodies that are buffered before they are forwarded.
    buffers: BufferBudget,
    /// The bodies of the client that are read for estimates, unless it is a trusted proxy.
    client_bodies: Option<Arc<ClientBodies>>,
    /// Memory for request bodies that are read for estimates, once there is one.
    read_bodies: OnceCell<BufferBudget>,
    /// Interim responses to the present request that are not written yet.
    interim: Rc<InterimResponses>,
}

/// The text of an address.
pub(super) type AddressText = SmallVec<[u8; 40]>;

/// The forwarding headers of requests to one host.
#[derive(Debug)]
pub(super) struct ForwardedFields {
    /// The value of Host.
    pub host: Box<[u8]>,
    /// The element of Forwarded (RFC 7239).
    pub forwarded: SmallVec<[u8; 128]>,
    /// All forwarding headers, for a client that is not a trusted proxy.
    pub fields: Fields,
}

/// The Via element of requests of one version that one route forwards.
#[derive(Debug)]
struct Via {
    version: Version,
    route: RouteId,
    element: Vec<u8>,
}

impl ClientConnection {
    /// A connection over HTTP/1.1 without TLS.
    #[must_use]
    pub fn new(address: SocketAddr, timeouts: ClientTimeouts) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            address,
            timeouts,
            max_http2_headers: None,
            forward_auth: None,
            drain: None,
            is_delayed: Cell::new(false),
            scheme: "http",
            listener: None,
            redirect: None,
            certificate: None,
            text: format_address(address.ip()),
            forwarded: RefCell::new(None),
            via: RefCell::new(None),
            buffers: BufferBudget::default(),
            client_bodies: None,
            read_bodies: OnceCell::new(),
            interim: Rc::default(),
        }
    }

    /// The same connection over TLS, with the names in the client certificate if there is one.
    #[must_use]
    pub fn over_tls(self, certificate: Option<PeerNames>) -> Self {
        Self { scheme: "https", certificate: certificate.map(Box::new), ..self }
    }

    /// The identity that the gate uses.
    #[must_use]
    pub fn identity(&self) -> ClientIdentity<'_> {
        let name = |name: fn(&PeerNames) -> &Option<String>| name(self.certificate.as_deref()?).as_deref();
        ClientIdentity {
            address: self.address.ip(),
            tls_subject: name(|names| &names.subject),
            tls_san: name(|names| &names.san),
            scheme: Some(self.scheme),
            listener: self.listener.as_deref(),
        }
    }

    /// The same connection to a listener with this name, and with a redirect of all requests.
    #[must_use]
    pub fn at(self, listener: Option<Arc<str>>, redirect: Option<Arc<Redirect>>) -> Self {
        Self { listener, redirect, ..self }
    }

    /// The redirect of all requests, if there is one.
    pub(super) fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_deref()
    }

    /// The peer's address: the client's, or that of a proxy in front of this one.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// The same connection with the bodies of its client that are read for estimates, unless it is a trusted proxy.
    #[must_use]
    pub(crate) fn of_client(self, bodies: Option<Arc<ClientBodies>>) -> Self {
        Self { client_bodies: bodies, ..self }
    }

    /// The same connection over HTTP/2, with the most headers that a request may have.
    #[must_use]
    pub fn over_http2(self, max_headers: usize) -> Self {
        Self { max_http2_headers: Some(max_headers), ..self }
    }

    /// The same connection to a listener for authorization requests, if `settings` are given.
    #[must_use]
    pub fn asking(self, settings: Option<ForwardAuth>) -> Self {
        Self { forward_auth: settings, ..self }
    }

    /// The same connection, with a channel that says when it drains.
    #[must_use]
    pub fn with_drain(self, drain: watch::Receiver<bool>) -> Self {
        Self { drain: Some(drain), ..self }
    }

    /// Whether the connection drains; none if it has no such channel.
    #[must_use]
    pub fn drain(&self) -> Option<watch::Receiver<bool>> {
        self.drain.clone()
    }

    /// How decisions are returned, if all requests ask for one.
    pub(super) fn forward_auth(&self) -> Option<ForwardAuth> {
        self.forward_auth
    }

    /// Whether a request of this connection is delayed: if its client disconnects meanwhile, nothing is forwarded.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.is_delayed.get()
    }

    /// Sleeps out the delay of a limit that shapes traffic. If the client disconnects meanwhile, nothing is forwarded.
    pub(super) async fn wait(&self, delay: Micros, counts: &Counts) {
        if delay == Micros::ZERO {
            return;
        }
        counts.record_delay(delay.into());
        self.is_delayed.set(true);
        rare(tokio::time::sleep(delay.into())).await;
        self.is_delayed.set(false);
        // Refreshes the cached time, which is stale after the delay.
        let _ = monotonic();
    }

    /// How long a tunnel may be idle.
    pub(super) fn tunnel_timeout(&self) -> Duration {
        self.timeouts.tunnel
    }

    /// Whether the connection carries several requests at once, over HTTP/2.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.max_http2_headers.is_some()
    }

    /// The most headers that a request may have; unlimited over HTTP/1.1, where the parser has checked this already.
    pub(super) fn max_headers(&self) -> usize {
        self.max_http2_headers.unwrap_or(usize::MAX)
    }

    /// Memory for request bodies that are buffered before they are forwarded.
    pub(super) fn buffer_budget(&self) -> &BufferBudget {
        &self.buffers
    }

    /// Memory for request bodies that are read for estimates.
    pub(super) fn read_budget(&self) -> &BufferBudget {
        self.read_bodies.get_or_init(|| BufferBudget::for_estimates(self.client_bodies.clone()))
    }

    /// Interim responses to the present request that are not written yet. Over HTTP/2 there are none: hyper can't send them.
    #[must_use]
    pub fn interim(&self) -> &Rc<InterimResponses> {
        &self.interim
    }

    /// Where interim responses to a request go, if its client gets them: HTTP/1.0 has none.
    pub(super) fn interim_of(&self, head: &RequestHead) -> Option<&Rc<InterimResponses>> {
        let takes = !self.is_multiplexed() && head.version != Version::HTTP_10;
        takes.then_some(&self.interim)
    }

    /// The route of the last request that was forwarded: over HTTP/1.1 the present one, if it was forwarded.
    pub(super) fn forwarded_route(&self) -> Option<RouteId> {
        self.via.borrow().as_ref().map(|via| via.route)
    }

    /// Whether request bodies and responses have a minimum rate.
    pub(super) fn has_min_body_rate(&self) -> bool {
        self.timeouts.min_body_rate.is_some()
    }

    /// The timeouts of a request's HTTP/2 stream. A gRPC call may be bidirectional, so its client may be idle for as long
    /// as in a tunnel.
    pub(super) fn request_stream(&self, is_call: bool) -> ClientStream {
        if is_call {
            ClientStream::new(self.timeouts.tunnel, None)
        } else {
            ClientStream::new(self.timeouts.body, self.timeouts.min_body_rate)
        }
    }

    /// The scheme of the connection, as it is written in X-Forwarded-Proto.
    pub(super) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The address as it is written in X-Forwarded-For.
    pub(super) fn address_text(&self) -> &[u8] {
        &self.text
    }

    /// The forwarding headers of a request for `host`.
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

    /// The Via element of a request of this version that this route forwards.
    pub(super) fn via(&self, version: Version, route: RouteId) -> RefMut<'_, [u8]> {
        RefMut::map(self.via.borrow_mut(), |last| {
            if last.as_ref().is_some_and(|last| (last.version, last.route) != (version, route)) {
                *last = None;
            }
            let new = || Via { version, route, element: via::element(version, route) };
            &mut *last.get_or_insert_with(new).element
        })
    }
}

/// An element of Forwarded (RFC 7239 §4) for a client with this address; `text` is the address as text, and `host` may
/// be empty.
pub(super) fn element(
    address: IpAddr,
    text: &[u8],
    host: &[u8],
    scheme: Option<&str>,
) -> SmallVec<[u8; 128]> {
    // Written without `format!`, as the text of an address is: a connection may carry only one request, and
    // formatting would take longer than all other changes to its headers.
    let (open, close) = if address.is_ipv4() { ("", "") } else { ("\"[", "]\"") };
    let mut element = SmallVec::new();
    let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| element.extend_from_slice(part));
    push(&[b"for=", open.as_bytes(), text, close.as_bytes()]);
    // A valid host has no quotes and no backslashes, so nothing is escaped.
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
    for (index, octet) in v4.octets().into_iter().enumerate() {
        if index > 0 {
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
    fn addresses_have_their_usual_text_form() {
        for text in ["0.0.0.0", "127.0.0.1", "10.20.100.255", "192.0.2.7", "1.2.34.109", "2001:db8::7", "::1"]
        {
            assert_eq!(*format_address(text.parse().unwrap()), *text.as_bytes());
        }
    }
}
