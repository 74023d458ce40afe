//! The other end of a client's connection.

use std::cell::{Cell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::tunnel::Tunnel;
use super::unread::Unread;
use super::via;
use crate::gate::{Caller, RouteId};
use crate::socket::{Patience, Reading};
use crate::time::{monotonic, recent};
use crate::upstream::{BufferBudget, ClientStream, ConnectionUse, Pace};

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimes {
    /// From the first byte of a head to its last.
    pub header: Duration,
    /// Between two reads of a request body.
    pub body: Duration,
    /// Between requests.
    pub idle: Duration,
    /// Of both sides, after they have switched protocols; and of a client in a call of gRPC.
    pub tunnel: Duration,
    /// The minimum rate of request bodies and responses, in bytes per second, if there is one.
    pub min_body_rate: Option<NonZeroU32>,
}

impl ClientTimes {
    /// The patience for a new connection, which owes us its first request.
    #[must_use]
    pub fn patience(&self) -> Rc<Patience> {
        Patience::of_client(Reading::HeadStartsBy(monotonic() + self.idle, self.header), self.idle)
    }
}

/// A client's connection while it is used: who it is, how patient we are with it, and what we say of it to servers.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    times: ClientTimes,
    patience: Rc<Patience>,
    scheme: &'static str,
    /// The subject of the certificate that it has shown.
    tls_subject: Option<String>,
    /// How many headers a request over HTTP/2 may have; none over HTTP/1.1, where the parser sees to it.
    multiplexed: Cell<Option<usize>>,
    /// The address as X-Forwarded-For has it.
    text: AddressText,
    /// What the last request that was forwarded has been introduced with.
    introduction: RefCell<Option<Introduction>>,
    /// What Via says of the last request that was forwarded.
    via: RefCell<Option<Via>>,
    /// Memory for request bodies that are read before they go to a server.
    buffers: BufferBudget,
    /// The connection over which the present response comes to HTTP/1.1, if there is more of it than was taken at once.
    responding: RefCell<Option<Arc<ConnectionUse>>>,
    /// What its connection goes on with after HTTP/1.1.
    tunnel: RefCell<Option<Box<Tunnel>>>,
    /// The body of the last request over HTTP/1.1, if that was answered without it.
    unread: RefCell<Option<Box<ReadOn>>>,
}

/// The text of an address.
pub(super) type AddressText = SmallVec<[u8; 40]>;

/// What forwarding headers say of requests for one host.
#[derive(Debug)]
pub(super) struct Introduction {
    /// The value of Host.
    pub host: Box<[u8]>,
    /// What Forwarded says (RFC 7239).
    pub forwarded: SmallVec<[u8; 128]>,
}

/// What Via says of requests in one version that one route forwards.
#[derive(Debug)]
struct Via {
    version: Version,
    route: RouteId,
    element: Vec<u8>,
}

/// A body that is read behind its response.
#[derive(Debug)]
struct ReadOn {
    body: Unread,
    /// Whether the response has been sent.
    is_answered: bool,
}

impl Peer {
    /// The peer of a connection whose socket has this patience.
    #[must_use]
    pub fn new(address: SocketAddr, times: ClientTimes, patience: Rc<Patience>) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            address,
            times,
            patience,
            multiplexed: Cell::new(None),
            scheme: "http",
            tls_subject: None,
            text: text_of(address.ip()),
            introduction: RefCell::new(None),
            via: RefCell::new(None),
            buffers: BufferBudget::default(),
            responding: RefCell::new(None),
            tunnel: RefCell::new(None),
            unread: RefCell::new(None),
        }
    }

    /// The same over TLS, with the subject of its certificate if it has shown one.
    #[must_use]
    pub fn over_tls(self, subject: Option<String>) -> Self {
        Self { scheme: "https", tls_subject: subject, ..self }
    }

    /// Whom the gate sees.
    #[must_use]
    pub fn caller(&self) -> Caller<'_> {
        Caller { address: self.address.ip(), tls_subject: self.tls_subject.as_deref() }
    }

    /// Its address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// How patient its socket is.
    #[must_use]
    pub fn patience(&self) -> &Rc<Patience> {
        &self.patience
    }

    /// It speaks HTTP/2, where each stream has times of its own, and its socket none. A request may have so many
    /// headers.
    pub fn multiplex(&self, max_headers: usize) {
        self.multiplexed.set(Some(max_headers));
        self.patience.set(Reading::UntilItEnds);
    }

    /// The tunnel that its connection is to be from now on, if any.
    #[must_use]
    pub fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Leaves a tunnel for its connection to take.
    pub(super) fn leave_tunnel(&self, tunnel: Tunnel) {
        self.tunnel.replace(Some(Box::new(tunnel)));
    }

    /// How long a tunnel may be silent.
    pub(super) fn tunnel_timeout(&self) -> Duration {
        self.times.tunnel
    }

    /// Whether it asks over several streams at once.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed.get().is_some()
    }

    /// How many headers a request may have, where nobody else has counted them.
    pub(super) fn max_headers(&self) -> usize {
        self.multiplexed.get().unwrap_or(usize::MAX)
    }

    /// It has sent a head over HTTP/1.1; `has_body` says whether there is more to come. To be told before its socket
    /// is read again.
    pub fn has_asked(&self, has_body: bool) {
        // The body before this head has come to its end.
        self.unread.take();
        self.patience.begin_transfers(self.times.min_body_rate);
        self.patience.set_unfinished(has_body);
        self.patience.set(if has_body { Reading::Each(self.times.body) } else { Reading::Unbounded });
    }

    /// Memory for request bodies that are read before they go to a server.
    pub(super) fn buffers(&self) -> &BufferBudget {
        &self.buffers
    }

    /// Whether its request bodies and responses have a minimum rate.
    pub(super) fn has_min_body_rate(&self) -> bool {
        self.times.min_body_rate.is_some()
    }

    /// A response over HTTP/1.1 takes more than one turn, and comes over this connection to a server.
    pub(super) fn is_responding(&self, connection: &Arc<ConnectionUse>) {
        if self.responding.borrow().is_none() {
            self.responding.replace(Some(Arc::clone(connection)));
        }
    }

    /// Whether it reads its response so slowly that others needed the connection to the server.
    #[must_use]
    pub fn is_reclaimed(&self) -> bool {
        self.responding.borrow().as_ref().is_some_and(|connection| connection.is_reclaimed())
    }

    /// It has got its answer.
    pub(super) fn is_answered(&self) {
        if !self.is_multiplexed() {
            self.responding.take();
        }
        if let Some(unread) = &mut *self.unread.borrow_mut() {
            unread.is_answered = true;
        } else if !self.is_multiplexed() {
            self.patience.await_next(recent(), self.times.idle, self.times.header);
        }
    }

    /// Has the body of a request that is answered without it read behind the answer; says whether it is short enough.
    pub(super) fn read_on(&self, body: Incoming) -> bool {
        let unread = Unread::of(body).map(|body| Box::new(ReadOn { body, is_answered: false }));
        let is_short = unread.is_some();
        self.unread.replace(unread);
        is_short
    }

    /// Reads on a body whose request is answered without it; ready if its connection is to be looked at again: the body
    /// has come to its end, or no more of it is read, which ends the connection.
    pub fn poll_unread(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unread = self.unread.borrow_mut();
        let Some(ReadOn { body, is_answered }) = unread.as_deref_mut() else { return Poll::Pending };
        let is_complete = ready!(body.poll(cx));
        let is_answered = *is_answered;
        *unread = None;
        if is_complete {
            self.patience.set_unfinished(false);
            self.patience.set(Reading::Unbounded);
            if is_answered {
                self.patience.await_next(recent(), self.times.idle, self.times.header);
            }
        }
        Poll::Ready(())
    }

    /// How the body of a request comes that it has begun to send. A call of gRPC is a conversation, in which it may be
    /// silent for as long as in a tunnel.
    pub(super) fn pace(&self, is_call: bool) -> Pace {
        if self.is_multiplexed() {
            let stream = if is_call {
                ClientStream::new(self.times.tunnel, None)
            } else {
                ClientStream::new(self.times.body, self.times.min_body_rate)
            };
            Pace::Stream(Box::new(stream))
        } else {
            Pace::Socket(Rc::clone(&self.patience))
        }
    }

    /// How it speaks to us: what X-Forwarded-Proto says of it.
    pub(super) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// What X-Forwarded-For says of it.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// What is said of it when it asks for `host`.
    pub(super) fn introduction(&self, host: &[u8]) -> RefMut<'_, Introduction> {
        RefMut::map(self.introduction.borrow_mut(), |last| {
            if last.as_ref().is_some_and(|last| *last.host != *host) {
                *last = None;
            }
            last.get_or_insert_with(|| {
                let named = if host.is_ascii() { host } else { b"" };
                let forwarded = element(self.ip(), &self.text, named, Some(self.scheme));
                Introduction { host: host.into(), forwarded }
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
pub(super) fn text_of(address: IpAddr) -> AddressText {
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
            assert_eq!(*text_of(text.parse().unwrap()), *text.as_bytes());
        }
    }
}
